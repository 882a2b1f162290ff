#include "workload/train/training_steps.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace egt {

namespace {

constexpr InjectionKind pass_kinds[] = {InjectionKind::gradient, InjectionKind::activation,
                                        InjectionKind::gemm, InjectionKind::extreme,
                                        InjectionKind::all_reduce};

/// Gradients are added to a moment in each step, so a flip in its lowest bits would soon be rounded away.
std::uint32_t lasting_bit(std::uint32_t chosen) {
  constexpr int lowest = 19, count = 4;  // of the mantissa
  return 1u << (lowest + std::countr_zero(chosen) % count);
}

/// Exceeds the sum of all ranks' `finished` votes, which are 1 each.
constexpr float interrupted_weight = max_voters + 1;

float encode(StopVote vote) {
  return vote == StopVote::none ? 0.0f : vote == StopVote::finished ? 1.0f : interrupted_weight;
}

std::string place_of(const TensorFault& tensor_faults, Lasting lasting) {
  const TensorKind kind = tensor_faults.tensor.kind;
  const std::string turn =
      kind == TensorKind::extreme ? fmt::format(", turn {}", tensor_faults.turn + 1) : std::string();
  const bool is_sum = kind == TensorKind::sent_terms || kind == TensorKind::received_sum;
  const char* const each = is_sum ? "step" : "pass";
  const std::string when = lasting == Lasting::always  ? fmt::format("in every {}", each)
                           : lasting == Lasting::check ? fmt::format("in every {} up to the next check", each)
                           : is_sum                    ? "in this step"
                           : tensor_faults.of == StepPass::first ? "in the first pass of this step"
                                                                 : "in the second pass of this step";
  return fmt::format("{}{}, {}", to_string(tensor_faults.tensor), turn, when);
}

}  // namespace

std::pair<std::size_t, GradientPiece> TrainingInjections::first_piece(int layer) const {
  const auto& buckets = trainer_.layout().buckets();
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket)
    for (const GradientPiece& piece : buckets[bucket].pieces)
      if (piece.layer == layer && piece.first_row == 0) return {bucket, piece};
  return {};
}

/// An all-reduce fault targets the bucket with the layer's first rows.
std::optional<TensorFault> TrainingInjections::tampering_of(const Injection& injection) const {
  constexpr std::uint32_t top_exponent_bit = 1u << 30;
  const bool is_sum = injection.kind == InjectionKind::all_reduce;
  const bool is_chain = injection.kind == InjectionKind::extreme;
  const int layer = choose_layer(injection, layers() - (is_chain ? 1 : 0), environment_.seed);
  const LinearLayer& linear = trainer_.layout().layers()[static_cast<std::size_t>(layer)];
  const auto [bucket, piece] = first_piece(layer);
  const std::int64_t samples = batch_.global / environment_.place.size;
  TensorFault fault;
  TensorKind& kind = fault.tensor.kind;
  fault.tensor.layer = layer;
  std::int64_t elements = samples * linear.outputs;
  if (injection.kind == InjectionKind::gradient) {
    kind = TensorKind::weight_gradient;
    elements = piece.rows * linear.inputs;
  } else if (injection.kind == InjectionKind::gemm) {
    const bool is_backward = injection.step % 2 == 1 && layer > 0;
    kind = is_backward ? TensorKind::input_product : TensorKind::product;
    if (is_backward) elements = samples * linear.inputs;
  } else {
    kind = is_chain                ? TensorKind::extreme
           : layer + 1 == layers() ? TensorKind::output_gradient
                                   : TensorKind::activation;
  }
  auto words = static_cast<std::uint64_t>(elements) / 2;  // that the tensor has in every precision
  if (is_sum)
    words = static_cast<std::uint64_t>(trainer_.layout().buckets()[bucket].count) *
            size_of(options_.gradient_type) / sizeof(std::uint32_t);
  if (words == 0) return std::nullopt;
  Flip& flip = fault.flip;
  flip = choose_flip(injection, words, environment_.seed);
  if (is_sum) {
    fault.bucket = bucket;
    kind = flip.mask & top_exponent_bit ? TensorKind::sent_terms : TensorKind::received_sum;
  }
  if (is_chain) {  // its elements do not wrap around
    flip.count = std::min(flip.count, (words - 1 - flip.first) / flip.stride + 1);
    fault.turn = static_cast<int>(mix64(environment_.seed + static_cast<std::uint64_t>(injection.step)) %
                                  static_cast<std::uint64_t>(options_.extreme_iterations));
  }
  return fault;
}

/// Enqueues hours of transcendental iterations on the compute stream.
Status TrainingInjections::hang_device(std::int64_t step) {
  const auto of_device = [](const Injection& hang) { return hang.layer.has_value(); };
  const auto injection = environment_.injector.take(InjectionKind::hang, step, of_device);
  if (!injection) return {};
  constexpr int turns = std::numeric_limits<int>::max(), launches = 64;
  EGT_TRY_ASSIGN(unread_, environment_.device.allocate(sizeof(Digest)));
  const VectorView weights = trainer_.weights();
  const WordsView some{static_cast<std::uint32_t*>(weights.data), 1};
  for (int launch = 0; launch < launches; ++launch)
    EGT_TRY(
        environment_.device.sine_exponential(some, turns, unread_.as<Digest>(), trainer_.compute_stream()));
  environment_.injector.report(*injection, step, "the device's stream of passes");
  return {};
}

