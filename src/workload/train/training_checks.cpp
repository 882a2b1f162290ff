#include "workload/train/training_checks.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/profiler_range.hpp"
#include "workload/common/findings.hpp"

namespace egt {

namespace {

constexpr std::size_t verified_gemms = 4;  // per check and rank
/// Before step 0, every GEMM is verified, with this many times the work of a later check.
constexpr double first_check_work = 32;
constexpr std::int64_t before_the_first = -1;

std::vector<Answers> part(const std::vector<Answers>& ranks, std::size_t first, std::size_t count) {
  std::vector<Answers> parts;
  for (const Answers& rank : ranks)
    parts.emplace_back(rank.begin() + static_cast<std::ptrdiff_t>(first),
                       rank.begin() + static_cast<std::ptrdiff_t>(first + count));
  return parts;
}

/// Maps each rank to the next one of its group, cyclically.
std::vector<int> ring_of(const std::vector<int>& groups) {
  std::vector<int> ring(groups.size());
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    std::size_t next = rank;
    do next = (next + 1) % groups.size();
    while (groups[next] != groups[rank]);
    ring[rank] = static_cast<int>(next);
  }
  return ring;
}

}  // namespace

TrainingChecks::TrainingChecks(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                               TrainingSteps& steps, GoldenBook& golden)
    : environment_(environment),
      options_(options),
      batch_(batch),
      steps_(steps),
      trainer_(steps.trainer()),
      golden_(golden),
      exchange_(environment.device, environment.communicator, trainer_.communication_stream(),
                &environment.board.line("main")),
      repair_(environment, steps, exchange_),
      audit_(environment.device),
      reporter_(environment),
      losses_(environment, reporter_),
      schedule_(options.check_every, options.check_budget),
      tensors_(trainer_.replay_tensors()),
      states_(trainer_.state_tensors()) {}

Status TrainingChecks::prepare() {
  EGT_TRY(prepare_golden());
  // If weights differ, a block of words is exchanged in the buffer of the digests.
  const std::size_t block = StateDifference::block_words * sizeof(std::uint32_t) / sizeof(Digest);
  EGT_TRY(exchange_.prepare(std::max(tensors_.size() + 2 * states_.size() + 1, block)));
  for (auto* event : {&computed_.begin, &computed_.end, &communicated_.begin, &communicated_.end}) {
    EGT_TRY_ASSIGN(*event, environment_.device.create_event(EventUse::timing));
  }
  const auto& buckets = trainer_.layout().buckets();
  std::size_t pieces = 0;
  for (const GradientBucket& bucket : buckets) pieces += bucket.pieces.size();
  return audit_.prepare({.gemms = 3 * layers() + pieces,  // per layer, including the bias gradient sums
                         .max_rows = std::max(batch_.local, batch_.global / environment_.place.size),
                         .widest_layer = *std::max_element(options_.layers.begin(), options_.layers.end()),
                         .other_operations = 2 * layers() + buckets.size(),
                         .seed = environment_.seed + static_cast<std::uint64_t>(environment_.place.rank)});
}

Status TrainingChecks::prepare_golden() {
  if (!golden_.known) return {};
  std::vector<std::string> questions;
  for (const PassTensor& tensor : tensors_) questions.push_back(to_string(tensor));
  for (const Precision precision : options_.precisions) {
    EGT_TRY_ASSIGN(auto known,
                   golden_.known->answers(environment_.device_model, golden_work(),
                                          std::string(to_string(precision)), questions, options_.golden));
    if (known)
      golden_answers_[precision] = std::move(*known);
    else
      figures_.golden_unknown.emplace(to_string(precision));
  }
  return {};
}

