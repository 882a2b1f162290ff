#include "workload/bench/parallel/split_job.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/histogram.hpp"
#include "egt/workload/injector.hpp"
#include "model/digest_exchange.hpp"
#include "workload/bench/parallel/fused_input.hpp"
#include "workload/bench/parallel/learning_check.hpp"
#include "workload/common/findings.hpp"
#include "workload/common/value_exchange.hpp"

namespace egt {
namespace {

// Random sequences. A step uses its number as sequence.
constexpr std::int64_t repeated_sequence = std::int64_t{1} << 62, compared_sequence = repeated_sequence + 1;
constexpr std::int64_t compared_rows = 2;  ///< limit of rows per micro-batch
constexpr int communication_steps = 7;     ///< steps timed without concurrent work

/// Outcome of a rank's repetition, sent as a word of a digest.
enum Verdict : std::uint64_t { same, own_differs, only_peers_differ };

class SplitJob final : public BenchJob {
 public:
  SplitJob(Environment& environment, BenchGroups& groups, const SplitJobConfig& config,
           FaultReporter& reporter)
      : environment_(environment),
        device_(environment.device),
        groups_(groups),
        config_(config),
        reporter_(reporter),
        line_(environment.board.line("main")) {}

  Status prepare();

  Result<Answers> answers() override;
  Result<BurstTimes> burst(int chunks, std::int64_t per_chunk) override;
  Result<JobReport> check() override;
  Status give_up(double seconds) override { return device_.forget_failure(mlp_->stream(), seconds); }

 private:
  Result<Answers> repeat();
  void take_injections();
  std::optional<TensorFault> tampering_of(const Injection& injection) const;
  Result<SplitStep> retire();
  Status check_replicas();
  Status measure_communication();
  Status check_repetition();
  Result<Verdict> judge_own(const Answers& again);
  Status blame(Verdict own);
  /// Each rank's verdict, with a value of that rank.
  Result<std::vector<std::pair<Verdict, double>>> verdicts(Verdict own, double figure);
  Status compare_with_one_device();
  /// Relative difference from gradients of the whole network on this device; std::nullopt without memory.
  Result<std::optional<double>> difference_from_one_device();
  void fail(std::string what) {
    if (report_.failure.empty()) report_.failure = std::move(what);
  }
  const ParallelPlan& plan() const { return config_.split.plan; }

