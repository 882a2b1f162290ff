#include "model/parallel/split_mlp.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "egt/core/profiler_range.hpp"
#include "egt/core/wait.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_pass.hpp"
#include "model/mlp_state.hpp"
#include "model/parallel/pipeline_schedule.hpp"
#include "model/parallel/whole_network.hpp"

namespace egt {

namespace {

using mlp::EventHandle;

/// Of every layer one product: gradients travel when all micro-batches are through.
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

struct SplitMlp::Impl : mlp::PassCompanion {
  /// Of a step that is under way.
  struct Marks {
    EventHandle begin, end;
    std::vector<std::array<EventHandle, 2>> outside;
    std::size_t used = 0;  // of `outside`
    float* losses = nullptr;
    float* told = nullptr;  // the same, pinned
  };

  Impl(Device& d, const PlanCommunicators& r, const SplitConfig& c)
      : device(d),
        ranks(r),
        config(c),
        place(place_of(c.plan, c.rank)),
        part(part_of(c)),
        local(local_config(c, part)),
        layout(local.neurons, one_bucket),
        schedule(schedule_1f1b(place.stage, c.plan.pipeline, c.micro_batches)),
        trained(device, local, layout) {}

  Status allocate();
  Status run();
  Status compute(const PipelineOperation& operation);
  Status exchange(const PipelineOperation& operation);
  Status sum_over_tensor(MatrixView matrix);
  /// What a pass would sum, of what lies there.
  Status sums_of(const PipelineOperation& operation);
  Status sum_over_data();
  /// With its time where a step is measured.
  template <typename Enqueue>
  Status outside(const Enqueue& enqueue);
  Status digest(const PassTensor& tensor, WordsView words, bool is_of_peers);
  Status digest_received(const PassTensor& tensor, MatrixView matrix);

  // Along a pass
  Status after_product(const Gemm& gemm, const PassTensor& tensor) override;
  Status made(const PassTensor& tensor, WordsView words) override { return digest(tensor, words, false); }

  NeuronRange samples(int micro_batch) const;
  std::size_t layers() const { return layout.layers().size(); }
  std::size_t memory_of(int micro_batch) const { return static_cast<std::size_t>(micro_batch) % part.passes; }
  MatrixView activation(std::size_t l, int micro_batch) const {
    return workspace.activation(l, precision, samples(micro_batch).count, memory_of(micro_batch));
  }
  MatrixView activation_gradient(std::size_t l, int micro_batch) const {
    return workspace.activation_gradient(l, precision, samples(micro_batch).count);
  }
  Marks& marks_of(std::int64_t step) { return marks[static_cast<std::size_t>(step) % marks.size()]; }

  Device& device;
  const PlanCommunicators ranks;
  const SplitConfig config;
  const ParallelPlace place;
  const NetworkPart part;
  const MlpConfig local;
  const ParameterLayout layout;
  const std::vector<PipelineOperation> schedule;
  const Precision precision = config.network.precisions.front();

  // Of what is being enqueued
  std::uint64_t sequence = 0;
  std::int64_t rows = 0;  // of a micro-batch; 0: all
  bool computes = true;
  int micro_batch = 0;
  Digest* next_digest = nullptr;
  std::vector<SplitTensor> tensors;
  float* losses = nullptr;
  Marks* measured = nullptr;

