#include "workload/train/state_repair.hpp"

#include <gmock/gmock.h>

#include <set>
#include <vector>

namespace egt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two ranks, tensors 0 and 1; each of the repetition's digests is 1

Answers answers(std::vector<std::uint64_t> digests) {
  Answers all;
  for (const std::uint64_t digest : digests) all.push_back({digest, digest});
  return all;
}
const Answers right = answers({1, 1});

struct Decided {
  std::vector<int> ranks;              ///< -1: suspects
  std::vector<std::size_t> questions;  ///< the first one of each
};
/// `blamed`: per tensor, by the passes.
Decided decided(const std::vector<Answers>& states, const std::vector<std::set<int>>& blamed = {{}, {}},
                bool alike = true) {
  std::vector<Mismatch> dissents = {{0, -1, {0, 1}, Blame::ambiguous, {}, {}, 1}};
  decide_by_repetition(dissents, states, {.alike = alike, .states = right},
                       [&](std::size_t question) { return blamed[question]; });
  Decided found;
  for (const Mismatch& dissent : dissents) {
    found.ranks.push_back(dissent.rank);
    found.questions.push_back(dissent.question);
    EXPECT_EQ(dissent.blame, dissent.rank < 0 ? Blame::ambiguous : Blame::majority);
    EXPECT_EQ(dissent.suspects.empty(), dissent.rank >= 0);
  }
  return found;
}

TEST(DecideByRepetition, ARankWithTheRepetitionsDigestIsRight) {
  EXPECT_THAT(decided({right, answers({5, 1})}, {{0}, {0}}).ranks, ElementsAre(1))
      << "whatever the passes say";
}

TEST(DecideByRepetition, TwoRanksThatAreWrongInTwoTensorsAreBothNamed) {
  const Decided found = decided({answers({5, 1}), answers({1, 6})});
  EXPECT_THAT(found.ranks, ElementsAre(0, 1));
  EXPECT_THAT(found.questions, ElementsAre(0, 1));
}

TEST(DecideByRepetition, ThePassesDecideAfterAnAllReduceHasSpreadTheFault) {
  EXPECT_THAT(decided({answers({5, 1}), answers({6, 1})}, {{1}, {}}).ranks, ElementsAre(1));
}

TEST(DecideByRepetition, ATensorOfAnotherLayerThanTheFirstWrongPassesIsUndecided) {
  const Decided found = decided({answers({5, 7}), answers({6, 8})}, {{0}, {}});
  EXPECT_THAT(found.ranks, ElementsAre(0, -1));
  EXPECT_THAT(found.questions, ElementsAre(0, 1));
}

TEST(DecideByRepetition, EqualStatesThatDifferFromTheRepetitionsAreNoDifferenceOfTheRanks) {
  EXPECT_THAT(decided({answers({5, 7}), answers({5, 7})}, {{0}, {0}}).ranks, IsEmpty());
}

TEST(DecideByRepetition, ARepetitionThatLeavesTheRanksDifferentDecidesNothing) {
  EXPECT_THAT(decided({right, answers({5, 1})}, {{1}, {}}, false).ranks, ElementsAre(-1));
}

}  // namespace
}  // namespace egt