  Environment& environment_;
  Device& device_;
  BenchGroups& groups_;
  const SplitJobConfig config_;
  FaultReporter& reporter_;
  ProgressBoard::Line& line_;
  std::int64_t next_ = 0, retired_ = 0;
  double step_ms_ = 0, outside_ms_ = 0;  // of all measured steps
  Answers known_;                        // digests of the repetition, one per tensor
  std::vector<SplitTensor> tensors_;     // the tensors of these digests, except the state at the end
  LearningCheck losses_;
  std::vector<std::pair<StateTensor, Flip>> strikes_;  // injected flips of weights, after the update
  JobReport report_;
  Buffer digests_, pinned_;
  std::unique_ptr<Event> done_;
  // Declared last: streams are destroyed before the memory that their work uses.
  std::optional<DigestExchange> verdicts_, replicas_;
  std::unique_ptr<FusedInput> fused_;
  std::unique_ptr<SplitMlp> mlp_;
};

Status SplitJob::prepare() {
  const BenchGroups::Split& own = groups_.of_plan(plan());
  SplitConfig split = config_.split;
  if (config_.fuses) {
    EGT_TRY_ASSIGN(fused_, FusedInput::create(device_, environment_.seed, split.network));
    split.make_input = [this](std::uint64_t sequence, std::int64_t first, MatrixView input, Stream& stream) {
      return fused_->make(sequence, first, input, stream);
    };
  }
  EGT_TRY_ASSIGN(mlp_, SplitMlp::create(device_, {*own.data, *own.tensor, *own.pipeline}, split));
  const std::size_t bytes = (mlp_->max_tensors() + mlp_->state_tensors().size()) * sizeof(Digest);
  EGT_TRY_ASSIGN(digests_, device_.allocate(bytes));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(bytes));
  EGT_TRY_ASSIGN(done_, device_.create_event(EventUse::order));
  Communicator& all = plan().ranks() == 1 ? groups_.alone() : groups_.of_first(plan().ranks());
  verdicts_.emplace(device_, all, mlp_->stream(), &line_);
  EGT_TRY(verdicts_->prepare(1));
  if (plan().data < 2) return {};
  replicas_.emplace(device_, *own.data, mlp_->stream(), &line_);
  return replicas_->prepare(mlp_->state_tensors().size());
}

/// Repeats the first step's batch from the initial weights. Digests each rank's outputs, its received data
/// and the resulting state.
Result<Answers> SplitJob::repeat() {
  EGT_TRY(mlp_->reset());
  EGT_TRY(mlp_->enqueue_pass(repeated_sequence, 0, digests_.as<Digest>()));
  EGT_TRY(mlp_->enqueue_update());
  for (const auto& [tensor, flip] : strikes_)
    EGT_TRY(device_.flip(mlp_->state(tensor), flip, mlp_->stream()));
  std::size_t count = mlp_->tensors().size();
  for (const StateTensor& tensor : mlp_->state_tensors())
    EGT_TRY(device_.digest(mlp_->state(tensor), digests_.as<Digest>() + count++, mlp_->stream()));
  EGT_TRY(device_.copy(pinned_.data(), digests_.data(), count * sizeof(Digest), mlp_->stream()));
  EGT_TRY(device_.record(*done_, mlp_->stream()));
  line_.wait_for_peers("bench: known-answer pass");
  EGT_TRY(wait_with_peers(device_, environment_.communicator, *done_, environment_.peer_timeout_seconds,
                          "a known-answer pass"));
  line_.go_on("bench: known-answer pass");
  return Answers(pinned_.as<Digest>(), pinned_.as<Digest>() + count);
}

/// Each rank has its own part, so its digests are compared with its own repetition only.
Result<Answers> SplitJob::answers() {
  EGT_TRY_ASSIGN(known_, repeat());
  tensors_ = mlp_->tensors();
  take_injections();
  return Answers{known_.back()};
}

void SplitJob::take_injections() {
  using enum InjectionKind;
  std::vector<TensorFault> tampered;
  Injector& injector = environment_.injector;
  for (const InjectionKind kind : {gradient, activation, gemm})
    while (const auto injection = injector.take(kind, config_.trial)) {
      const auto tensor_faults = tampering_of(*injection);
      if (!tensor_faults)
        continue;  // a tensor smaller than a word: the fault does not occur, which is reported
      tampered.push_back(*tensor_faults);
      PassTensor whole = tensor_faults->tensor;
      whole.layer += mlp_->part().layers.first;
      injector.report(*injection, config_.trial, tensor_faults->flip,
                      fmt::format("{}, in every pass of trial {}", to_string(whole), config_.trial));
    }
  while (const auto injection = injector.take(weight, config_.trial)) {
    const int layer = choose_layer(*injection, mlp_->part().layers.count(), environment_.seed);
    const LinearLayer& linear = mlp_->layout().layers()[static_cast<std::size_t>(layer)];
    const Flip flip = choose_flip(*injection, static_cast<std::uint64_t>(linear.inputs * linear.outputs),
                                  environment_.seed);
    strikes_.push_back({{StateKind::weights, layer}, flip});
    injector.report(
        *injection, config_.trial, flip,
        fmt::format("weights of layer {}, in the repetition", layer + mlp_->part().layers.first + 1));
  }
  mlp_->set_tensor_faults(std::move(tampered));
}

/// Chooses a word that exists in every precision and micro-batch of the tensor.
std::optional<TensorFault> SplitJob::tampering_of(const Injection& injection) const {
  const NetworkPart& part = mlp_->part();
  TensorFault tensor_faults;
  const int layer = choose_layer(injection, part.layers.count(), environment_.seed);
  const bool is_last = part.has_loss() && layer + 1 == part.layers.count();
  tensor_faults.tensor = {injection.kind == InjectionKind::gradient ? TensorKind::weight_gradient
                          : injection.kind == InjectionKind::gemm   ? TensorKind::product
                          : is_last                                 ? TensorKind::output_gradient
                                                                    : TensorKind::activation,
                          layer};
  std::int64_t rows = mlp_->samples(0).count;
  for (int i = 1; i < config_.split.micro_batches; ++i) rows = std::min(rows, mlp_->samples(i).count);
  const LinearLayer& linear = mlp_->layout().layers()[static_cast<std::size_t>(layer)];
  const bool is_gradient = injection.kind == InjectionKind::gradient;
  const auto words = static_cast<std::uint64_t>(linear.outputs * (is_gradient ? linear.inputs : rows)) / 2;
  if (words == 0) return std::nullopt;
  tensor_faults.flip = choose_flip(injection, words, environment_.seed);
  return tensor_faults;
}

Result<SplitStep> SplitJob::retire() {
  line_.wait_for_peers("bench: step of a part");
  EGT_TRY_ASSIGN(const SplitStep step, mlp_->retire_step(retired_, environment_.peer_timeout_seconds));
  line_.go_on("bench: step of a part");
  ++retired_;
  return step;
}

/// The first step is not timed, because its time would include the host's work before it.
Result<BurstTimes> SplitJob::burst(int chunks, std::int64_t per_chunk) {
  const std::int64_t first = next_ + 1, end = first + chunks * per_chunk;
  BurstTimes times{.chunk_ms = std::vector<double>(static_cast<std::size_t>(chunks), 0.0)};
  while (retired_ < end) {
    if (next_ < end) EGT_TRY(mlp_->enqueue_step(next_++));
    if (next_ < end && next_ - retired_ < SplitMlp::depth) continue;
    EGT_TRY_ASSIGN(const SplitStep step, retire());
    if (step.loss) losses_.add(*step.loss);
    if (retired_ <= first) continue;
    const double step_ms = step.since_last_ms.value_or(step.step_ms);
    times.chunk_ms[static_cast<std::size_t>((retired_ - 1 - first) / per_chunk)] += step_ms;
    times.step_ms.push_back(step_ms);
    times.busy_ms += step.step_ms - step.outside_ms;
    step_ms_ += step_ms;
    outside_ms_ += step.outside_ms;
  }
  return times;
}

Result<JobReport> SplitJob::check() {
  fail(losses_.failure());
  report_.figures.outside_share = outside_ms_ / step_ms_;
  EGT_TRY(check_replicas());
  EGT_TRY(measure_communication());
  EGT_TRY(check_repetition());
  EGT_TRY(compare_with_one_device());
  return std::exchange(report_, {});
}

Status SplitJob::check_replicas() {
  if (!replicas_) return {};
  const std::vector<StateTensor> states = mlp_->state_tensors();
  for (std::size_t i = 0; i < states.size(); ++i)
    EGT_TRY(device_.digest(mlp_->state(states[i]), replicas_->own() + i, mlp_->stream()));
  EGT_TRY(replicas_->enqueue(states.size()));
  EGT_TRY_ASSIGN(const auto answers, replicas_->collect(environment_.peer_timeout_seconds));
  ++report_.work.replica_checks;
  const auto rank_in_all = [&](int replica) {
    ParallelPlace place = place_of(plan(), environment_.place.rank);
    place.data = replica;
    return rank_of(plan(), place);
  };
  for (Mismatch dissent : vote(answers)) {
    if (dissent.rank >= 0) dissent.rank = rank_in_all(dissent.rank);
    for (int& suspect : dissent.suspects) suspect = rank_in_all(suspect);
    Fault fault = fault_of(environment_, "replica", "state digest", "bench", next_);
    StateTensor state = states[dissent.question];
    state.layer += mlp_->part().layers.first;
    fault.where = to_string(state);
    show_difference(fault, dissent.expected, dissent.actual);
    fail(fmt::format("{} differs between replicas after {} steps", fault.where, next_));
    reporter_.report(std::move(fault), dissent);
  }
  return {};
}

Status SplitJob::measure_communication() {
  std::vector<double> times;
  for (int i = 0; i < communication_steps; ++i) {
    EGT_TRY(mlp_->enqueue_step(next_++, false));
    EGT_TRY_ASSIGN(const SplitStep step, retire());
    times.push_back(step.step_ms);
  }
  report_.figures.communication_ms = median_of(std::move(times));
  return {};
}

Status SplitJob::check_repetition() {
  EGT_TRY_ASSIGN(const Answers again, repeat());
  report_.work.replays += 2;
  EGT_TRY_ASSIGN(const Verdict own, judge_own(again));
  return blame(own);
}

/// The first difference decides, because later tensors derive from it.
Result<Verdict> SplitJob::judge_own(const Answers& again) {
  if (again.size() != known_.size()) return Status(StatusCode::internal, "a repetition of other tensors");
  const auto differ = std::mismatch(again.begin(), again.end(), known_.begin());
  if (differ.first == again.end()) return same;
  const auto at = static_cast<std::size_t>(differ.first - again.begin());
  const bool is_state = at >= tensors_.size();
  StateTensor state;
  if (is_state) {
    state = mlp_->state_tensors()[at - tensors_.size()];
    state.layer += mlp_->part().layers.first;
  }
  const std::string tensor = is_state ? to_string(state) : to_string(tensors_[at].tensor);
  if (!is_state && tensors_[at].is_of_peers) {
    fail(fmt::format("rank {} got another {} than before", environment_.place.rank, tensor));
    return only_peers_differ;
  }
  Fault fault = fault_of(environment_, is_state ? "replica" : "replay",
                         is_state ? "state digest" : "replay digest", "bench", next_);
  fault.where = fmt::format("{}, {}, {} replay", tensor, to_string(plan()),
                            to_string(config_.split.network.precisions.front()));
  show_difference(fault, *differ.second, *differ.first);
  environment_.records.emit(fault);
  fail(fmt::format("rank {}: a known-answer pass gave other bits in {}", environment_.place.rank, tensor));
  return own_differs;
}

/// If ranks received different bits but no rank computed different ones, the path between ranks is at fault.
Status SplitJob::blame(Verdict own) {
  EGT_TRY_ASSIGN(const auto all, verdicts(own, 0));
  Mismatch dissent;
  dissent.blame = Blame::ambiguous;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].first == own_differs) return {};
    if (all[rank].first == only_peers_differ) dissent.suspects.push_back(static_cast<int>(rank));
  }
  if (dissent.suspects.empty()) return {};
  Fault fault = fault_of(environment_, "collective", "exchange digest", "bench", next_);
  fault.where = fmt::format("activations and gradients between ranks, {}", to_string(plan()));
  reporter_.report(std::move(fault), dissent);
  return {};
}