Status TrainingChecks::start() {
  EGT_TRY_ASSIGN(groups_, exchange_.groups_of(environment_.device_model, environment_.peer_timeout_seconds));
  if (options_.covers_all()) steps_.set_ring(ring_of(groups_));
  EGT_TRY(repair_.begin());
  if (!figures_.golden_unknown.empty())
    environment_.records.warning(
        fmt::format("--golden {}: not compared in {}: rank {}'s device, software or work is not in the file",
                    options_.golden, fmt::join(figures_.golden_unknown, ", "), environment_.place.rank));
  for (std::size_t i = 0; i < options_.precisions.size(); ++i) {
    EGT_TRY(enqueue_check(before_the_first));
    EGT_TRY(collect().status());
  }
  return {};
}

// Enqueuing a check

Status TrainingChecks::after_step(std::int64_t step) {
  if (!under_way_) EGT_TRY(steps_.injections().strike_states(step));
  const bool due = schedule_.due(step);
  const bool is_open = losses_.open_step() || (pass_mismatch_ && !passes_stay_wrong_);
  if (under_way_ || !(due || is_open)) return {};
  ++figures_.checks_in_steps;
  return enqueue_check(step);
}

/// The measured work begins after waits for other streams, and ends before the exchange with peers.
Status TrainingChecks::enqueue_check(std::int64_t step) {
  const ProfilerRange range("checks");
  Device& device = environment_.device;
  Stream &compute = trainer_.compute_stream(), &communication = trainer_.communication_stream();
  const Precision precision = options_.precisions[checks_ % options_.precisions.size()];
  Digest* const replay = exchange_.own();
  Digest *const state = replay + tensors_.size(), *const second_state = state + states_.size();
  const bool has_second = trainer_.has_second_state();
  audit_.begin(precision, selection_of_this_check(step));
  EGT_TRY(trainer_.settle(&audit_));
  EGT_TRY(device.record(*computed_.begin, compute));
  EGT_TRY(trainer_.enqueue_replay(precision, replay, &audit_));
  EGT_TRY(repair_.keep_candidate(step));
  if (has_second) EGT_TRY(trainer_.enqueue_state_digests(second_state, true));
  EGT_TRY(device.record(*computed_.end, compute));
  EGT_TRY(device.wait(communication, *computed_.end));
  EGT_TRY(device.record(*communicated_.begin, communication));
  EGT_TRY(repair_.enqueue_candidate_digests(state));
  EGT_TRY(device.record(*communicated_.end, communication));
  const std::size_t count = tensors_.size() + (has_second ? 2 : 1) * states_.size();
  EGT_TRY(exchange_.write_stamp(replay + count, schedule_.proposal()));
  EGT_TRY(exchange_.enqueue(count + 1));
  under_way_ = {.step = step, .precision = precision, .number = checks_};
  ++checks_;
  steps_.injections().end_passes();
  return {};
}

/// Before step 0, ranks of one device model share all GEMMs, because their results are equal. Later each rank
/// verifies a few, different ones each time.
OperationAudit::Selection TrainingChecks::selection_of_this_check(std::int64_t step) const {
  const double work = OperationAudit::cheap_terms(environment_.device.info());
  const int own = groups_[rank()];
  const auto peers = static_cast<std::size_t>(std::count(groups_.begin(), groups_.end(), own)),
             place = static_cast<std::size_t>(
                 std::count(groups_.begin(), groups_.begin() + environment_.place.rank, own));
  const std::size_t gemms = 3 * layers() - 1;
  if (step == before_the_first)
    return {.first = place,
            .every = peers,
            .terms = first_check_work * work * static_cast<double>(peers) / static_cast<double>(gemms)};
  const std::size_t every = std::max<std::size_t>(1, gemms / verified_gemms);
  return {.first = (checks_ / options_.precisions.size() + place) % every,
          .every = every,
          .terms = work / static_cast<double>(verified_gemms)};
}

// Judging a check

Status TrainingChecks::retire(std::int64_t step, const StepResult& result) {
  if (result.step_ms) schedule_.add_step(*result.step_ms);
  losses_.note(step, result);
  EGT_TRY(compare_passes(step - 1));  // digests that arrived before this step's all-reduce
  if (!under_way_ || under_way_->step != step) return {};
  EGT_TRY_ASSIGN(const auto answers, collect());
  schedule_.agree(step, answers);
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(const double computed, device.busy_ms(*computed_.begin, *computed_.end));
  EGT_TRY_ASSIGN(const double communicated, device.busy_ms(*communicated_.begin, *communicated_.end));
  schedule_.add_check(computed + communicated);  // max delay, as if the streams did not overlap
  return {};
}