  // Streams die before the memory that their work uses: members are destroyed from the last to the first.
  mlp::TrainedState trained;
  mlp::Workspace workspace;
  Buffer losses_memory, pinned;
  std::array<Marks, depth + 2> marks;
  std::optional<std::int64_t> last_retired;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<mlp::Pass> pass;
};

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

Result<std::unique_ptr<SplitMlp>> SplitMlp::create(Device& device, const PlanCommunicators& ranks,
                                                   const SplitConfig& config) {
  if (const std::string why = why_not(config.network, config.plan); !why.empty())
    return Status(StatusCode::unsupported, why);
  auto impl = std::make_unique<Impl>(device, ranks, config);
  EGT_TRY(impl->allocate());
  std::unique_ptr<SplitMlp> made(new SplitMlp(std::move(impl)));
  EGT_TRY(made->reset());
  return made;
}

SplitMlp::SplitMlp(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SplitMlp::~SplitMlp() = default;

Status SplitMlp::Impl::allocate() {
  EGT_TRY(trained.allocate());
  EGT_TRY_ASSIGN(workspace, mlp::Workspace::allocate(device, local, layout));
  const auto count = static_cast<std::size_t>(config.micro_batches);
  EGT_TRY_ASSIGN(losses_memory, device.allocate((marks.size() + 1) * count * sizeof(float)));
  EGT_TRY_ASSIGN(pinned, device.allocate_pinned(marks.size() * count * sizeof(float)));
  for (std::size_t i = 0; i < marks.size(); ++i) {
    marks[i].losses = losses_memory.as<float>() + i * count;
    marks[i].told = pinned.as<float>() + i * count;
    for (EventHandle* event : {&marks[i].begin, &marks[i].end}) {
      EGT_TRY_ASSIGN(*event, device.create_event(EventUse::timing));
    }
  }
  EGT_TRY_ASSIGN(stream, device.create_stream(StreamPriority::normal));
  pass = std::make_unique<mlp::Pass>(device, local, layout, workspace, *stream);
  EGT_TRY(pass->allocate());
  return device.set_zero(workspace.gradient.data(), workspace.gradient.bytes(), *stream);
}

Status SplitMlp::reset() {
  Impl& m = *impl_;
  EGT_TRY(m.trained.initialize(*m.stream));
  const VectorView copy = m.trained.parameters.compute_copy(m.precision);
  return copy.data == nullptr ? Status() : m.device.cast(copy, m.trained.parameters.master(), *m.stream);
}

NeuronRange SplitMlp::Impl::samples(int i) const {
  if (rows > 0) return {(std::int64_t{place.data} * config.micro_batches + i) * rows, rows};
  const NeuronRange own = egt::part_of(config.network.batch.global, config.plan.data, place.data);
  const NeuronRange batch = egt::part_of(own.count, config.micro_batches, i);
  return {own.first + batch.first, batch.count};
}

template <typename Enqueue>
Status SplitMlp::Impl::outside(const Enqueue& enqueue) {
  if (!measured) return enqueue();
  if (measured->used == measured->outside.size()) {
    auto& added = measured->outside.emplace_back();
    for (EventHandle& event : added) {
      EGT_TRY_ASSIGN(event, device.create_event(EventUse::timing));
    }
  }
  const auto& [begin, end] = measured->outside[measured->used++];
  EGT_TRY(device.record(*begin, *stream));
  EGT_TRY(enqueue());
  return device.record(*end, *stream);
}

Status SplitMlp::Impl::run() {
  for (const PipelineOperation& operation : schedule) {
    if (operation.kind == PipelineOperation::Kind::exchange)
      EGT_TRY(exchange(operation));
    else
      EGT_TRY(computes ? compute(operation) : sums_of(operation));
  }
  return sum_over_data();
}

Status SplitMlp::Impl::compute(const PipelineOperation& operation) {
  micro_batch = operation.micro_batch;
  const NeuronRange own = samples(micro_batch);
  const mlp::PassPlan plan{.precision = precision,
                           .parameters = trained.parameters,
                           .sequence = sequence,
                           .first_sample = own.first,
                           .rows = own.count,
                           .loss = losses + micro_batch,
                           .pass = memory_of(micro_batch),
                           .adds = micro_batch > 0};
  return operation.kind == PipelineOperation::Kind::forward ? pass->forward(plan, *this)
                                                            : pass->backward(plan, *this);
}

Status SplitMlp::Impl::exchange(const PipelineOperation& operation) {
  const ProfilerRange range("exchange");
  const int before = place.stage - 1, behind = place.stage + 1;
  std::vector<Message> sends, receives;
  const auto add = [](std::vector<Message>& to, MatrixView matrix, int peer) {
    to.push_back({matrix.data, static_cast<std::size_t>(matrix.count()) * size_of(matrix.type), peer});
  };
  if (const auto i = operation.send_forward) add(sends, activation(layers(), *i), behind);
  if (const auto i = operation.send_backward) add(sends, activation_gradient(0, *i), before);
  if (const auto i = operation.receive_forward) add(receives, activation(0, *i), before);
  if (const auto i = operation.receive_backward) add(receives, activation_gradient(layers(), *i), behind);
  EGT_TRY(outside([&] { return ranks.pipeline.exchange(sends, receives, *stream); }));
  if (const auto i = operation.receive_forward) {
    micro_batch = *i;
    EGT_TRY(digest_received({TensorKind::activation, -1}, activation(0, *i)));
  }
  if (const auto i = operation.receive_backward) {
    micro_batch = *i;
    EGT_TRY(digest_received({TensorKind::input_product, static_cast<int>(layers())},
                            activation_gradient(layers(), *i)));
  }
  return {};
}

/// A product of a part of the inputs, or of the gradient of a part of the outputs, is a part of the sum.
Status SplitMlp::Impl::after_product(const Gemm& gemm, const PassTensor& tensor) {
  const LayerSplit split = part.split(static_cast<std::size_t>(tensor.layer));
  const bool is_partial = (tensor.kind == TensorKind::product && split == LayerSplit::by_inputs) ||
                          (tensor.kind == TensorKind::input_product && split == LayerSplit::by_outputs);
  if (!is_partial) return {};
  EGT_TRY(sum_over_tensor(gemm.d));
  return digest_received(tensor, gemm.d);
}

Status SplitMlp::Impl::sum_over_tensor(MatrixView matrix) {
  return outside([&] {
    return ranks.tensor.all_reduce(matrix.data, static_cast<std::size_t>(matrix.count()), matrix.type,
                                   *stream);
  });
}

Status SplitMlp::Impl::sums_of(const PipelineOperation& operation) {
  const bool forward = operation.kind == PipelineOperation::Kind::forward;
  for (std::size_t l = 0; l < layers(); ++l) {
    if (forward && part.split(l) == LayerSplit::by_inputs)
      EGT_TRY(sum_over_tensor(activation(l + 1, operation.micro_batch)));
    if (!forward && part.split(l) == LayerSplit::by_outputs && (l > 0 || !part.has_input()))
      EGT_TRY(sum_over_tensor(activation_gradient(l, operation.micro_batch)));
  }
  return {};
}

Status SplitMlp::Impl::sum_over_data() {
  if (ranks.data.size() < 2) return {};
  const VectorView all = workspace.gradient_range(0, layout.size());
  EGT_TRY(outside([&] {
    return ranks.data.all_reduce(all.data, static_cast<std::size_t>(all.count), all.type, *stream);
  }));
  return digest({TensorKind::weight_gradient, 0},
                {static_cast<std::uint32_t*>(all.data), static_cast<std::uint64_t>(all.count)}, true);
}

Status SplitMlp::Impl::digest(const PassTensor& tensor, WordsView words, bool is_of_peers) {
  if (!next_digest) return {};
  tensors.push_back({{tensor.kind, tensor.layer + part.layers.first}, micro_batch, is_of_peers});
  return device.digest(words, next_digest++, *stream);
}

/// The rest of a last word is made 0, as in what this rank makes.
Status SplitMlp::Impl::digest_received(const PassTensor& tensor, MatrixView matrix) {
  constexpr std::size_t word = sizeof(std::uint32_t);
  if (!next_digest) return {};
  const std::size_t bytes = static_cast<std::size_t>(matrix.count()) * size_of(matrix.type);
  if (bytes % word != 0)
    EGT_TRY(device.set_zero(static_cast<char*>(matrix.data) + bytes, word - bytes % word, *stream));
  return digest(tensor, {static_cast<std::uint32_t*>(matrix.data), (bytes + word - 1) / word}, true);
}

Status SplitMlp::enqueue_step(std::int64_t step) {
  Impl& m = *impl_;
  const ProfilerRange range("step of a part");
  m.measured = &m.marks_of(step);
  m.measured->used = 0;
  m.sequence = static_cast<std::uint64_t>(step);
  m.rows = 0;
  m.losses = m.measured->losses;
  m.computes = true;
  EGT_TRY(m.device.record(*m.measured->begin, *m.stream));
  EGT_TRY(m.run());
  EGT_TRY(enqueue_update());
  EGT_TRY(m.device.copy(m.measured->told, m.losses,
                        static_cast<std::size_t>(m.config.micro_batches) * sizeof(float), *m.stream));
  return m.device.record(*std::exchange(m.measured, nullptr)->end, *m.stream);
}

Status SplitMlp::enqueue_communication(std::int64_t step) {
  Impl& m = *impl_;
  m.measured = &m.marks_of(step);
  m.measured->used = 0;
  m.rows = 0;
  m.computes = false;
  EGT_TRY(m.device.record(*m.measured->begin, *m.stream));
  EGT_TRY(m.run());
  return m.device.record(*std::exchange(m.measured, nullptr)->end, *m.stream);
}

Status SplitMlp::enqueue_pass(std::uint64_t sequence, std::int64_t rows, Digest* digests) {
  Impl& m = *impl_;
  m.sequence = sequence;
  m.rows = rows;
  m.losses = m.losses_memory.as<float>() + m.marks.size() * static_cast<std::size_t>(m.config.micro_batches);
  m.computes = true;
  m.next_digest = digests;
  m.tensors.clear();
  const Status status = m.run();
  m.next_digest = nullptr;
  return status;
}

Status SplitMlp::enqueue_update() {
  Impl& m = *impl_;
  m.trained.step_made();
  for (const GradientBucket& bucket : m.layout.buckets())
    EGT_TRY(m.trained.update(bucket, m.workspace.gradient_range(bucket.offset, bucket.count), m.precision,
                             *m.stream));
  return {};
}

/// Those of a pass, what may be summed or received behind them, and the sum over replicas.
std::size_t SplitMlp::most_tensors() const {
  const Impl& m = *impl_;
  const std::size_t a_pass = mlp::Pass::tensors(m.layout, m.local).size() + 2 * m.layers() + 4;
  return static_cast<std::size_t>(m.config.micro_batches) * a_pass + 1;
}

const std::vector<SplitTensor>& SplitMlp::tensors() const {
  return impl_->tensors;
}

Result<SplitStep> SplitMlp::retire_step(std::int64_t step, double timeout_seconds) {
  Impl& m = *impl_;
  const Impl::Marks& marks = m.marks_of(step);
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        for (Communicator* ranks : {&m.ranks.pipeline, &m.ranks.tensor, &m.ranks.data})
          EGT_TRY(ranks->check());
        return m.device.done(*marks.end);
      },
      {.seconds = timeout_seconds, .what = "the end of a step of a divided network"}));
  SplitStep result;
  EGT_TRY_ASSIGN(result.step_ms, m.device.elapsed_ms(*marks.begin, *marks.end));
  if (m.last_retired == step - 1) {
    EGT_TRY_ASSIGN(result.since_last_ms, m.device.elapsed_ms(*m.marks_of(step - 1).end, *marks.end));
  }
  m.last_retired = step;
  for (std::size_t i = 0; i < marks.used; ++i) {
    EGT_TRY_ASSIGN(const double ms, m.device.elapsed_ms(*marks.outside[i][0], *marks.outside[i][1]));
    result.outside_ms += ms;
  }
  if (!m.computes || !m.part.has_loss()) return result;
  const NeuronRange own = egt::part_of(m.config.network.batch.global, m.config.plan.data, m.place.data);
  double sum = 0;
  for (int i = 0; i < m.config.micro_batches; ++i) sum += static_cast<double>(marks.told[i]);
  result.loss = sum / static_cast<double>(own.count * m.part.neurons.back());
  return result;
}