Result<std::vector<std::pair<Verdict, double>>> SplitJob::verdicts(Verdict own, double figure) {
  *pinned_.as<Digest>() = {own, std::bit_cast<std::uint64_t>(figure)};
  EGT_TRY(device_.copy(verdicts_->own(), pinned_.data(), sizeof(Digest), mlp_->stream()));
  EGT_TRY(verdicts_->enqueue(1));
  EGT_TRY_ASSIGN(const auto answers, verdicts_->collect(environment_.peer_timeout_seconds));
  std::vector<std::pair<Verdict, double>> all;
  for (const Answers& one : answers)
    all.emplace_back(static_cast<Verdict>(one.front().a), std::bit_cast<double>(one.front().b));
  return all;
}

/// Detects gradients that are wrong in the same way each time. The fault is on the ranks that computed them
/// or on those that sent their inputs.
Status SplitJob::compare_with_one_device() {
  EGT_TRY_ASSIGN(const std::optional<double> difference, difference_from_one_device());
  report_.figures.compared = difference ? 1 : 0;
  report_.work.outputs_verified += difference ? 1 : 0;
  const double allowed =
      allowed_difference(config_.split.network.precisions.front(), mlp_->part().all_layers());
  EGT_TRY_ASSIGN(const auto all, verdicts(difference > allowed ? own_differs : same, difference.value_or(0)));
  const int first_rank = environment_.place.rank - config_.split.rank;
  Mismatch dissent;
  dissent.blame = Blame::ambiguous;
  double most = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].first == same) continue;
    dissent.suspects.push_back(first_rank + static_cast<int>(rank));
    most = std::max(most, all[rank].second);
  }
  if (dissent.suspects.empty()) return {};
  const std::string what =
      fmt::format("{:.3g} of their norm from one device's, {:.3g} is rounding", most, allowed);
  fail(fmt::format("gradients of rank{} {} are {}", dissent.suspects.size() > 1 ? "s" : "",
                   fmt::join(dissent.suspects, ", "), what));
  if (plan().ranks() == 1) {  // no other rank took part, and none would report it
    dissent.rank = first_rank;
    dissent.blame = Blame::certain;
    dissent.suspects.clear();
  }
  Fault fault = fault_of(environment_, "output", "gradients of one device", "bench", next_);
  fault.where = fmt::format("gradients, {}: {}", to_string(plan()), what);
  reporter_.report(std::move(fault), dissent);
  return {};
}