Status TrainingChecks::finish() {
  if (under_way_) return {StatusCode::internal, "a check was left under way"};
  EGT_TRY(enqueue_check(steps_.last()));
  EGT_TRY(collect().status());
  const bool wanted = !options_.golden.empty() && !golden_.known && environment_.place.rank == 0;
  if (!wanted || !found_nothing()) return {};
  for (const auto& [precision, answers] : past_) {
    Golden::Digests digests;
    for (std::size_t q = 0; q < tensors_.size() && !answers[0].empty(); ++q)
      digests[to_string(tensors_[q])] = answers[0][q];
    golden_.found.add(environment_.device_model, golden_work(), std::string(to_string(precision)), digests);
  }
  return {};
}

// After a restart

/// Returns the newest verified state on any rank. Verification compared all ranks' digests, so every rank
/// still holds it. The same is true for the candidate of a check that failed on some rank, whose repair was
/// interrupted: `unrepaired_`. Check numbers continue after those started on any rank. Wrong passes are kept
/// if all ranks know them.
Result<std::int64_t> TrainingChecks::agree_on_state() {
  const auto from_zero = [](std::int64_t step) {
    return static_cast<std::uint64_t>(step - before_the_first);
  };
  const Answers own = {
      {.a = from_zero(repair_.proven_step()), .b = checks_},
      {.a = from_zero(repair_.candidate_step()), .b = unrepaired_ ? unrepaired_->number + 1 : 0},
      {.a = pass_mismatch_ ? from_zero(pass_mismatch_->step) : 0, .b = 0}};
  EGT_TRY_ASSIGN(const auto ranks, exchange_.exchange(own, environment_.peer_timeout_seconds));
  std::uint64_t newest = 0, number = 0;
  for (const Answers& rank : ranks) {
    newest = std::max(newest, rank[0].a);
    checks_ = std::max(checks_, rank[0].b);
    number = std::max(number, rank[1].b);
    if (rank[2] != ranks[0][2]) pass_mismatch_.reset();
  }
  const bool kept = std::all_of(ranks.begin(), ranks.end(), [&](const Answers& rank) {
    return rank[0].a == newest && rank[1].a == ranks[0][1].a && rank[1].a > newest;
  });
  unrepaired_.reset();
  if (number > 0 && kept)
    unrepaired_ =
        Check{.step = static_cast<std::int64_t>(ranks[0][1].a) + before_the_first, .number = number - 1};
  return static_cast<std::int64_t>(newest) + before_the_first;
}

Result<std::int64_t> TrainingChecks::resume() {
  reporter_.report_for_others();
  reporter_.end_check();
  under_way_.reset();
  pass_was_wrong_ = state_stays_wrong_ = passes_stay_wrong_ = false;
  losses_.give_up();
  audit_.abort();
  EGT_TRY_ASSIGN(const std::int64_t proven_step, agree_on_state());
  if (unrepaired_) EGT_TRY(finish_repair());
  if (pass_mismatch_) {  // not repeated
    judge_passes({});
    count_check(true);
  }
  EGT_TRY(repair_.go_back_to(proven_step));
  compared_step_ = proven_step;
  EGT_TRY(enqueue_check(proven_step));
  EGT_TRY(collect().status());
  schedule_.restart(proven_step);
  return proven_step + 1;
}

