#include "workload/vote/vote_round.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "egt/core/json_access.hpp"
#include "egt/core/wait.hpp"

namespace egt {
namespace {

constexpr int max_calls = 50;  ///< in a round; then it is judged without the voters that are missing
constexpr double vote_wait_seconds = 120;
constexpr std::size_t answers_bytes = max_unit_voters * sizeof(VoterAnswers);

}  // namespace

std::ptrdiff_t voters_of(std::span<const VoterAnswers> answers) {
  return std::count_if(answers.begin(), answers.end(), [](const auto& one) { return one.has_answered(); });
}

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

Result<std::unique_ptr<VoteRound>> VoteRound::create(Device& device) {
  std::unique_ptr<VoteRound> made(new VoteRound(device));
  EGT_TRY_ASSIGN(made->answers_, device.allocate(answers_bytes));
  EGT_TRY_ASSIGN(made->pinned_, device.allocate_pinned(answers_bytes));
  EGT_TRY_ASSIGN(made->begin_, device.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(made->end_, device.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(made->copied_, device.create_event(EventUse::order));
  EGT_TRY_ASSIGN(made->stream_,
                 device.create_stream(StreamPriority::background, StreamUse::without_products));
  return made;
}

Status VoteRound::ask(UnitVote vote, std::ptrdiff_t voters, const std::stop_token& stop) {
  const DeviceInfo& info = device_.info();
  const std::ptrdiff_t expected = voters > 0 ? voters : info.backend == "host" ? 1 : info.multiprocessors;
  vote.answers = answers_.as<VoterAnswers>();
  EGT_TRY(device_.set_zero(answers_.data(), answers_bytes, *stream_));
  EGT_TRY(device_.record(*begin_, *stream_));
  for (calls_ = 0; calls_ < max_calls;) {
    EGT_TRY(device_.vote(vote, *stream_));
    if (calls_ == 0) EGT_TRY(device_.record(*end_, *stream_));
    EGT_TRY(device_.copy(pinned_.data(), answers_.data(), answers_bytes, *stream_));
    EGT_TRY(device_.record(*copied_, *stream_));
    EGT_TRY(wait_until([&] { return device_.done(*copied_); },
                       {.seconds = vote_wait_seconds, .stop = stop, .what = "the multiprocessor vote"}));
    ++calls_;
    if (voters_of(answers()) >= expected) break;
  }
  return {};
}

Status VoteRound::synchronize() {
  return device_.synchronize(*stream_, vote_wait_seconds);
}

Json to_json(const UnitVote& vote) {
  const UnitFault& fault = vote.fault;
  Json call = {{"seed", vote.seed}, {"iterations", vote.iterations}, {"fault", nullptr}};
  if (fault.voter >= 0)
    call["fault"] = {
        {"voter", fault.voter}, {"part", fault.part}, {"unit", fault.unit}, {"mask", fault.mask}};
  return call;
}

Result<UnitVote> parse_vote(const Json& call) {
  UnitVote vote;
  EGT_TRY_ASSIGN(vote.seed, seed_in_call(call));
  EGT_TRY_ASSIGN(const auto iterations, number_in_call(call, "iterations", 1, max_vote_iterations));
  vote.iterations = static_cast<int>(iterations);
  const Json& fault = member(call, "fault");
  if (fault.is_null()) return vote;
  EGT_TRY_ASSIGN(const auto voter, number_in_call(fault, "voter", 0, max_unit_voters - 1));
  EGT_TRY_ASSIGN(const auto part, number_in_call(fault, "part", 0, sub_partitions - 1));
  EGT_TRY_ASSIGN(const auto unit, number_in_call(fault, "unit", 0, compute_units - 1));
  EGT_TRY_ASSIGN(const auto mask, number_in_call(fault, "mask", 0, ~std::uint32_t{0}));
  vote.fault = {static_cast<int>(voter), static_cast<int>(part), static_cast<int>(unit),
                static_cast<std::uint32_t>(mask)};
  return vote;
}

Result<Repetitions> repeat_vote(VoteRound& round, const UnitVote& vote, std::ptrdiff_t voters,
                                const RepetitionLimits& limits, const std::stop_token& stop) {
  return repeat(limits, [&]() -> Result<bool> {
    EGT_TRY(round.ask(vote, voters, stop));
    if (voters_of(round.answers()) < 2)
      return Status(StatusCode::unsupported, "a single CPU has nothing to be compared with");
    return dissents_of(round.answers()).empty();
  });
}

}  // namespace egt