/// Uses few samples, so that the whole network's activations need little memory.
Result<std::optional<double>> SplitJob::difference_from_one_device() {
  const SplitConfig& split = config_.split;
  mlp_->set_tensor_faults({});
  const std::int64_t rows =
      std::min(compared_rows, split.network.batch.global / plan().data / split.micro_batches);
  const std::uint64_t whole = state_bytes(split.network.neurons, split.network.precisions.front(),
                                          split.network.optimizer, split.network.gradient_type);
  if (config_.max_state_bytes && whole > *config_.max_state_bytes) return std::optional<double>();
  MlpConfig alone = split.network;
  alone.batch.local = rows * plan().data * split.micro_batches;
  auto trainer = MlpTrainer::create(device_, groups_.alone(), alone);
  EGT_TRY(mlp_->reset());
  EGT_TRY(mlp_->enqueue_pass(compared_sequence, rows, nullptr));
  line_.wait_for_peers("bench: gradients of one device");
  EGT_TRY(device_.record(*done_, mlp_->stream()));
  EGT_TRY(wait_with_peers(device_, environment_.communicator, *done_, environment_.peer_timeout_seconds,
                          "a pass of few samples"));
  line_.go_on("bench: gradients of one device");
  if (trainer.status().code() == StatusCode::out_of_memory) return std::optional<double>();
  EGT_TRY(trainer.status());
  EGT_TRY(trainer.value()->enqueue_step(compared_sequence, {}, false));
  EGT_TRY_ASSIGN(const double difference,
                 difference_from_whole(device_, *mlp_, *trainer.value(), environment_.peer_timeout_seconds));
  return std::optional(difference);
}

}  // namespace

Result<std::unique_ptr<BenchJob>> make_split_job(Environment& environment, BenchGroups& groups,
                                                 const SplitJobConfig& config, FaultReporter& reporter) {
  auto job = std::make_unique<SplitJob>(environment, groups, config, reporter);
  EGT_TRY(job->prepare());
  return std::unique_ptr<BenchJob>(std::move(job));
}

}  // namespace egt