Status TrainingInjections::before_step(std::int64_t step) {
  EGT_TRY(hang_device(step));
  std::vector<TensorFault> once;
  for (const InjectionKind kind : pass_kinds)
    while (const auto injection = environment_.injector.take(kind, step)) {
      const Lasting lasting =
          injection->lasting.value_or(options_.covers_all() ? Lasting::once : Lasting::check);
      auto tensor_faults = tampering_of(*injection);
      if (!tensor_faults)
        continue;  // tensor smaller than a word: the fault is never applied, which is reported
      if (lasting == Lasting::once) {
        const std::uint64_t either = mix64(environment_.seed ^ static_cast<std::uint64_t>(injection->step));
        tensor_faults->of = options_.covers_all() && (either & 1) ? StepPass::second : StepPass::first;
        once.push_back(*tensor_faults);
      } else {
        tampered_.push_back({*tensor_faults, step, lasting});
      }
      environment_.injector.report(*injection, step, tensor_faults->flip, place_of(*tensor_faults, lasting));
    }
  put_in_force(step, std::move(once));
  return {};
}

void TrainingInjections::before_repeated_step(std::int64_t step) {
  put_in_force(step, {});
}

void TrainingInjections::put_in_force(std::int64_t step, std::vector<TensorFault> tensor_faults) {
  for (const Tampered& one : tampered_)
    if (one.since <= step) tensor_faults.push_back(one.tensor_faults);
  trainer_.set_tensor_faults(std::move(tensor_faults));
}

Status TrainingInjections::strike_states(std::int64_t step) {
  for (const InjectionKind kind : {InjectionKind::weight, InjectionKind::optimizer})
    while (const auto injection = environment_.injector.take(kind, step)) {
      const bool is_second = options_.optimizer == Optimizer::adam && injection->step % 2 == 1;
      const StateKind of = kind == InjectionKind::weight ? StateKind::weights
                           : is_second                   ? StateKind::second_moment
                                                         : StateKind::first_moment;
      const StateTensor tensor{of, choose_layer(*injection, layers(), environment_.seed)};
      const LinearLayer& linear = trainer_.layout().layers()[static_cast<std::size_t>(tensor.layer)];
      Flip flip = choose_flip(*injection, static_cast<std::uint64_t>(linear.inputs * linear.outputs),
                              environment_.seed);
      if (kind == InjectionKind::optimizer && !injection->mask) flip.mask = lasting_bit(flip.mask);
      EGT_TRY(trainer_.tamper_state(tensor, flip));
      environment_.injector.report(*injection, step, flip, to_string(tensor));
    }
  return {};
}

void TrainingInjections::end_passes() {
  std::erase_if(tampered_, [](const Tampered& one) { return one.lasting != Lasting::always; });
  put_in_force(std::numeric_limits<std::int64_t>::max(), {});
}

StopVote decode_votes(float sum) {
  return sum >= interrupted_weight ? StopVote::interrupted : sum > 0.5f ? StopVote::finished : StopVote::none;
}

TrainingSteps::TrainingSteps(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                             const BatchBalance& balance, std::unique_ptr<MlpTrainer> trainer)
    : place_(environment.place),
      options_(options),
      balance_(balance),
      slow_(environment, *trainer),
      trainer_(std::move(trainer)),
      injections_(environment, options, batch, *trainer_),
      votes_(static_cast<std::size_t>(MlpTrainer::depth) + 1) {}

Precision TrainingSteps::precision_of(std::int64_t step) const {
  const auto epoch = static_cast<std::size_t>(step / options_.epoch_steps);
  return options_.precisions[epoch % options_.precisions.size()];
}

std::vector<int> TrainingSteps::second_of(std::int64_t step) const {
  std::vector<int> of = ring_;
  for (int rank = 0; rank < static_cast<int>(of.size()); ++rank)
    if (int& next = of[static_cast<std::size_t>(rank)];
        balance_.share_of(step, next).local > balance_.max_samples(rank))
      next = rank;
  return of;
}

std::optional<BatchShare> TrainingSteps::second_share(std::int64_t step) const {
  const std::vector<int> of = second_of(step);
  if (of.empty()) return {};
  return balance_.share_of(step, of[static_cast<std::size_t>(place_.rank)]);
}

Status TrainingSteps::enqueue(const Step& step) {
  vote_of(step.index) = step.vote;
  last_ = step.index;
  EGT_TRY(injections_.before_step(step.index));
  EGT_TRY(slow_.before_step(step.index));
  return enqueue_step(step.index);
}

Status TrainingSteps::repeat(std::int64_t step) {
  injections_.before_repeated_step(step);
  return enqueue_step(step);
}

Status TrainingSteps::restore(int slot) {
  precision_.reset();
  return trainer_->restore_state(slot);
}

Status TrainingSteps::enqueue_step(std::int64_t step) {
  if (const Precision wanted = precision_of(step); wanted != precision_) {
    EGT_TRY(trainer_->set_precision(wanted));
    precision_ = wanted;
  }
  EGT_TRY(trainer_->set_shares(balance_.share_of(step, place_.rank), second_share(step)));
  const float vote = step + MlpTrainer::depth >= last_ ? encode(vote_of(step)) : 0;
  const bool measure = step == last_ && step % options_.epoch_steps == options_.epoch_steps / 2;
  return trainer_->enqueue_step(step, vote, measure);
}

}  // namespace egt
