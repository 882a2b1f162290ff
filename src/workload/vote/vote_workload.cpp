#include "workload/vote/vote_workload.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/clock.hpp"
#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"

namespace egt {
namespace {

/// A round takes 0.1 % of the time of every multiprocessor.
constexpr double round_seconds = 0.25, time_share = 0.001;
constexpr int first_iterations = 16;
constexpr double vote_stop_seconds = 10;

}  // namespace

/// The first round determines the voters and units, the second one the duration.
Status VoteWorkload::prepare() {
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(round_, VoteRound::create(device));
  iterations_ = first_iterations;
  EGT_TRY(ask(std::nullopt, {}));
  std::set<int> units, parts;
  for_each_answer(answers(), [&](int voter, int part, const auto& digest) {
    if (voters_.empty() || voters_.back() != voter) voters_.push_back(voter);
    parts.insert(part);
    for (int unit = 0; unit < compute_units; ++unit)
      if (digest[unit] != 0) units.insert(unit);
  });
  if (voters_.empty()) return {StatusCode::internal, "the vote has no answer of any multiprocessor"};
  units_.assign(units.begin(), units.end());
  parts_.assign(parts.begin(), parts.end());
  EGT_TRY(judge({}));
  EGT_TRY(vote_once({}));
  EGT_TRY_ASSIGN(const double first_ms, round_->busy_ms());
  // The CPUs of the host work one after the other, and this rank is one of several.
  const double target_ms = 1e3 * round_seconds * time_share * (is_host() ? device.info().multiprocessors : 1);
  iterations_ = static_cast<int>(
      std::clamp(first_iterations * target_ms / std::max(first_ms, 1e-3), 1.0, double{max_vote_iterations}));
  EGT_TRY(vote_once({}));
  EGT_TRY_ASSIGN(round_ms_, round_->busy_ms());
  idle_rounds_ = rounds_;
  return {};
}

Status VoteWorkload::start() {
  if (!has_peers()) return {};
  return thread_.start([this](std::stop_token stop) { return run(stop); });
}

Status VoteWorkload::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const Clock::time_point begin = Clock::now();
    EGT_TRY(vote_once(stop));
    std::unique_lock lock(mutex_);
    const double seconds = round_seconds / environment_.load.duty() - seconds_since(begin);
    woken_.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
  }
  return {};
}

Status VoteWorkload::ask(std::optional<UnitFault> fault, const std::stop_token& stop) {
  vote_ = {.seed = pattern_seed(environment_, PatternPurpose::vote, 0, rounds_ + incomplete_rounds_),
           .iterations = iterations_};
  if (fault) vote_.fault = *fault;
  is_unjudged_ = true;
  EGT_TRY(round_->ask(vote_, std::ssize(voters_), stop));
  calls_ += static_cast<std::uint64_t>(round_->last_calls());
  return {};
}

/// The injected fault of this round, if one is due.
std::optional<UnitFault> VoteWorkload::due_fault() {
  const auto due = environment_.injector.take(InjectionKind::multiprocessor, step_, [](const Injection& one) {
    return one.layer != layer_of_pattern;
  });
  if (!due) return lasting_fault_;
  Flip flip = choose_flip(*due, voters_.size() * parts_.size(), environment_.seed);
  const std::size_t place = flip.first;
  const UnitFault fault{.voter = voters_[place / parts_.size()],
                        .part = parts_[place % parts_.size()],
                        .unit = units_[static_cast<std::size_t>(
                            choose_layer(*due, static_cast<int>(units_.size()), environment_.seed))],
                        .mask = flip.mask};
  if (due->lasting == Lasting::always) lasting_fault_ = fault;
  environment_.injector.report(
      *due, step_, flip, place_of({.voters = {fault.voter}, .units = {fault.unit}, .parts = {fault.part}}));
  return fault;
}

Status VoteWorkload::vote_once(const std::stop_token& stop) {
  EGT_TRY(ask(due_fault(), stop));
  return judge(stop);
}

Status VoteWorkload::judge(const std::stop_token& stop) {
  is_unjudged_ = false;
  if (!has_peers()) return {};
  const auto voters = static_cast<int>(voters_of(answers()));
  fewest_ = std::min<int>(fewest_, voters);
  ++(voters >= std::ssize(voters_) ? rounds_ : incomplete_rounds_);
  if (voters > 1) count_answers();
  std::vector<std::string> files;
  for (const Dissent& one : dissents_of(answers())) {
    dissents_ += one.answers;
    Fault fault = fault_of(environment_, "multiprocessor", "multiprocessor vote", name(), step_);
    fault.where = place_of(one);
    fault.count = one.answers;
    fault.expected = fmt::format("digest 0x{:016x}", one.expected);
    fault.actual = fmt::format("digest 0x{:016x}", one.actual);
    if (std::string file = reproducers_.emit(fault, UnitVote::name, to_json(vote_)); !file.empty())
      files.push_back(std::move(file));
  }
  if (files.empty()) return {};
  EGT_TRY_ASSIGN(const Repetitions counts,
                 repeat_vote(*round_, vote_, std::ssize(voters_),
                             {.is_stopped = [&] { return stop.stop_requested(); }}, stop));
  for (const std::string& file : files) report_repetitions(environment_, file, counts);
  return {};
}

