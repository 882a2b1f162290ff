#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "workload/bench/bench_job.hpp"
#include "workload/bench/parallel/learning_check.hpp"
#include "workload/common/findings.hpp"
#include "workload/common/value_exchange.hpp"
#include "workload/train/slow_injection.hpp"

namespace egt {
namespace {

/// Ratio between consecutive sizes of the all-reduces that are timed without concurrent work. Blocks of
/// several all-reduces are timed together.
constexpr std::int64_t sum_divisor = 64;
constexpr std::size_t sum_blocks = 15, max_sums_a_block = 8, sum_block_bytes = std::size_t{64} << 20;

class MlpJob final : public BenchJob {
 public:
  MlpJob(Environment& environment, Communicator& communicator, const MlpJobConfig& config,
         const std::optional<Injection>& slow, FaultReporter& reporter)
      : environment_(environment),
        device_(environment.device),
        communicator_(communicator),
        config_(config),
        slow_(slow),
        reporter_(reporter),
        line_(environment.board.line("main")) {}

  Status prepare();

  Result<Answers> answers() override;
  Result<BurstTimes> burst(int chunks, std::int64_t per_chunk) override;
  std::int64_t missing() const override {
    return std::max<std::int64_t>(0, config_.compared_steps - retired_);
  }
  Result<JobReport> check() override;
  Status give_up(double seconds) override;

 private:
  Status enqueue();
  Status wait_for_pass();
  Result<StepResult> retire();
  Result<Answers> replay();
  Status check_replay();
  Status check_replicas();
  Status measure_sums();
  Result<double> sum_ms(const VectorView& part);