/// A check failed on some rank, and its repair was interrupted. All ranks still hold the states to repair. If
/// these are equal, restoring is enough.
Status TrainingChecks::finish_repair() {
  under_way_ = unrepaired_;
  EGT_TRY_ASSIGN(const auto state, repair_.candidates());
  std::vector<Mismatch> dissents = vote(state);
  if (!dissents.empty() || pass_mismatch_) {
    EGT_TRY(announce(dissents));
    std::vector<StateDifference> differences;
    EGT_TRY_ASSIGN(const Repetition repetition, repair(state, dissents, differences));
    report_states(dissents, differences);
    if (pass_mismatch_) judge_passes(repetition.passes);
    count_check(true);
  }
  under_way_.reset();
  unrepaired_.reset();
  return {};
}

void TrainingChecks::close(bool complete) {
  if (!complete) reporter_.report_for_others();
}

/// Returns all answers of the ranks.
Result<std::vector<Answers>> TrainingChecks::collect() {
  EGT_TRY_ASSIGN(auto answers, exchange_.collect(environment_.peer_timeout_seconds, under_way_->step));
  reporter_.confirm_last_check(pass_mismatch_.has_value());
  EGT_TRY(compare_passes(under_way_->step));
  const auto state = part(answers, tensors_.size(), states_.size());
  const auto second_state =
      part(answers, tensors_.size() + states_.size(), trainer_.has_second_state() ? states_.size() : 0);
  const bool pass_wrong = judge_replay(part(answers, 0, tensors_.size()));
  EGT_TRY(judge_audit());
  note_weight_digest(state[rank()]);
  EGT_TRY_ASSIGN(const bool state_wrong, judge_state(state, second_state, pass_wrong));
  count_check(pass_wrong || state_wrong);
  under_way_.reset();
  return answers;
}

void TrainingChecks::count_check(bool wrong) {
  if (reporter_.own_found())
    ++figures_.own_wrong_checks;
  else if (reporter_.own_suspected())
    ++figures_.undecided_checks;
  if (wrong || reporter_.own_found()) ++figures_.wrong_checks;
  reporter_.end_check();
}

/// A fault detected by this check, filled in for this rank. If passes differed before it, both have the same
/// cause.
Fault TrainingChecks::fault(const char* kind, const char* detector, const char* phase) const {
  Fault fault = fault_of(environment_, kind, detector, phase, under_way_->step);
  fault.incident = pass_mismatch_ ? pass_incident() : fmt::format("{} in check {}", kind, under_way_->number);
  return fault;
}

void TrainingChecks::report(Fault found, const Mismatch& dissent, std::string where) {
  found.where = std::move(where);
  show_difference(found, dissent.expected, dissent.actual);
  reporter_.report(std::move(found), dissent);
}

bool TrainingChecks::judge_replay(const std::vector<Answers>& answers) {
  auto& past = past_[under_way_->precision];
  past.resize(answers.size());
  if (!past[rank()].empty() || std::count(groups_.begin(), groups_.end(), groups_[rank()]) > 1) {
    ++figures_.replays;
    figures_.digests_compared += tensors_.size();
  }
  const std::vector<Mismatch> dissents = vote(answers, groups_, past);
  remember(past, answers, dissents);
  for (const Mismatch& dissent : dissents) {
    const PassTensor& tensor = tensors_[dissent.question];
    const bool extreme = tensor.kind == TensorKind::extreme;
    report(fault(extreme ? "extreme" : "replay", "replay digest", extreme ? "extreme" : "train"), dissent,
           fmt::format("{}, {} replay{}", to_string(tensor), to_string(under_way_->precision),
                       more_tensors(dissent.count)));
  }
  const bool doubted = std::any_of(dissents.begin(), dissents.end(), [&](const Mismatch& dissent) {
    return dissent.rank == environment_.place.rank || dissent.rank < 0;
  });
  if (!doubted) judge_golden(answers[rank()]);
  return !dissents.empty();
}

void TrainingChecks::judge_golden(const Answers& own) {
  const auto known = golden_answers_.find(under_way_->precision);
  if (known == golden_answers_.end()) return;
  const std::string precision(to_string(under_way_->precision));
  figures_.golden_compared.insert(precision);
  figures_.digests_compared += own.size();
  std::optional<Mismatch> dissent = difference(known->second, own);
  if (!dissent) return;
  dissent->rank = environment_.place.rank;
  report(fault("replay", "golden digest", "train"), *dissent,
         fmt::format("{}, {} replay, different from the golden file{}",
                     to_string(tensors_[dissent->question]), precision, more_tensors(dissent->count)));
}

