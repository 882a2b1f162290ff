#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "egt/core/math/unit_vote.hpp"
#include "egt/device/device.hpp"
#include "workload/common/reproducer.hpp"

namespace egt {

/// Voters whose answers differ: one against the majority, or several without one, such as one against one.
struct Dissent {
  std::vector<int> voters = {}, units = {}, parts = {};  ///< ascending
  std::uint64_t answers = 0;                             ///< number of different answers
  std::uint64_t expected = 0, actual = 0;                ///< of the first one
};
/// Compares the answers of all voters and sub-partitions that answered, unit by unit. A majority is more than
/// half of them. One entry per outvoted voter, then one for all units without a majority.
std::vector<Dissent> dissents_of(std::span<const VoterAnswers> answers);
/// Calls f(voter, sub-partition, digests by unit) for every answer.
template <typename F>
void for_each_answer(std::span<const VoterAnswers> answers, const F& f) {
  for (int voter = 0; voter < std::ssize(answers); ++voter)
    for (int part = 0; part < sub_partitions; ++part)
      if (answers[static_cast<std::size_t>(voter)].parts >> part & 1)
        f(voter, part, answers[static_cast<std::size_t>(voter)].digest[part]);
}

/// Number of voters that answered.
std::ptrdiff_t voters_of(std::span<const VoterAnswers> answers);

/// Max UnitVote::iterations of a round.
constexpr int max_vote_iterations = 1 << 16;

/// Asks the voters of a device and collects their answers. One thread at a time.
class VoteRound {
 public:
  static Result<std::unique_ptr<VoteRound>> create(Device& device);

  /// Calls the voters until `voters` have answered, or often enough. 0: not known yet. `vote.answers` is
  /// replaced.
  Status ask(UnitVote vote, std::ptrdiff_t voters, const std::stop_token& stop);
  /// Waits for a round that a stop interrupted.
  Status synchronize();
  /// Of the last round.
  std::span<const VoterAnswers> answers() const { return {pinned_.as<VoterAnswers>(), max_unit_voters}; }
  /// Duration of the last round's first call.
  Result<double> busy_ms() const { return device_.busy_ms(*begin_, *end_); }
  int last_calls() const { return calls_; }

 private:
  explicit VoteRound(Device& device) : device_(device) {}

  Device& device_;
  Buffer answers_, pinned_;  ///< VoterAnswers of max_unit_voters
  std::unique_ptr<Event> begin_, end_, copied_;
  int calls_ = 0;
  std::unique_ptr<Stream> stream_;  ///< last: its destructor waits for its work before the buffers are freed
};

/// The arguments of a vote in a reproducer.
Json to_json(const UnitVote& vote);
Result<UnitVote> parse_vote(const Json& call);
/// Repeats the vote. It failed if any voters differ. `voters` as for VoteRound::ask.
Result<Repetitions> repeat_vote(VoteRound& round, const UnitVote& vote, std::ptrdiff_t voters,
                                const RepetitionLimits& limits, const std::stop_token& stop);

}  // namespace egt