Result<double> SplitMlp::difference_from_whole(std::uint64_t sequence, std::int64_t rows,
                                               double timeout_seconds) {
  Impl& m = *impl_;
  const auto samples = std::int64_t{m.config.plan.data} * m.config.micro_batches * rows;
  WholeNetwork whole(m.device, m.config.network, samples);
  EGT_TRY(whole.enqueue_pass(sequence, *m.stream));
  return whole.difference(m.part, m.layout, gradient(), *m.stream, timeout_seconds);
}

/// Partial sums add up in another order, which changes values by their precision's rounding u, and turns a
/// ReLU over where it is as near to 0: a share of about u of them, whose gradients are then whole or nothing.
/// So the norm of the difference is about sqrt(u) of the whole, in each layer anew. A part that is missing is
/// a difference of about 1.
double SplitMlp::allowed_difference() const {
  const Precision precision = impl_->precision;
  const double u = precision == Precision::fp32 ? 0x1p-24 : precision == Precision::tf32 ? 0x1p-11 : 0x1p-9;
  return std::min(0.5, 4 * std::sqrt(u * static_cast<double>(impl_->part.all_layers())));
}

std::vector<StateTensor> SplitMlp::state_tensors() const {
  return impl_->trained.tensors();
}

WordsView SplitMlp::state(const StateTensor& tensor) const {
  return impl_->trained.words(tensor);
}

void SplitMlp::set_tampering(std::vector<Tampering> tampering) {
  impl_->pass->set_tampering(std::move(tampering));
}

const ParameterLayout& SplitMlp::layout() const {
  return impl_->layout;
}

VectorView SplitMlp::gradient() const {
  return impl_->workspace.gradient_range(0, impl_->layout.size());
}

const NetworkPart& SplitMlp::part() const {
  return impl_->part;
}

Stream& SplitMlp::stream() {
  return *impl_->stream;
}

NeuronRange SplitMlp::samples(int i) const {
  return impl_->samples(i);
}

std::uint64_t SplitMlp::state_bytes() const {
  return impl_->trained.bytes() + impl_->workspace.gradient.bytes();
}

}  // namespace egt