/// Compares the passes of all steps up to `last`, which must be retired.
Status TrainingChecks::compare_passes(std::int64_t last) {
  while (compared_step_ < last) {
    const std::int64_t step = ++compared_step_;
    const std::vector<int> second_of = steps_.second_of(step);
    if (second_of.empty()) continue;
    EGT_TRY_ASSIGN(PassDigests passes, trainer_.passes().collect(step, environment_.peer_timeout_seconds));
    figures_.digests_compared += passes[0].first.size();
    std::vector<WrongSum> sums = wrong_sums(passes);
    if (pass_mismatch_ || (sums.empty() && pass_differences(passes, second_of).empty())) continue;
    pass_mismatch_ = PassMismatch{.step = step,
                                  .found_step = steps_.last(),
                                  .passes = std::move(passes),
                                  .second_of = second_of,
                                  .sums = std::move(sums)};
    EGT_TRY(announce_passes());
  }
  return {};
}

/// Reports provisionally, because the repetition after the next check may be interrupted.
Status TrainingChecks::announce_passes() {
  for (const auto& [fault, dissent] : pass_faults({})) reporter_.report_provisionally(fault, dissent);
  return environment_.publish();
}

/// The check's own fault on a rank is more specific: a wrong weight also corrupts passes.
void TrainingChecks::judge_passes(const PassDigests& repeated) {
  for (const auto& [fault, dissent] : pass_faults(repeated)) {
    const auto found = [&, &by = dissent](const char* kind) { return reporter_.found(kind, by); };
    const bool is_known = fault.kind == "all-reduce"
                              ? found("all-reduce")
                              : found("replica") || found("replay") || found("extreme");
    if (!is_known) reporter_.report(fault, dissent);
  }
  pass_mismatch_.reset();
}

std::vector<std::pair<Fault, Mismatch>> TrainingChecks::pass_faults(const PassDigests& repeated) const {
  std::vector<std::pair<Fault, Mismatch>> found;
  for (const Mismatch& dissent : decide_passes(pass_mismatch_->passes, repeated, pass_mismatch_->second_of))
    found.emplace_back(pass_fault(dissent), dissent);
  std::vector<WrongSum> sums = pass_mismatch_->sums;
  decide_sums(sums, pass_mismatch_->passes, repeated);
  for (const WrongSum& wrong : sums) found.emplace_back(sum_fault(wrong), wrong.dissent);
  return found;
}

/// After a wrong all-reduce result, a rank's weights differ from its peers'. On a single rank, its two states
/// differ after two different passes.
bool TrainingChecks::explains(const Mismatch& state) const {
  if (!pass_mismatch_) return false;
  if (trainer_.has_second_state()) return true;  // a wrong weight shows in a pass
  return std::any_of(pass_mismatch_->sums.begin(), pass_mismatch_->sums.end(), [&](const WrongSum& wrong) {
    const auto& suspects = wrong.dissent.suspects;
    return wrong.dissent.rank < 0
               ? state.rank < 0 || std::count(suspects.begin(), suspects.end(), state.rank) > 0
               : wrong.dissent.rank == state.rank;
  });
}

Fault TrainingChecks::sum_fault(const WrongSum& wrong) const {
  Fault found = fault_of(environment_, "all-reduce", "all-reduce check", "all-reduce", pass_mismatch_->step);
  found.found_step = pass_mismatch_->found_step;
  found.incident = fmt::format("all-reduce of bucket {} of step {}", wrong.bucket, pass_mismatch_->step);
  const Mismatch& dissent = wrong.dissent;
  if (wrong.sample && (dissent.rank < 0 || dissent.rank == wrong.checked_by)) {
    found.where = fmt::format("all-reduce, {}", trainer_.passes().place_in_sum(wrong.bucket, wrong.checked_by,
                                                                               wrong.sample->index));
    found.count = wrong.count;
    show_difference(found, wrong.sample->expected, wrong.sample->actual);
  } else {
    found.where = fmt::format("all-reduce of the {}", trainer_.passes().bucket_name(wrong.bucket));
    show_difference(found, dissent.expected, dissent.actual);
  }
  return found;
}

