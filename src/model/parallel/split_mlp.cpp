#include "model/parallel/split_mlp.hpp"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "egt/core/profiler_range.hpp"
#include "egt/core/wait.hpp"

namespace egt {

namespace {

/// One GEMM per layer, because gradients are sent only after all micro-batches.
constexpr std::int64_t one_bucket = std::numeric_limits<std::int64_t>::max();

NetworkPart part_of(const SplitConfig& config) {
  const ParallelPlace place = place_of(config.plan, config.rank);
  return {.neurons = config.network.neurons,
          .layers = config.stages[static_cast<std::size_t>(place.stage)],
          .tensor = config.plan.tensor,
          .part = place.tensor,
          .passes =
              static_cast<std::size_t>(passes_kept(place.stage, config.plan.pipeline, config.micro_batches))};
}

MlpConfig local_config(const SplitConfig& config, const NetworkPart& part) {
  MlpConfig local = config.network;
  const std::int64_t parts = std::int64_t{config.plan.data} * config.micro_batches;
  local.neurons = part.local_neurons();
  local.batch.local = (local.batch.global + parts - 1) / parts + 1;  // rounded up in each of two divisions
  local.part = part;
  return local;
}

}  // namespace

std::string SplitMlp::why_not(const MlpConfig& network, const ParallelPlan& plan) {
  const Precision precision = network.precisions.front();
  if (precision != Precision::fp32 && precision != Precision::tf32 && precision != Precision::bf16)
    return fmt::format("parts of a network are summed and exchanged in fp32, tf32 and bf16, not in {}",
                       to_string(precision));
  if (network.gradient_type != ElementType::f32)
    return "gradients of micro-batches are summed in fp32 only, not in --gradient-dtype bf16";
  if (plan.tensor > 1 && network.extreme_iterations > 0)
    return "the extreme term of a layer is of all its neurons: --extreme-iterations must be 0";
  return {};
}

SplitMlp::SplitMlp(Device& device, const PlanCommunicators& ranks, const SplitConfig& config)
    : device_(device),
      ranks_(ranks),
      config_(config),
      place_(place_of(config.plan, config.rank)),
      part_(part_of(config)),
      local_(local_config(config, part_)),
      layout_(local_.neurons, one_bucket),
      schedule_(schedule_1f1b(place_.stage, config.plan.pipeline, config.micro_batches)),
      precision_(config.network.precisions.front()),
      trained_(device, local_, layout_) {}

Result<std::unique_ptr<SplitMlp>> SplitMlp::create(Device& device, const PlanCommunicators& ranks,
                                                   const SplitConfig& config) {
  if (const std::string why = why_not(config.network, config.plan); !why.empty())
    return Status(StatusCode::unsupported, why);
  std::unique_ptr<SplitMlp> made(new SplitMlp(device, ranks, config));
  EGT_TRY(made->allocate());
  EGT_TRY(made->reset());
  return made;
}

Status SplitMlp::allocate() {
  EGT_TRY(trained_.allocate(false));
  EGT_TRY_ASSIGN(workspace_, mlp::Workspace::allocate(device_, local_, layout_));
  const auto count = static_cast<std::size_t>(config_.micro_batches);
  EGT_TRY_ASSIGN(losses_memory_, device_.allocate((marks_.size() + 1) * count * sizeof(float)));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(marks_.size() * count * sizeof(float)));
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    marks_[i].losses = losses_memory_.as<float>() + i * count;
    marks_[i].reported = pinned_.as<float>() + i * count;
    for (EventHandle* event : {&marks_[i].begin, &marks_[i].end}) {
      EGT_TRY_ASSIGN(*event, device_.create_event(EventUse::timing));
    }
  }
  EGT_TRY_ASSIGN(stream_, device_.create_stream(StreamPriority::normal));
  pass_ = std::make_unique<mlp::Pass>(device_, local_, layout_, workspace_, *stream_);
  EGT_TRY(pass_->allocate());
  return device_.set_zero(workspace_.gradient.data(), workspace_.gradient.bytes(), *stream_);
}

Status SplitMlp::reset() {
  EGT_TRY(trained_.initialize(*stream_));
  const VectorView copy = trained_.parameters.compute_copy(precision_);
  return copy.data == nullptr ? Status() : device_.cast(copy, trained_.parameters.master(), *stream_);
}

NeuronRange SplitMlp::samples(int i) const {
  if (rows_ > 0) return {(std::int64_t{place_.data} * config_.micro_batches + i) * rows_, rows_};
  const NeuronRange own = egt::part_of(config_.network.batch.global, config_.plan.data, place_.data);
  const NeuronRange batch = egt::part_of(own.count, config_.micro_batches, i);
  return {own.first + batch.first, batch.count};
}

