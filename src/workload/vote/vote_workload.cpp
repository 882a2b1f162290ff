#include "workload/vote/vote_workload.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/clock.hpp"
#include "egt/core/units.hpp"
#include "egt/core/wait.hpp"
#include "workload/common/findings.hpp"

namespace egt {
namespace {

/// A round takes 0.1 % of the time of every multiprocessor.
constexpr double round_seconds = 0.25, time_share = 0.001;
constexpr int first_iterations = 16, max_iterations = 1 << 16;
constexpr int max_calls = 50;  ///< in a round; then it is judged without the voters that are missing
constexpr double vote_wait_seconds = 120, vote_stop_seconds = 10;
constexpr std::size_t answers_bytes = max_unit_voters * sizeof(VoterAnswers);

template <typename F>
void for_each_answer(std::span<const VoterAnswers> answers, const F& f) {
  for (int voter = 0; voter < std::ssize(answers); ++voter)
    for (int part = 0; part < sub_partitions; ++part)
      if (answers[static_cast<std::size_t>(voter)].parts >> part & 1)
        f(voter, part, answers[static_cast<std::size_t>(voter)].digest[part]);
}

std::ptrdiff_t voters_of(std::span<const VoterAnswers> answers) {
  return std::count_if(answers.begin(), answers.end(), [](const auto& one) { return one.has_answered(); });
}

}  // namespace

std::vector<Dissent> dissents_of(std::span<const VoterAnswers> answers) {
  constexpr int no_majority = max_unit_voters;
  std::map<int, Dissent> found;  // by outvoted voter
  for (int unit = 0; unit < compute_units; ++unit) {
    std::map<std::uint64_t, std::size_t> votes;
    std::size_t all = 0;
    for_each_answer(answers, [&](int, int, const auto& digest) { ++votes[digest[unit]], ++all; });
    if (votes.size() < 2) continue;
    const auto most = std::max_element(votes.begin(), votes.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const bool is_majority = 2 * most->second > all;
    for_each_answer(answers, [&](int voter, int part, const auto& digest) {
      const bool differs = digest[unit] != most->first;
      if (is_majority && !differs) return;
      Dissent& one = found[is_majority ? voter : no_majority];
      if (differs && one.answers++ == 0) one.expected = most->first, one.actual = digest[unit];
      for (const auto& [list, number] :
           {std::pair(&one.voters, voter), {&one.units, unit}, {&one.parts, part}})
        if (std::find(list->begin(), list->end(), number) == list->end()) list->push_back(number);
    });
  }
  std::vector<Dissent> all;
  for (auto& [voter, one] : found) {
    std::sort(one.voters.begin(), one.voters.end());
    std::sort(one.parts.begin(), one.parts.end());
    all.push_back(std::move(one));
  }
  return all;
}

/// The first round shows which voters and units there are, the second one how long it takes.
Status VoteWorkload::prepare() {
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(answers_, device.allocate(answers_bytes));
  EGT_TRY_ASSIGN(pinned_, device.allocate_pinned(answers_bytes));
  EGT_TRY_ASSIGN(begin_, device.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(end_, device.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(copied_, device.create_event(EventUse::order));
  EGT_TRY_ASSIGN(stream_, device.create_stream(StreamPriority::background, StreamUse::without_products));
  iterations_ = first_iterations;
  EGT_TRY(ask(next_vote(), {}));
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
  judge();
  EGT_TRY(vote_once({}));
  EGT_TRY_ASSIGN(const double first_ms, device.busy_ms(*begin_, *end_));
  // The CPUs of the host work one after the other, and this rank is one of several.
  const double target_ms = 1e3 * round_seconds * time_share * (is_host() ? device.info().multiprocessors : 1);
  iterations_ = static_cast<int>(
      std::clamp(first_iterations * target_ms / std::max(first_ms, 1e-3), 1.0, double{max_iterations}));
  EGT_TRY(vote_once({}));
  EGT_TRY_ASSIGN(round_ms_, device.busy_ms(*begin_, *end_));
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

Status VoteWorkload::ask(UnitVote vote, const std::stop_token& stop) {
  Device& device = environment_.device;
  const std::ptrdiff_t expected = voters_.empty() && !is_host()
                                      ? device.info().multiprocessors
                                      : std::max(std::ssize(voters_), std::ptrdiff_t{1});
  vote.answers = answers_.as<VoterAnswers>();
  EGT_TRY(device.set_zero(answers_.data(), answers_bytes, *stream_));
  EGT_TRY(device.record(*begin_, *stream_));
  for (int calls = 0; calls < max_calls; ++calls) {
    EGT_TRY(device.vote(vote, *stream_));
    if (calls == 0) EGT_TRY(device.record(*end_, *stream_));
    EGT_TRY(device.copy(pinned_.data(), answers_.data(), answers_bytes, *stream_));
    EGT_TRY(device.record(*copied_, *stream_));
    EGT_TRY(wait_until([&] { return device.done(*copied_); },
                       {.seconds = vote_wait_seconds, .stop = stop, .what = "the multiprocessor vote"}));
    ++calls_;
    if (voters_of(answers()) >= expected) break;
  }
  return {};
}

/// The injected fault of this round, if one is due.
std::optional<UnitFault> VoteWorkload::due_fault() {
  const auto due = environment_.injector.take(InjectionKind::multiprocessor, step_);
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

UnitVote VoteWorkload::next_vote() const {
  return {.seed = pattern_seed(environment_, PatternPurpose::vote, 0, rounds_ + incomplete_rounds_),
          .iterations = iterations_};
}

Status VoteWorkload::vote_once(const std::stop_token& stop) {
  UnitVote vote = next_vote();
  if (const auto fault = due_fault()) vote.fault = *fault;
  is_unjudged_ = true;
  EGT_TRY(ask(vote, stop));
  judge();
  return {};
}

void VoteWorkload::judge() {
  is_unjudged_ = false;
  if (!has_peers()) return;
  const auto voters = static_cast<int>(voters_of(answers()));
  fewest_ = std::min<int>(fewest_, voters);
  ++(voters >= std::ssize(voters_) ? rounds_ : incomplete_rounds_);
  for_each_answer(answers(), [&](int, int, const auto&) { compared_ += units_.size(); });
  for (const Dissent& one : dissents_of(answers())) {
    dissents_ += one.answers;
    Fault fault = fault_of(environment_, "multiprocessor", "multiprocessor vote", name(), step_);
    fault.where = place_of(one);
    fault.count = one.answers;
    fault.expected = fmt::format("0x{:016x}", one.expected);
    fault.actual = fmt::format("0x{:016x}", one.actual);
    fault.xor_mask = fmt::format("0x{:016x}", one.expected ^ one.actual);
    environment_.records.emit(fault);
  }
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
    EGT_TRY(environment_.device.synchronize(*stream_, vote_wait_seconds));
    judge();
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
  for (const int unit : units_) names.emplace_back(compute_unit_names[unit]);
  const std::uint64_t dissents = dissents_;
  report.figures = {{"rounds", rounds_.load()},
                    {"incomplete_rounds", incomplete_rounds_.load()},
                    {"voters", voters_.size()},
                    {"fewest_voters", fewest_ < max_unit_voters ? Json(fewest_.load()) : Json()},
                    {"units", names},
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