std::string TrainingChecks::pass_incident() const {
  return fmt::format("passes of step {}", pass_mismatch_->step);
}

Fault TrainingChecks::pass_fault(const Mismatch& dissent) const {
  const std::string tensor = trainer_.passes().tensors()[dissent.question];
  const bool extreme = tensor.starts_with("extreme");
  Fault found = fault_of(environment_, extreme ? "extreme" : "replay", "second pass",
                         extreme ? "extreme" : "train", pass_mismatch_->step);
  found.found_step = pass_mismatch_->found_step;
  found.incident = pass_incident();
  found.where = fmt::format("{}, {}{}", tensor, to_string(steps_.precision_of(pass_mismatch_->step)),
                            more_tensors(dissent.count));
  show_difference(found, dissent.expected, dissent.actual);
  return found;
}

/// Only this rank knows the findings of its audit.
Status TrainingChecks::judge_audit() {
  EGT_TRY_ASSIGN(const OperationAuditReport report, audit_.collect(environment_.peer_timeout_seconds));
  figures_.gemms_verified += report.gemms;
  figures_.operations_sampled += report.samples;
  Mismatch own;
  own.rank = environment_.place.rank;
  if (report.findings.empty() || reporter_.found("replay", own.rank)) return {};
  const OperationFinding& finding = report.findings.front();
  Fault found = fault(finding.kind, finding.detector, "train");
  found.where = finding.where;
  found.expected = fmt::format("{}", finding.expected);
  found.actual = fmt::format("{}", finding.actual);
  found.count = finding.count;
  found.map = finding.map;
  reporter_.report(std::move(found), own);
  return {};
}

/// Also decides whether to restore, based on results that are equal on all ranks. Returns true if state or
/// loss is wrong.
Result<bool> TrainingChecks::judge_state(const std::vector<Answers>& state,
                                         const std::vector<Answers>& second_state, bool pass_wrong) {
  std::vector<Mismatch> dissents;
  if (state.size() > 1 || trainer_.has_second_state()) {
    ++figures_.replica_checks;
    figures_.verified_updates = under_way_->step + 1;
    figures_.digests_compared += state[0].size();
    if (state.size() > 1) {
      dissents = vote(state);
    } else if (auto differs = difference(second_state[0], state[0])) {
      differs->rank = 0;
      dissents = {std::move(*differs)};
    }
  }
  if (dissents.empty()) state_stays_wrong_ = false;
  const bool passes_wrong = pass_mismatch_.has_value();
  const bool explained = pass_wrong || passes_wrong || !dissents.empty();
  // A persistent fault would trigger a restore in every check, so it does only once.
  const bool goes_back = (!dissents.empty() && !state_stays_wrong_) || (pass_wrong && !pass_was_wrong_) ||
                         (passes_wrong && !passes_stay_wrong_) || losses_.open_step();
  pass_was_wrong_ = pass_wrong;
  if (!passes_wrong) passes_stay_wrong_ = false;
  if (!pass_wrong && !passes_wrong && dissents.empty() && !losses_.open_step())
    repair_.prove_candidate(state[rank()]);
  std::vector<StateDifference> differences;
  bool loss_was_wrong = false;
  PassDigests repeated;
  if (goes_back) {
    unrepaired_ = under_way_;
    EGT_TRY(announce(dissents));
    EGT_TRY(repair_.drain());
    EGT_TRY_ASSIGN(const Repetition repetition, repair(state, dissents, differences));
    loss_was_wrong = losses_.judge(repetition, explained, under_way_->number);
    repeated = repetition.passes;
    if (pass_mismatch_ && dissents.empty()) judge_passes(repeated);
    passes_stay_wrong_ = repetition.passes_differ;
    EGT_TRY(repair_.go_on());
    figures_.repeated_steps += static_cast<std::uint64_t>(steps_.last() - under_way_->step);
    unrepaired_.reset();
  }
  report_states(dissents, differences);
  if (pass_mismatch_) judge_passes(repeated);
  return !dissents.empty() || passes_wrong || loss_was_wrong;
}