template <typename Enqueue>
Status SplitMlp::outside(const Enqueue& enqueue) {
  if (!measured_) return enqueue();
  if (measured_->used == measured_->outside.size()) {
    auto& added = measured_->outside.emplace_back();
    for (EventHandle& event : added) {
      EGT_TRY_ASSIGN(event, device_.create_event(EventUse::timing));
    }
  }
  const auto& [begin, end] = measured_->outside[measured_->used++];
  EGT_TRY(device_.record(*begin, *stream_));
  EGT_TRY(enqueue());
  return device_.record(*end, *stream_);
}

Status SplitMlp::run(std::uint64_t sequence, std::int64_t rows, bool computes) {
  sequence_ = sequence;
  rows_ = rows;
  for (const PipelineOperation& operation : schedule_) {
    if (operation.kind == PipelineOperation::Kind::exchange)
      EGT_TRY(exchange(operation));
    else
      EGT_TRY(computes ? compute(operation) : sums_of(operation));
  }
  return sum_over_data();
}

Status SplitMlp::compute(const PipelineOperation& operation) {
  micro_batch_ = operation.micro_batch;
  const NeuronRange own = samples(micro_batch_);
  const mlp::PassPlan plan{.precision = precision_,
                           .parameters = trained_.parameters,
                           .sequence = sequence_,
                           .first_sample = own.first,
                           .rows = own.count,
                           .loss = losses_ + micro_batch_,
                           .pass = memory_of(micro_batch_),
                           .adds = micro_batch_ > 0};
  return operation.kind == PipelineOperation::Kind::forward ? pass_->forward(plan, *this)
                                                            : pass_->backward(plan, *this);
}

Status SplitMlp::exchange(const PipelineOperation& operation) {
  const ProfilerRange range("exchange");
  const int before = place_.stage - 1, behind = place_.stage + 1;
  std::vector<Message> sends, receives;
  const auto add = [](std::vector<Message>& to, MatrixView matrix, int peer) {
    to.push_back({matrix.data, static_cast<std::size_t>(matrix.count()) * size_of(matrix.type), peer});
  };
  if (const auto i = operation.send_forward) add(sends, activation(layers(), *i), behind);
  if (const auto i = operation.send_backward) add(sends, activation_gradient(0, *i), before);
  if (const auto i = operation.receive_forward) add(receives, activation(0, *i), before);
  if (const auto i = operation.receive_backward) add(receives, activation_gradient(layers(), *i), behind);
  EGT_TRY(outside([&] { return ranks_.pipeline.exchange(sends, receives, *stream_); }));
  if (const auto i = operation.receive_forward) {
    micro_batch_ = *i;
    EGT_TRY(digest_matrix({TensorKind::activation, -1}, activation(0, *i), true));
  }
  if (const auto i = operation.receive_backward) {
    micro_batch_ = *i;
    EGT_TRY(digest_matrix({TensorKind::input_product, static_cast<int>(layers())},
                          activation_gradient(layers(), *i), true));
  }
  return {};
}

Result<bool> SplitMlp::make_input(MatrixView input) {
  if (!config_.make_input || rows_ > 0) return false;
  EGT_TRY(config_.make_input(sequence_, samples(micro_batch_).first, input, *stream_));
  if (!part_.has_input()) return true;  // the last stage needs the input only for its targets
  EGT_TRY(digest_matrix({TensorKind::activation, -1}, input, false));
  return true;
}

/// All-reduces GEMM results that are partial sums, since this rank has a part of the inputs or outputs.
Status SplitMlp::after(const Operation& operation, const PassTensor& tensor) {
  const LayerSplit split = part_.split(static_cast<std::size_t>(tensor.layer));
  const bool is_partial = (tensor.kind == TensorKind::product && split == LayerSplit::by_inputs) ||
                          (tensor.kind == TensorKind::input_product && split == LayerSplit::by_outputs);
  if (!is_partial) return {};
  const MatrixView d = std::get<Gemm>(operation).d;
  EGT_TRY(sum_over_tensor(d));
  return digest_matrix(tensor, d, true);
}

Status SplitMlp::sum_over_tensor(MatrixView matrix) {
  return outside([&] {
    return ranks_.tensor.all_reduce(matrix.data, static_cast<std::size_t>(matrix.count()), matrix.type,
                                    *stream_);
  });
}

Status SplitMlp::sums_of(const PipelineOperation& operation) {
  const bool forward = operation.kind == PipelineOperation::Kind::forward;
  for (std::size_t l = 0; l < layers(); ++l) {
    if (forward && part_.split(l) == LayerSplit::by_inputs)
      EGT_TRY(sum_over_tensor(activation(l + 1, operation.micro_batch)));
    if (!forward && part_.split(l) == LayerSplit::by_outputs && (l > 0 || !part_.has_input()))
      EGT_TRY(sum_over_tensor(activation_gradient(l, operation.micro_batch)));
  }
  return {};
}