  Environment& environment_;
  Device& device_;
  Communicator& communicator_;
  const MlpJobConfig config_;
  const std::optional<Injection> slow_;
  FaultReporter& reporter_;
  ProgressBoard::Line& line_;
  std::int64_t next_ = 0, retired_ = 0;
  Answers known_;  ///< digests of the known-answer pass, one per tensor
  LearningCheck losses_;
  JobReport report_;
  Buffer digests_, pinned_;
  std::unique_ptr<Event> done_, sums_begin_, sums_end_;
  // Declared last: the trainer's streams are destroyed before the memory that their work uses.
  std::optional<SlowInjection> slowness_;
  std::optional<DigestExchange> replicas_;
  std::unique_ptr<MlpTrainer> trainer_;
};

Status MlpJob::prepare() {
  const TrainOptions& train = config_.train;
  const double rate = train.learning_rate.value_or(
      default_learning_rate(train.layers, train.optimizer, config_.batch.global));
  const ElementType type =
      config_.compression.type == ElementType::bf16 ? ElementType::bf16 : train.gradient_type;
  EGT_TRY_ASSIGN(trainer_, MlpTrainer::create(device_, communicator_,
                                              {.neurons = train.layers,
                                               .batch = config_.batch,
                                               .precisions = {config_.precision},
                                               .optimizer = train.optimizer,
                                               .learning_rate = rate,
                                               .gradient_type = type,
                                               .top_k_share = config_.compression.top_k_share,
                                               .extreme_iterations = train.extreme_iterations,
                                               .seed = environment_.seed}));
  slowness_.emplace(environment_, *trainer_, slow_);
  const std::size_t bytes = trainer_->replay_tensors().size() * sizeof(Digest);
  EGT_TRY_ASSIGN(digests_, device_.allocate(bytes));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(bytes));
  EGT_TRY_ASSIGN(done_, device_.create_event(EventUse::order));
  if (communicator_.size() < 2) return {};
  for (auto* event : {&sums_begin_, &sums_end_}) {
    EGT_TRY_ASSIGN(*event, device_.create_event(EventUse::timing));
  }
  replicas_.emplace(device_, communicator_, trainer_->communication_stream(),
                    &environment_.board.line("main"));
  return replicas_->prepare(trainer_->state_tensors().size());
}

Result<Answers> MlpJob::replay() {
  EGT_TRY(trainer_->enqueue_replay(config_.precision, digests_.as<Digest>()));
  Stream& stream = trainer_->communication_stream();
  EGT_TRY(device_.copy(pinned_.data(), digests_.data(), digests_.bytes(), stream));
  EGT_TRY(device_.record(*done_, stream));
  EGT_TRY(wait_with_peers(device_, environment_.communicator, *done_, environment_.peer_timeout_seconds,
                          "a known-answer pass"));
  const Digest* const digests = pinned_.as<Digest>();
  return Answers(digests, digests + digests_.bytes() / sizeof(Digest));
}

/// One digest of all tensors, for the comparison of ranks. Each rank's own replay locates a difference.
Result<Answers> MlpJob::answers() {
  EGT_TRY_ASSIGN(known_, replay());
  Digest all;
  for (std::size_t i = 0; i < known_.size(); ++i)
    for (const std::uint64_t half : {known_[i].a, known_[i].b})
      for (const int shift : {0, 32})
        add_to_digest(all.a, all.b, 4 * i, static_cast<std::uint32_t>(mix64(half + i) >> shift));
  return Answers{all};
}

Status MlpJob::enqueue() {
  EGT_TRY(slowness_->before_step(next_));
  return trainer_->enqueue_step(next_++, {}, false);
}

/// While this device's own pass is running, it cannot be waiting for peers. This separates a stuck device
/// from its peers.
Status MlpJob::wait_for_pass() {
  line_.go_on("bench: pass");
  EGT_TRY(trainer_->wait_for_pass(retired_, environment_.peer_timeout_seconds));
  if (communicator_.size() > 1) line_.wait_for_peers("bench: sums");
  return {};
}

Result<StepResult> MlpJob::retire() {
  EGT_TRY(wait_for_pass());
  EGT_TRY_ASSIGN(const StepResult result, trainer_->retire_step(retired_, environment_.peer_timeout_seconds));
  EGT_TRY(slowness_->learn(retired_, result));
  losses_.add(result.loss);
  if (retired_ + 1 == config_.compared_steps) report_.figures.loss = losses_.recent();
  ++retired_;
  return result;
}

/// The first step is not timed, because its time would include the host's work before it.
Result<BurstTimes> MlpJob::burst(int chunks, std::int64_t per_chunk) {
  const std::int64_t first = next_ + 1, end = first + chunks * per_chunk;
  BurstTimes times{.chunk_ms = std::vector<double>(static_cast<std::size_t>(chunks), 0.0)};
  while (retired_ < end) {
    if (next_ < end) EGT_TRY(enqueue());
    if (next_ < end && next_ - retired_ < MlpTrainer::depth) continue;
    const std::int64_t step = retired_;
    EGT_TRY_ASSIGN(const StepResult result, retire());
    if (step < first) continue;
    if (!result.step_ms) return Status(StatusCode::internal, "the trainer reports no step time");
    times.chunk_ms[static_cast<std::size_t>((step - first) / per_chunk)] += *result.step_ms;
    times.step_ms.push_back(*result.step_ms);
    times.busy_ms += result.compute_ms.value_or(0);
  }
  return times;
}

Result<JobReport> MlpJob::check() {
  EGT_TRY(check_replay());
  EGT_TRY(check_replicas());
  if (report_.failure.empty()) report_.failure = losses_.failure(config_.compression.top_k_share == 0);
  EGT_TRY(measure_sums());
  if (config_.compared_steps > 0) report_.figures.sent_bytes = trainer_->sent_bytes();
  return std::exchange(report_, {});
}

/// Repeats the known-answer pass with its initial batch and weights: the results must have the same bits.
Status MlpJob::check_replay() {
  EGT_TRY_ASSIGN(const Answers again, replay());
  const std::vector<PassTensor> tensors = trainer_->replay_tensors();
  report_.work.replays += 2;
  const auto differ = std::mismatch(again.begin(), again.end(), known_.begin());
  if (differ.first == again.end()) return {};
  const auto tensor = static_cast<std::size_t>(differ.first - again.begin());
  Fault fault = fault_of(environment_, "replay", "replay digest", "bench", next_);
  fault.where = fmt::format("{}, {} replay", to_string(tensors[tensor]), to_string(config_.precision));
  show_difference(fault, *differ.second, *differ.first);
  environment_.records.emit(fault);
  report_.failure = fmt::format("rank {}: a known-answer pass gave other bits in {}", environment_.place.rank,
                                to_string(tensors[tensor]));
  return {};
}

Status MlpJob::check_replicas() {
  if (!replicas_) return {};
  const std::vector<StateTensor> states = trainer_->state_tensors();
  EGT_TRY(trainer_->enqueue_state_digests(replicas_->own()));
  EGT_TRY(replicas_->enqueue(states.size()));
  EGT_TRY_ASSIGN(const auto answers, replicas_->collect(environment_.peer_timeout_seconds));
  ++report_.work.replica_checks;
  // The group consists of the first ranks of the run.
  const auto dissents =
      vote(answers, std::vector<int>(answers.size(), 0), std::vector<Answers>(answers.size()));
  for (const Mismatch& dissent : dissents) {
    Fault fault = fault_of(environment_, "replica", "state digest", "bench", next_);
    fault.where = to_string(states[dissent.question]);
    show_difference(fault, dissent.expected, dissent.actual);
    if (report_.failure.empty())
      report_.failure = fmt::format("{} differs between ranks after {} steps", fault.where, next_);
    reporter_.report(std::move(fault), dissent);
  }
  return {};
}

/// Times all-reduces without concurrent work, in the memory of the gradients. This memory is free, because
/// the last update finished before the state digests. All ranks use the same sizes.
Status MlpJob::measure_sums() {
  if (communicator_.size() < 2) return {};
  line_.wait_for_peers("bench: all-reduce by size");
  VectorView gradient = trainer_->gradient();
  EGT_TRY(device_.set_zero(gradient.data, gradient.bytes(), trainer_->communication_stream()));
  for (AllReduceTime& sum : report_.figures.sums) {
    EGT_TRY_ASSIGN(const double ms, sum_ms(gradient));
    sum = {static_cast<double>(gradient.bytes()), ms};
    gradient.count = std::max<std::int64_t>(1, gradient.count / sum_divisor);
  }
  return {};
}

/// Median over several blocks, after a first all-reduce that aligns the ranks.
Result<double> MlpJob::sum_ms(const VectorView& part) {
  Stream& stream = trainer_->communication_stream();
  const auto repeats = std::clamp<std::size_t>(sum_block_bytes / part.bytes(), 1, max_sums_a_block);
  const auto sum = [&] {
    return communicator_.all_reduce(part.data, static_cast<std::size_t>(part.count), part.type, stream);
  };
  EGT_TRY(sum());
  std::vector<double> blocks;
  while (blocks.size() < sum_blocks) {
    EGT_TRY(device_.record(*sums_begin_, stream));
    for (std::size_t i = 0; i < repeats; ++i) EGT_TRY(sum());
    EGT_TRY(device_.record(*sums_end_, stream));
    EGT_TRY(wait_with_peers(device_, environment_.communicator, *sums_end_, environment_.peer_timeout_seconds,
                            "all-reduces alone"));
    EGT_TRY_ASSIGN(const double ms, device_.elapsed_ms(*sums_begin_, *sums_end_));
    blocks.push_back(ms / static_cast<double>(repeats));
  }
  return median_of(std::move(blocks));
}

Status MlpJob::give_up(double seconds) {
  return trainer_->give_up_steps(seconds);
}

}  // namespace

Result<std::unique_ptr<BenchJob>> make_mlp_job(Environment& environment, Communicator& communicator,
                                               const MlpJobConfig& config,
                                               const std::optional<Injection>& slow,
                                               FaultReporter& reporter) {
  auto job = std::make_unique<MlpJob>(environment, communicator, config, slow, reporter);
  EGT_TRY(job->prepare());
  return std::unique_ptr<BenchJob>(std::move(job));
}

}  // namespace egt