void VoteWorkload::count_answers() {
  const auto iterations = static_cast<std::uint64_t>(vote_.iterations) * math::vote_lanes;
  for_each_answer(answers(), [&](int voter, int part, const auto&) {
    Voted& own = voted_[static_cast<std::size_t>(voter)][static_cast<std::size_t>(part)];
    ++own.rounds;
    own.iterations += iterations;
    iterations_voted_ += iterations;
    compared_ += units_.size();
  });
  Voted least{~std::uint64_t{0}, ~std::uint64_t{0}};
  for (const int voter : voters_)
    for (const int part : parts_) {
      const Voted& own = voted_[static_cast<std::size_t>(voter)][static_cast<std::size_t>(part)];
      least = {std::min(least.rounds, own.rounds), std::min(least.iterations, own.iterations)};
    }
  min_rounds_ = least.rounds;
  min_iterations_voted_ = least.iterations;
}

std::string VoteWorkload::place_of(const Dissent& dissent) const {
  std::vector<std::string> units;
  for (const int unit : dissent.units) units.emplace_back(compute_unit_names[unit]);
  const std::string parts = is_host() ? "" : fmt::format(", sub-partition {}", numbers_text(dissent.parts));
  return multiprocessor_place(environment_.device.info(), dissent.voters,
                              fmt::format("{}: {}", parts, fmt::join(units, ", ")));
}

Status VoteWorkload::finish(const Shutdown& ending) {
  finished_ = true;
  hurried_ = ending.hurry;
  const Status stopped = thread_.stop(ending.seconds(vote_stop_seconds));
  if (ending.hurry && !stopped.ok()) return {};
  EGT_TRY(stopped);
  EGT_TRY(thread_.failure());
  if (!has_peers() || ending.hurry) return {};
  if (is_unjudged_) {  // a round that the stop interrupted
    EGT_TRY(round_->synchronize());
    EGT_TRY(judge({}));
  }
  return vote_once({});
}

std::string VoteWorkload::undone() const {
  if (const Status status = thread_.failure(); !status.ok()) return status.what();
  if (has_peers() && finished_ && !hurried_ && rounds_ == idle_rounds_)
    return "no round has reached every multiprocessor";
  return {};
}

PartReport VoteWorkload::report() const {
  PartReport report;
  report.name = name();
  report.description =
      "The same work on every multiprocessor, or CPU of the host; their answers are compared";
  std::vector<std::string> names;
  Json operations = Json::object();
  for (const int unit : units_) {
    const std::string& one = names.emplace_back(compute_unit_names[unit]);
    const auto add = [&](WorkKind kind, std::uint64_t iterations) {
      const double verified =
          static_cast<double>(iterations) * vote_operations(static_cast<ComputeUnit>(unit));
      report.shares.push_back({.kind = kind, .precision = one, .done = verified, .verified = verified});
      return verified;
    };
    operations[one] = add(WorkKind::vote, iterations_voted_);
    add(WorkKind::vote_one_unit, min_iterations_voted_);
  }
  const std::uint64_t dissents = dissents_;
  report.figures = {{"rounds", rounds_.load()},
                    {"incomplete_rounds", incomplete_rounds_.load()},
                    {"voters", voters_.size()},
                    {"fewest_voters", fewest_ < max_unit_voters ? Json(fewest_.load()) : Json()},
                    {"min_rounds", min_rounds_.load()},
                    {"units", names},
                    {"unit_operations", operations},
                    {"answers_compared", compared_.load()},
                    {"answers_wrong", dissents},
                    {"calls_per_round", ratio_or_null(static_cast<double>(calls_),
                                                      static_cast<double>(rounds_ + incomplete_rounds_))},
                    {"iterations", iterations_},
                    {"round_ms", round_ms_},
                    {"time_share", round_ms_ * 1e-3 / round_seconds}};
  put_outcome(report,
              dissents ? fmt::format("{} in the multiprocessor vote", counted(dissents, "wrong answer")) : "",
              undone());
  if (!has_peers())
    note_not_run(report, "multiprocessor vote", "a single CPU has nothing to be compared with");
  return report;
}

}  // namespace egt