/// Reports faulty ranks and writes the records to disk before any operation that may be interrupted.
Status TrainingChecks::announce(const std::vector<Mismatch>& dissents) {
  for (const Mismatch& dissent : dissents)
    if (!explains(dissent)) reporter_.report_provisionally(state_fault(dissent, {}), dissent);
  return environment_.publish();
}

/// Repeats the steps from the verified state to the candidate's, and decides `dissents` by the result.
Result<Repetition> TrainingChecks::repair(const std::vector<Answers>& state, std::vector<Mismatch>& dissents,
                                          std::vector<StateDifference>& differences) {
  EGT_TRY_ASSIGN(differences, repair_.locate(state));
  EGT_TRY_ASSIGN(Repetition repetition,
                 repair_.repeat(losses_.open_step(),
                                pass_mismatch_ ? std::optional(pass_mismatch_->step) : std::nullopt));
  figures_.repeated_steps += repetition.own_losses.size();
  state_stays_wrong_ = !dissents.empty() && !repetition.alike;
  if (repetition.alike) note_weight_digest(repetition.states);
  std::map<int, std::set<int>> blamed;
  if (pass_mismatch_)
    for (const Mismatch& one :
         decide_passes(pass_mismatch_->passes, repetition.passes, pass_mismatch_->second_of))
      if (one.rank >= 0) blamed[trainer_.passes().layer_of(one.question)].insert(one.rank);
  decide_by_repetition(dissents, state, repetition,
                       [&](std::size_t question) { return blamed[states_[question].layer]; });
  return repetition;
}

void TrainingChecks::report_states(const std::vector<Mismatch>& dissents,
                                   const std::vector<StateDifference>& differences) {
  for (const Mismatch& dissent : dissents)
    if (!explains(dissent)) reporter_.report(state_fault(dissent, differences), dissent);
}

Fault TrainingChecks::state_fault(const Mismatch& dissent,
                                  const std::vector<StateDifference>& differences) const {
  Fault reported = fault("replica", "state digest", "train");
  show_state(reported, dissent, to_string(states_[dissent.question]), differences);
  return reported;
}

// Metrics

void TrainingChecks::note_weight_digest(const Answers& own) {
  Digest whole;
  for (std::size_t l = 0; l < layers(); ++l) {
    add_to_digest(whole.a, whole.b, 2 * l, static_cast<std::uint32_t>(own[l].a));
    add_to_digest(whole.a, whole.b, 2 * l + 1, static_cast<std::uint32_t>(own[l].a >> 32));
  }
  weight_digest_ = to_string(whole);
}

std::string TrainingChecks::golden_work() const {
  // Without chains, bias and ReLU are fused into the GEMMs, whose digests are then 0.
  return fmt::format("layers {}, batch {} of {}, extreme iterations {} of {}, biases, gradient {}, seed {}",
                     fmt::join(options_.layers, ","), batch_.global / environment_.place.size, batch_.global,
                     options_.extreme_iterations, options_.extreme_iterations > 0 ? "chains 2" : "fused bias",
                     to_string(options_.gradient_type), environment_.seed);
}

CheckFigures TrainingChecks::figures() const {
  CheckFigures figures = figures_;
  figures.compared_steps = options_.covers_all() ? static_cast<std::uint64_t>(compared_step_ + 1) : 0;
  figures.fraction = schedule_.fraction();
  figures.period_steps = schedule_.period();
  figures.losses = losses_.figures();
  return figures;
}

}  // namespace egt