Status SplitMlp::sum_over_data() {
  if (ranks_.data.size() < 2) return {};
  const VectorView all = workspace_.gradient_range(0, layout_.size());
  EGT_TRY(outside([&] {
    return ranks_.data.all_reduce(all.data, static_cast<std::size_t>(all.count), all.type, *stream_);
  }));
  return digest({TensorKind::weight_gradient, 0},
                {static_cast<std::uint32_t*>(all.data), static_cast<std::uint64_t>(all.count)}, true);
}

Status SplitMlp::digest(const PassTensor& tensor, WordsView words, bool is_of_peers) {
  if (!next_digest_) return {};
  tensors_.push_back({{tensor.kind, tensor.layer + part_.layers.first}, micro_batch_, is_of_peers});
  return device_.digest(words, next_digest_++, *stream_);
}

/// Zeroes the unused bytes of the last word, since digests read whole words.
Status SplitMlp::digest_matrix(const PassTensor& tensor, MatrixView matrix, bool is_of_peers) {
  constexpr std::size_t word = sizeof(std::uint32_t);
  if (!next_digest_) return {};
  const std::size_t bytes = static_cast<std::size_t>(matrix.count()) * size_of(matrix.type);
  if (bytes % word != 0)
    EGT_TRY(device_.set_zero(static_cast<char*>(matrix.data) + bytes, word - bytes % word, *stream_));
  return digest(tensor, {static_cast<std::uint32_t*>(matrix.data), (bytes + word - 1) / word}, is_of_peers);
}

Status SplitMlp::enqueue_step(std::int64_t step, bool computes) {
  const ProfilerRange range("step of a part");
  measured_ = &marks_of(step);
  measured_->used = 0;
  losses_ = measured_->losses;
  EGT_TRY(device_.record(*measured_->begin, *stream_));
  EGT_TRY(run(static_cast<std::uint64_t>(step), 0, computes));
  if (computes) EGT_TRY(enqueue_update());
  EGT_TRY(device_.copy(measured_->reported, losses_,
                       static_cast<std::size_t>(config_.micro_batches) * sizeof(float), *stream_));
  return device_.record(*std::exchange(measured_, nullptr)->end, *stream_);
}

Status SplitMlp::enqueue_pass(std::uint64_t sequence, std::int64_t rows, Digest* digests) {
  losses_ = losses_memory_.as<float>() + marks_.size() * static_cast<std::size_t>(config_.micro_batches);
  next_digest_ = digests;
  tensors_.clear();
  const Status status = run(sequence, rows, true);
  next_digest_ = nullptr;
  return status;
}

Status SplitMlp::enqueue_update() {
  trained_.step_made();
  for (const GradientBucket& bucket : layout_.buckets())
    EGT_TRY(trained_.update(
        trained_.step_of(bucket, workspace_.gradient_range(bucket.offset, bucket.count), precision_),
        *stream_));
  return {};
}

/// Upper bound of the digests per step: the tensors of each pass, those that are all-reduced or received
/// after it, and one for the data-parallel all-reduce.
std::size_t SplitMlp::max_tensors() const {
  const std::size_t a_pass = mlp::Pass::tensors(layout_, local_).size() + 2 * layers() + 4;
  return static_cast<std::size_t>(config_.micro_batches) * a_pass + 1;
}

Result<SplitStep> SplitMlp::retire_step(std::int64_t step, double timeout_seconds) {
  const Marks& marks = marks_of(step);
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        for (Communicator* one : {&ranks_.pipeline, &ranks_.tensor, &ranks_.data}) EGT_TRY(one->check());
        return device_.done(*marks.end);
      },
      {.seconds = timeout_seconds, .what = "the end of a step of a divided network"}));
  SplitStep result;
  EGT_TRY_ASSIGN(result.step_ms, device_.elapsed_ms(*marks.begin, *marks.end));
  if (last_retired_ == step - 1) {
    EGT_TRY_ASSIGN(result.since_last_ms, device_.elapsed_ms(*marks_of(step - 1).end, *marks.end));
  }
  last_retired_ = step;
  for (std::size_t i = 0; i < marks.used; ++i) {
    EGT_TRY_ASSIGN(const double ms, device_.elapsed_ms(*marks.outside[i][0], *marks.outside[i][1]));
    result.outside_ms += ms;
  }
  if (!part_.has_loss()) return result;
  const NeuronRange own = egt::part_of(config_.network.batch.global, config_.plan.data, place_.data);
  double sum = 0;
  for (int i = 0; i < config_.micro_batches; ++i) sum += static_cast<double>(marks.reported[i]);
  result.loss = sum / static_cast<double>(own.count * part_.neurons.back());
  return result;
}

}  // namespace egt
