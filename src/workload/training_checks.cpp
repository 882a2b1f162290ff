#include "egt/workload/training_checks.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/workload/findings.hpp"

namespace egt {

namespace {

constexpr int enough_peers = 3;              // of one model: then a majority tells who is wrong
constexpr std::size_t audited_products = 4;  // a check
constexpr std::int64_t before_the_first = -1;

std::vector<Answers> part(const std::vector<Answers>& ranks, std::size_t first, std::size_t count) {
  std::vector<Answers> parts;
  for (const Answers& rank : ranks)
    parts.emplace_back(rank.begin() + static_cast<std::ptrdiff_t>(first),
                       rank.begin() + static_cast<std::ptrdiff_t>(first + count));
  return parts;
}

/// Where two disagree, the repetition has the third voice.
std::vector<Dissent> decided_by(std::uint32_t repeated, const StateDifference& difference,
                                const std::vector<Dissent>& undecided) {
  std::vector<Dissent> decided;
  for (const int rank : furthest_from(repeated, difference.by_rank)) {
    Dissent dissent = undecided.front();
    dissent.rank = rank;
    dissent.suspects.clear();
    dissent.blame = Blame::majority;
    decided.push_back(dissent);
  }
  return decided.empty() ? undecided : decided;
}

std::string more_tensors(std::uint64_t count) {
  return count > 1 ? fmt::format(", and in {} tensor{} made after it", count - 1, count == 2 ? "" : "s") : "";
}

}  // namespace

TrainingChecks::TrainingChecks(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                               MlpTrainer& trainer, GoldenBook& golden, bool judges_losses,
                               StateRepair::RepeatStep repeat)
    : environment_(environment),
      options_(options),
      batch_(batch),
      trainer_(trainer),
      golden_(golden),
      exchange_(environment.device, environment.communicator, trainer.communication_stream(),
                environment.board.line("main")),
      repair_(environment.device, trainer, exchange_, std::move(repeat)),
      judges_losses_(judges_losses),
      teller_(environment),
      injections_(environment, options, batch, trainer),
      schedule_(options.check_every, options.check_budget),
      tensors_(trainer.replay_tensors()),
      states_(trainer.state_tensors()) {}

Status TrainingChecks::prepare() {
  sections_ = {.replay = tensors_.size(),
               .chains = options_.extreme_iterations > 0 ? ChainCheck::chains : 0,
               .state = states_.size()};
  if (sections_.chains > 0) {
    chains_ =
        std::make_unique<ChainCheck>(environment_.device, environment_.seed, options_.extreme_iterations);
    EGT_TRY(chains_->prepare());
  }
  // A block of words travels in digests' places when replicas differ.
  const std::size_t block = StateDifference::block_words * sizeof(std::uint32_t) / sizeof(Digest);
  EGT_TRY(exchange_.prepare(std::max(sections_.all(), block)));
  const std::int64_t widest = *std::max_element(options_.layers.begin(), options_.layers.end());
  EGT_TRY_ASSIGN(audit_,
                 GemmAudit::create(environment_.device, {.largest_dimension = std::max(widest, batch_.local),
                                                         .slots = 2 * audited_products,
                                                         .seed = environment_.seed}));
  return {};
}

Status TrainingChecks::start() {
  EGT_TRY(take_groups());
  EGT_TRY(repair_.begin());
  for (std::size_t i = 0; i < options_.precisions.size(); ++i) {
    EGT_TRY(enqueue_check(before_the_first));
    EGT_TRY(collect(before_the_first));
  }
  return {};
}

Status TrainingChecks::take_groups() {
  EGT_TRY_ASSIGN(groups_, exchange_.groups_of(environment_.device_model, environment_.peer_timeout_seconds));
  const int own = groups_[static_cast<std::size_t>(environment_.place.rank)];
  audits_ = std::count(groups_.begin(), groups_.end(), own) < enough_peers;
  return {};
}

// A check, put in line

Status TrainingChecks::after_step(std::int64_t step) {
  if (!under_way_) EGT_TRY(injections_.strike_states(step));
  const bool due = schedule_.due(step);
  if (under_way_ || !(due || check_now_)) return {};
  costs_.check_enqueued(step);
  return enqueue_check(step);
}

Status TrainingChecks::enqueue_check(std::int64_t step) {
  const Precision precision = options_.precisions[checks_ % options_.precisions.size()];
  Digest* const replay = exchange_.own();
  Digest* const chains = replay + sections_.replay;
  EGT_TRY(trainer_.enqueue_replay(precision, replay, audit_of_this_check()));
  if (chains_)
    EGT_TRY(chains_->enqueue(chains, injections_.take_chain_flip(step, chains_->words()),
                             trainer_.communication_stream()));
  EGT_TRY(trainer_.enqueue_state_digests(chains + sections_.chains));
  EGT_TRY(exchange_.enqueue(sections_.all()));
  EGT_TRY(repair_.keep_candidate(step));
  under_way_ = {.step = step, .precision = precision};
  check_now_ = false;
  ++checks_;
  injections_.end_passes();
  return {};
}

/// A few of the products, others each time.
MlpTrainer::ProductAudit TrainingChecks::audit_of_this_check() {
  if (!audits_) return {};
  const std::size_t every =
      std::max<std::size_t>(1, 3 * trainer_.layout().layers().size() / audited_products);
  return [this, every, next = checks_ / options_.precisions.size() % every](
             const Gemm& gemm, const PassTensor& tensor, Stream& stream) mutable -> Status {
    if (next-- != 0) return {};
    next = every - 1;
    if (audit_->free_slots() < 2) return {};
    const std::string name = fmt::format("{}, {}", to_string(tensor), to_string(gemm.precision));
    EGT_TRY(audit_->enqueue_checksum(gemm, name, stream));
    return audit_->enqueue_host_sample(gemm, name, stream);
  };
}

// A check, judged

Status TrainingChecks::retire(std::int64_t step, std::int64_t last, const StepResult& result) {
  costs_.add(step, result.step_ms);
  if (result.notes.step_ms != 0) {
    const auto ranks = static_cast<float>(environment_.place.size);
    schedule_.learn(result.notes.check_ms / ranks, result.notes.step_ms / ranks);
  }
  note_loss(step, result);
  return under_way_ && under_way_->step == step ? collect(last) : Status();
}

Status TrainingChecks::finish(std::int64_t last) {
  if (under_way_) return {StatusCode::internal, "a check was left under way"};
  EGT_TRY(enqueue_check(last));
  EGT_TRY(collect(last));
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

/// The newest state that any rank proved: it saw all ranks' digests, so it is kept on every one. Checks go on
/// behind those that any rank began.
Result<std::int64_t> TrainingChecks::agree_on_state() {
  EGT_TRY_ASSIGN(const Buffer pinned, environment_.device.allocate_pinned(sizeof(Digest)));
  *pinned.as<Digest>() = {.a = static_cast<std::uint64_t>(repair_.proven_step() - before_the_first),
                          .b = checks_};
  EGT_TRY(environment_.device.copy(exchange_.own(), pinned.data(), sizeof(Digest),
                                   trainer_.communication_stream()));
  EGT_TRY(exchange_.enqueue(1));
  EGT_TRY_ASSIGN(const auto ranks, exchange_.collect(environment_.peer_timeout_seconds));
  std::uint64_t newest = 0;
  for (const Answers& rank : ranks) {
    newest = std::max(newest, rank[0].a);
    checks_ = std::max(checks_, rank[0].b);
  }
  return static_cast<std::int64_t>(newest) + before_the_first;
}

Result<std::int64_t> TrainingChecks::resume() {
  under_way_.reset();
  nonfinite_.reset();
  loss_is_finite_ = true;
  check_now_ = false;
  costs_.give_up();
  schedule_ = CheckSchedule(options_.check_every, options_.check_budget);
  audit_->give_up();
  EGT_TRY_ASSIGN(const std::int64_t agreed, agree_on_state());
  EGT_TRY(repair_.go_back_to(agreed));
  EGT_TRY(enqueue_check(agreed));
  EGT_TRY(collect(agreed));
  return agreed + 1;
}

void TrainingChecks::close() {
  if (!nonfinite_) return;
  tell_nonfinite();
  ++figures_.wrong_checks;
  if (teller_.end_check()) ++figures_.own_wrong_checks;
}

Status TrainingChecks::collect(std::int64_t last) {
  EGT_TRY_ASSIGN(const auto answers, exchange_.collect(environment_.peer_timeout_seconds, under_way_->step));
  const auto state = part(answers, sections_.replay + sections_.chains, sections_.state);
  const bool pass_wrong = judge_replay(part(answers, 0, sections_.replay));
  const bool chains_wrong = chains_ && judge_chains(part(answers, sections_.replay, sections_.chains));
  EGT_TRY(judge_audit());
  note_weight_digest(state[static_cast<std::size_t>(environment_.place.rank)]);
  EGT_TRY_ASSIGN(const bool state_wrong, judge_state(state, pass_wrong, chains_wrong, last));
  const bool own_wrong = teller_.end_check();
  if (own_wrong) ++figures_.own_wrong_checks;
  if (pass_wrong || chains_wrong || state_wrong || own_wrong) ++figures_.wrong_checks;
  under_way_.reset();
  return {};
}

/// Is there anything to hold this rank's answers against?
bool TrainingChecks::has_comparison(const std::vector<Answers>& past) const {
  const auto own = static_cast<std::size_t>(environment_.place.rank);
  return !past[own].empty() || std::count(groups_.begin(), groups_.end(), groups_[own]) > 1;
}

bool TrainingChecks::judge_replay(const std::vector<Answers>& answers) {
  auto& past = past_[under_way_->precision];
  past.resize(answers.size());
  const auto own = static_cast<std::size_t>(environment_.place.rank);
  if (has_comparison(past)) {
    ++figures_.replays;
    figures_.digests_compared += answers[own].size();
  }
  const std::vector<Dissent> dissents = vote(answers, groups_, past);
  remember(past, answers, dissents);
  for (const Dissent& dissent : dissents) {
    Fault fault = fault_of(environment_, "replay", "replay digest", "train", under_way_->step);
    fault.where = fmt::format("{}, {} replay{}", to_string(tensors_[dissent.question]),
                              to_string(under_way_->precision), more_tensors(dissent.count));
    show_difference(fault, dissent.expected, dissent.actual);
    teller_.tell(std::move(fault), dissent);
  }
  const bool doubted = std::any_of(dissents.begin(), dissents.end(), [&](const Dissent& dissent) {
    return dissent.rank == environment_.place.rank || dissent.rank < 0;
  });
  if (!doubted) judge_golden(answers[own]);
  return !dissents.empty();
}

/// This rank's answers, against the file.
void TrainingChecks::judge_golden(const Answers& own) {
  if (!golden_.known) return;
  const Golden::Digests* const known = golden_.known->find(environment_.device_model, golden_work(),
                                                           std::string(to_string(under_way_->precision)));
  if (!known) {
    if (figures_.golden.empty())
      environment_.records.warning(fmt::format(
          "--golden {}: rank {}'s device, software or work is not in it, so nothing was compared with it",
          options_.golden, environment_.place.rank));
    if (figures_.golden.empty()) figures_.golden = "not known";
    return;
  }
  figures_.golden = "checked";
  Dissent dissent;
  dissent.rank = environment_.place.rank;
  dissent.count = 0;
  for (std::size_t q = own.size(); q-- > 0;) {
    const auto one = known->find(to_string(tensors_[q]));
    if (one == known->end() || one->second == own[q]) continue;
    dissent.question = q;
    dissent.expected = one->second;
    dissent.actual = own[q];
    ++dissent.count;
  }
  figures_.digests_compared += own.size();
  if (dissent.count == 0) return;
  Fault fault = fault_of(environment_, "replay", "golden digest", "train", under_way_->step);
  fault.where = fmt::format("{}, {} replay, unlike the golden file{}", to_string(tensors_[dissent.question]),
                            to_string(under_way_->precision), more_tensors(dissent.count));
  show_difference(fault, dissent.expected, dissent.actual);
  teller_.tell(std::move(fault), dissent);
}

bool TrainingChecks::judge_chains(const std::vector<Answers>& answers) {
  chains_past_.resize(answers.size());
  if (has_comparison(chains_past_)) ++figures_.chain_checks;
  const std::vector<Dissent> dissents = vote(answers, groups_, chains_past_);
  remember(chains_past_, answers, dissents);
  for (const Dissent& dissent : dissents) {
    Fault fault = fault_of(environment_, "extreme", "known-answer chain", "extreme", under_way_->step);
    fault.where = fmt::format("{}, {} values, {} turns", ChainCheck::name(dissent.question), chains_->words(),
                              options_.extreme_iterations);
    show_difference(fault, dissent.expected, dissent.actual);
    teller_.tell(std::move(fault), dissent);
  }
  return !dissents.empty();
}

/// Only this rank knows what its audits found.
Status TrainingChecks::judge_audit() {
  if (!audits_) return {};
  EGT_TRY_ASSIGN(const GemmAuditReport report, audit_->collect(environment_.peer_timeout_seconds));
  figures_.products_audited += report.products / 2;
  Dissent own;
  own.rank = environment_.place.rank;
  if (report.findings.empty() || teller_.found("replay", own.rank)) return {};
  const GemmFinding& finding = report.findings.front();
  Fault fault = fault_of(environment_, "gemm", finding.check, "train", under_way_->step);
  fault.where = finding.text();
  fault.expected = fmt::format("{}", finding.expected);
  fault.actual = fmt::format("{}", finding.actual);
  fault.count = finding.rows_wrong;
  teller_.tell(std::move(fault), own);
  return {};
}

/// Also decides whether training goes back: what the other judges found is the same on all ranks. Is the
/// state or the loss wrong?
Result<bool> TrainingChecks::judge_state(const std::vector<Answers>& state, bool pass_wrong,
                                         bool chains_wrong, std::int64_t last) {
  std::vector<Dissent> dissents;
  if (state.size() > 1) {
    ++figures_.replica_checks;
    figures_.digests_compared += state[0].size();
    dissents = vote(state, std::vector<int>(state.size(), 0), std::vector<Answers>(state.size()));
  }
  const bool lost = judges_losses_ && !loss_is_finite_;
  if (nonfinite_ && !pass_wrong && !chains_wrong && dissents.empty()) tell_nonfinite();
  nonfinite_.reset();
  if (dissents.empty()) state_stays_wrong_ = false;
  // What stays wrong would send training back again and again: once is enough.
  const bool goes_back =
      (!dissents.empty() && !state_stays_wrong_) || (pass_wrong && !pass_was_wrong_) || (lost && !was_lost_);
  pass_was_wrong_ = pass_wrong;
  was_lost_ = lost;
  const bool wrong = lost || !dissents.empty();
  if (!pass_wrong && !wrong) repair_.prove_candidate();
  if (goes_back)
    EGT_TRY(repair(std::move(dissents), last));
  else
    tell_state_faults(dissents, {});
  return wrong;
}

Status TrainingChecks::repair(std::vector<Dissent> dissents, std::int64_t last) {
  StateTensor tensor;
  StateDifference difference;
  if (!dissents.empty()) {
    const auto first = std::min_element(dissents.begin(), dissents.end(),
                                        [](const auto& a, const auto& b) { return a.question < b.question; });
    tensor = states_[first->question];
    EGT_TRY_ASSIGN(difference, repair_.locate(tensor, environment_.peer_timeout_seconds));
  }
  const std::int64_t from = repair_.proven_step();
  EGT_TRY_ASSIGN(const auto repeated,
                 repair_.repeat(tensor, difference.word, last, environment_.peer_timeout_seconds));
  costs_.disturb();
  figures_.repeated_steps += static_cast<std::uint64_t>(last - from);
  state_stays_wrong_ = !repeated;
  if (dissents.empty()) return {};
  const bool undecided = dissents.front().rank < 0;
  if (undecided && repeated) dissents = decided_by(*repeated, difference, dissents);
  tell_state_faults(dissents, difference);
  return {};
}

void TrainingChecks::tell_state_faults(const std::vector<Dissent>& dissents,
                                       const StateDifference& difference) {
  std::set<int> wrong;
  for (const Dissent& dissent : dissents) wrong.insert(dissent.rank);
  int right = 0;
  while (wrong.contains(right)) ++right;
  for (const Dissent& dissent : dissents) {
    Fault fault = fault_of(environment_, "replica", "state digest", "train", under_way_->step);
    fault.where = to_string(states_[dissent.question]) + more_tensors(dissent.count);
    show_difference(fault, dissent.expected, dissent.actual);
    const bool located = states_[dissent.question] == difference.tensor && dissent.rank >= 0 &&
                         static_cast<std::size_t>(right) < difference.by_rank.size();
    if (located) {
      const std::uint32_t expected = difference.by_rank[static_cast<std::size_t>(right)],
                          actual = difference.by_rank[static_cast<std::size_t>(dissent.rank)];
      fault.where = fmt::format("{}, element {}{}", to_string(states_[dissent.question]), difference.word,
                                more_tensors(dissent.count));
      fault.offset = difference.word * sizeof(float);
      show_difference(fault, expected, actual);
      fault.count = difference.count;
    }
    teller_.tell(std::move(fault), dissent);
  }
}

// Losses

void TrainingChecks::note_loss(std::int64_t step, const StepResult& result) {
  const bool was_finite = std::exchange(loss_is_finite_, std::isfinite(result.loss));
  if (loss_is_finite_ || !was_finite || !judges_losses_) return;
  nonfinite_ = {.step = step, .ranks = result.not_finite};
  check_now_ = true;
}

void TrainingChecks::tell_nonfinite() {
  const int size = environment_.place.size;
  Dissent dissent;
  dissent.suspects = nonfinite_->ranks;
  if (dissent.suspects.size() == 1) dissent.rank = dissent.suspects.front();
  if (size > 1 && dissent.suspects.empty())
    dissent.suspects.push_back(0);  // finite parts, and a sum that is not
  dissent.blame = dissent.rank >= 0 ? Blame::certain : Blame::ambiguous;
  Fault fault = fault_of(environment_, "nonfinite", "loss", "train", nonfinite_->step);
  fault.where = "the loss";
  fault.expected = "finite";
  fault.actual = "NaN or infinity";
  teller_.tell(std::move(fault), dissent);
}

// What was done

void TrainingChecks::note_weight_digest(const Answers& own) {
  Digest whole;
  for (std::size_t l = 0; l < static_cast<std::size_t>(layers()); ++l) {
    add_to_digest(whole.a, whole.b, 2 * l, static_cast<std::uint32_t>(own[l].a));
    add_to_digest(whole.a, whole.b, 2 * l + 1, static_cast<std::uint32_t>(own[l].a >> 32));
  }
  weight_digest_ = to_string(whole);
}

std::string TrainingChecks::golden_work() const {
  return fmt::format("layers {}, batch {} of {}, extreme iterations {}, gradient {}, seed {}",
                     fmt::join(options_.layers, ","), batch_.global / environment_.place.size, batch_.global,
                     options_.extreme_iterations, to_string(options_.gradient_type), environment_.seed);
}

CheckFigures TrainingChecks::figures() const {
  CheckFigures figures = figures_;
  figures.fraction = costs_.fraction();
  figures.period_steps = schedule_.period();
  return figures;
}

}  // namespace egt
