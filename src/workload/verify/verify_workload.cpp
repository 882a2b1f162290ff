#include "workload/verify/verify_workload.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"

namespace egt {
namespace {

constexpr double cleanup_timeout_s = 30;
constexpr int max_cleanup_attempts = 3;  ///< per cleanup, because other processes may allocate meanwhile
constexpr std::int64_t before_the_first_round = -1;

enum Question : std::size_t { evaluation, similarity, sgd_step, adam_step };
constexpr const char* fault_kinds[] = {"evaluation", "similarity", "optimizer", "optimizer"};
constexpr const char* operations[] = {"the encodings of the known samples", "the products of all encodings",
                                      "a step of SGD", "a step of Adam"};

std::vector<Answers> to_question(const std::vector<Answers>& ranks, std::size_t question) {
  std::vector<Answers> one;
  for (const Answers& rank : ranks) one.push_back({rank[question]});
  return one;
}

bool names(const Mismatch& dissent, int rank) {
  const auto& suspects = dissent.suspects;
  return dissent.rank == rank || std::find(suspects.begin(), suspects.end(), rank) != suspects.end();
}

}  // namespace

VerifyWorkload::VerifyWorkload(Environment& environment, const ReadinessOptions& options,
                               std::function<Stream&()> communication_stream)
    : environment_(environment),
      options_(options),
      communication_stream_(std::move(communication_stream)),
      encoding_(environment.device, options_, environment.seed),
      optimizer_(environment.device, options_.updated, environment.seed),
      cleanup_(environment.device),
      reporter_(environment) {}

Status VerifyWorkload::prepare() {
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(stream_, device.create_stream(StreamPriority::normal));
  EGT_TRY_ASSIGN(done_, device.create_event(EventUse::order));
  EGT_TRY(encoding_.prepare(*stream_));
  EGT_TRY(optimizer_.prepare());
  EGT_TRY(cleanup_.prepare());
  exchange_ = std::make_unique<DigestExchange>(device, environment_.communicator, communication_stream_(),
                                               &environment_.board.line("main"));
  return exchange_->prepare(questions);
}

Status VerifyWorkload::start() {
  EGT_TRY_ASSIGN(groups_, exchange_->groups_of(environment_.device_model, environment_.peer_timeout_seconds));
  EGT_TRY(enqueue_round(before_the_first_round));
  return collect_round(true);
}

Status VerifyWorkload::enqueue(const Step& step) {
  last_step_ = step.index;
  const bool due = (step.index + 1) % options_.every == 0;
  return due && !under_way_ ? enqueue_round(step.index) : Status();
}

Status VerifyWorkload::retire(std::int64_t step, StepOutcome&) {
  return under_way_ == step ? collect_round(false) : Status();
}

Status VerifyWorkload::give_up_steps(double timeout_seconds) {
  return environment_.device.forget_failure(*stream_, timeout_seconds);
}

Status VerifyWorkload::resume(RestartInfo& restart) {
  under_way_.reset();
  last_step_ = restart.next_step - 1;
  return {};
}

Status VerifyWorkload::finish(const Shutdown& ending) {
  if (ending.hurry) return {};
  EGT_TRY(enqueue_round(last_step_));
  return collect_round(true);
}

// Rounds

Status VerifyWorkload::enqueue_round(std::int64_t step) {
  Device& device = environment_.device;
  Digest* const own = exchange_->own();
  EGT_TRY(encoding_.enqueue(own, *stream_));
  EGT_TRY(optimizer_.enqueue(own + EncodingCheck::answers, *stream_));
  EGT_TRY(device.record(*done_, *stream_));
  EGT_TRY(device.wait(communication_stream_(), *done_));
  under_way_ = step;
  return exchange_->enqueue(questions);
}

/// Allocating and freeing device memory blocks all other work, so it runs only while no step is in flight.
Status VerifyWorkload::collect_round(bool with_cleanup) {
  const std::int64_t step = *under_way_;
  EGT_TRY_ASSIGN(const auto answers, exchange_->collect(environment_.peer_timeout_seconds, step));
  for (std::size_t question = 0; question < questions; ++question) judge(question, answers);
  if (with_cleanup) EGT_TRY(clean_up(step));
  if (reporter_.own_found() || reporter_.own_suspected()) ++wrong_;
  reporter_.end_check();
  under_way_.reset();
  ++rounds_;
  return {};
}

std::optional<WrongAnswer> VerifyWorkload::host_finding(std::size_t question) const {
  if (question == evaluation) return encoding_.wrong_encoding();
  if (question == similarity) return encoding_.wrong_similarity();
  return optimizer_.wrong_step(question - sgd_step);
}

/// Judges an answer by the digests of all ranks, and by the host's check of this rank's own answer.
void VerifyWorkload::judge(std::size_t question, const std::vector<Answers>& all) {
  const int own = environment_.place.rank;
  const std::vector<Answers> answers = to_question(all, question);
  std::vector<Answers>& past = past_[question];
  past.resize(answers.size());
  const std::vector<Mismatch> dissents = vote(answers, groups_, past);
  remember(past, answers, dissents);
  bool right = true;
  for (const Mismatch& dissent : dissents) {
    if (names(dissent, own)) right = false;
    if (reporter_.found(fault_kinds[question], dissent.rank)) continue;  // reported for the other optimizer
    Fault fault = fault_of(environment_, fault_kinds[question], "readiness digest", name(), *under_way_);
    fault.where = operations[question];
    show_difference(fault, dissent.expected, dissent.actual);
    reporter_.report(std::move(fault), dissent);
  }
  const auto wrong = host_finding(question);
  if (wrong && !reporter_.found(fault_kinds[question], own)) {
    Fault fault = fault_of(environment_, fault_kinds[question], "host reference", name(), *under_way_);
    fault.where = wrong->where;
    fault.expected = fmt::format("{}", wrong->expected);
    fault.actual = fmt::format("{}", wrong->actual);
    fault.count = wrong->count;
    Mismatch dissent;
    dissent.rank = own;
    reporter_.report(std::move(fault), dissent);
  }
  if (right && !wrong) ++verified_[question];
}

Status VerifyWorkload::clean_up(std::int64_t step) {
  for (int attempt = 0; attempt < max_cleanup_attempts; ++attempt) {
    environment_.board.line("main").begin("readiness: memory cleanup", step, 2 * cleanup_timeout_s);
    const Pattern pattern{
        .kind = PatternKind::random,
        .seed = pattern_seed(environment_, PatternPurpose::cleanup, 0, cleanup_attempts_++)};
    EGT_TRY_ASSIGN(last_cleanup_, cleanup_.run(options_.cleanup_share, pattern, *stream_, cleanup_timeout_s));
    if (last_cleanup_.is_wrong()) {
      report_wrong_words(last_cleanup_, step);
      return {};
    }
    if (!last_cleanup_.failure.empty()) continue;
    words_verified_ += last_cleanup_.bytes / sizeof(std::uint32_t);
    ++cleanups_;
    return {};
  }
  return {};
}

void VerifyWorkload::report_wrong_words(const AllocationOutcome& outcome, std::int64_t step) {
  Fault fault = fault_of(environment_, "memory", "memory cleanup", name(), step);
  fault.where = fmt::format("{} that were taken to be given back", format_bytes(outcome.bytes));
  if (outcome.found.count > 0) {
    show_mismatches(fault, outcome.found);
  } else {
    fault.expected = "the one injected wrong word";
    fault.actual = "none, or others";
  }
  Mismatch own;
  own.rank = environment_.place.rank;
  reporter_.report(std::move(fault), own);
}

// Reporting

/// Concurrent allocations may hide freed memory, so one successful cleanup is enough.
std::string VerifyWorkload::failure() const {
  if (wrong_ > 0)
    return fmt::format("{} round{} found wrong results of this rank", wrong_, wrong_ == 1 ? "" : "s");
  if (rounds_ > 0 && cleanups_ == 0) return fmt::format("memory cleanup: {}", last_cleanup_.failure);
  return {};
}

PartReport VerifyWorkload::report() const {
  PartReport part;
  part.name = name();
  part.description = "Evaluation, similarity, optimizer steps and memory cleanup with known answers";
  part.failure = failure();
  part.success = part.failure.empty();
  const AllocationOutcome& cleanup = last_cleanup_;
  part.figures = {{"rounds", rounds_},
                  {"wrong_rounds", wrong_},
                  {"evaluations", verified_[evaluation]},
                  {"similarities", verified_[similarity]},
                  {"optimizer_steps", verified_[sgd_step] + verified_[adam_step]},
                  {"cleanups", cleanups_},
                  {"samples", options_.samples},
                  {"cleanup_bytes", cleanup.bytes},
                  {"cleanup_missing_bytes", rounds_ > 0 ? Json(cleanup.missing_bytes) : Json()},
                  {"cleanup_tolerance_bytes", cleanup.tolerance_bytes}};
  const std::uint64_t encoded = std::min(verified_[evaluation], verified_[similarity]);
  const std::uint64_t updated = std::min(verified_[sgd_step], verified_[adam_step]);
  part.work.gemm_flops = encoding_.flops() * static_cast<double>(encoded);
  part.work.outputs_verified = encoded * encoding_.outputs() + updated * optimizer_.outputs();
  part.work.bytes_patrolled = words_verified_ * sizeof(std::uint32_t);
  return part;
}

}  // namespace egt
