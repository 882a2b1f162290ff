#include "workload/common/digest_vote.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace egt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Ranks = std::vector<Answers>;

Digest digest(std::uint64_t a) {
  return {a, ~a};
}

/// One question per rank; 0: this rank has no history.
Ranks voters(const std::vector<std::uint64_t>& values) {
  Ranks ranks;
  for (const std::uint64_t value : values) ranks.push_back(value ? Answers{digest(value)} : Answers{});
  return ranks;
}

std::vector<Mismatch> vote_alone(const Ranks& ranks, const Ranks& past) {
  return vote(ranks, std::vector<int>(ranks.size(), 0), past);
}

std::vector<Mismatch> vote_once(const Ranks& ranks) {
  return vote_alone(ranks, Ranks(ranks.size()));
}

void expect_named(const Mismatch& dissent, int rank, Blame blame, std::size_t question, std::uint64_t count) {
  EXPECT_EQ(dissent.rank, rank);
  EXPECT_EQ(dissent.blame, blame) << "rank " << rank;
  EXPECT_EQ(dissent.question, question) << "rank " << rank;
  EXPECT_EQ(dissent.count, count) << "rank " << rank;
  EXPECT_THAT(dissent.suspects, IsEmpty());
}

void expect_suspects(const std::vector<Mismatch>& found, const std::vector<int>& suspects) {
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, -1);
  EXPECT_EQ(found[0].blame, Blame::ambiguous);
  EXPECT_EQ(found[0].suspects, suspects);
  EXPECT_NE(found[0].expected, found[0].actual);
}

TEST(DigestVote, NobodyNoQuestionsAndAgreementAreNoDoubt) {
  EXPECT_THAT(vote({}, {}, {}), IsEmpty());
  EXPECT_THAT(vote_once(Ranks(3)), IsEmpty());
  EXPECT_THAT(vote_once(voters({5})), IsEmpty());
  EXPECT_THAT(vote_once(voters({5, 5})), IsEmpty());
  EXPECT_THAT(vote_alone(voters({5, 5, 5}), voters({5, 0, 5})), IsEmpty());
}

TEST(DigestVote, AMajorityNamesTheRank) {
  const auto found = vote_once(voters({5, 7, 5}));
  ASSERT_EQ(found.size(), 1u);
  expect_named(found[0], 1, Blame::majority, 0, 1);
  EXPECT_EQ(found[0].expected, digest(5));
  EXPECT_EQ(found[0].actual, digest(7));
}

TEST(DigestVote, OneBitOfEitherHalfCounts) {
  for (const Digest& other : {Digest{5, 8}, Digest{4, 9}}) {
    const auto found = vote_once({{Digest{5, 9}}, {Digest{5, 9}}, {other}});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].rank, 2);
  }
}

TEST(DigestVote, TheFirstQuestionIsToldAndTheOthersCounted) {
  const auto found = vote_once({{digest(1), digest(2), digest(3), digest(4)},
                                {digest(1), digest(9), digest(3), digest(8)},
                                {digest(1), digest(2), digest(3), digest(4)}});
  ASSERT_EQ(found.size(), 1u);
  expect_named(found[0], 1, Blame::majority, 1, 2);
  EXPECT_EQ(found[0].expected, digest(2));
  EXPECT_EQ(found[0].actual, digest(9));
}

TEST(DigestVote, TwoThatDifferAreBothSuspects) {
  expect_suspects(vote_once(voters({5, 7})), {0, 1});
}

TEST(DigestVote, WithoutAMajorityAllThatDifferAreSuspects) {
  expect_suspects(vote_once(voters({1, 2, 3})), {0, 1, 2});
  expect_suspects(vote_once(voters({1, 1, 2, 2})), {0, 1, 2, 3});
}

TEST(DigestVote, SuspectsOfSeveralQuestionsAreOneDissent) {
  const auto found = vote_once({{digest(1), digest(2)}, {digest(9), digest(8)}});
  expect_suspects(found, {0, 1});
  EXPECT_EQ(found[0].question, 0u);
  EXPECT_EQ(found[0].count, 2u);
}

TEST(DigestVote, ThePastDecidesBetweenTwo) {
  const auto found = vote_alone(voters({5, 7}), voters({5, 5}));
  ASSERT_EQ(found.size(), 1u);
  expect_named(found[0], 1, Blame::certain, 0, 1);
  EXPECT_EQ(found[0].expected, digest(5));
  EXPECT_EQ(found[0].actual, digest(7));
}

TEST(DigestVote, ARankAloneIsHeldAgainstItsPast) {
  EXPECT_THAT(vote_alone(voters({5}), voters({5})), IsEmpty());
  const auto found = vote_alone(voters({7}), voters({5}));
  ASSERT_EQ(found.size(), 1u);
  expect_named(found[0], 0, Blame::certain, 0, 1);
}

TEST(DigestVote, AMajorityThatLeftItsPastIsWrong) {
  const auto found = vote_alone(voters({7, 7, 5}), voters({5, 5, 5}));
  ASSERT_EQ(found.size(), 2u);
  expect_named(found[0], 0, Blame::certain, 0, 1);
  expect_named(found[1], 1, Blame::certain, 0, 1);
}

TEST(DigestVote, ARankWithoutPastIsHeldAgainstTheOthersPast) {
  const auto found = vote_alone(voters({5, 5, 7, 5}), voters({5, 5, 0, 0}));
  ASSERT_EQ(found.size(), 1u);
  expect_named(found[0], 2, Blame::majority, 0, 1);
  // Two changed alike, and the rank without history agrees with their earlier value, so it is right.
  const auto left = vote_alone(voters({7, 7, 5}), voters({5, 5, 0}));
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].rank, 0);
  EXPECT_EQ(left[1].rank, 1);
}

TEST(DigestVote, PastsThatDifferAreUndecidedOrOutvoted) {
  expect_suspects(vote_alone(voters({5, 7}), voters({5, 7})), {0, 1});
  expect_suspects(vote_alone(voters({5, 7}), voters({5, 0})), {0, 1});
  const auto found = vote_alone(voters({5, 7, 5}), voters({5, 7, 0}));
  ASSERT_EQ(found.size(), 1u);
  expect_named(found[0], 1, Blame::majority, 0, 1);
}

TEST(DigestVote, AChangeOfAllAlikeIsNobodysAlone) {
  const auto found = vote_alone(voters({7, 7, 7}), voters({5, 5, 0}));
  expect_suspects(found, {0, 1});
  EXPECT_EQ(found[0].expected, digest(5));
  EXPECT_EQ(found[0].actual, digest(7));
  // A rank that alone changes its answer is blamed, though it now agrees with the other ranks.
  const auto alone = vote_alone(voters({7, 7, 7}), voters({5, 0, 0}));
  ASSERT_EQ(alone.size(), 1u);
  expect_named(alone[0], 0, Blame::certain, 0, 1);
}

TEST(DigestVote, ARankWrongElsewhereIsNoWitness) {
  // On question 0 it is two against two; rank 3 is wrong on question 1, so rank 2 is in the minority.
  const auto found = vote_once(
      {{digest(1), digest(2)}, {digest(1), digest(2)}, {digest(9), digest(2)}, {digest(9), digest(3)}});
  ASSERT_EQ(found.size(), 2u);
  expect_named(found[0], 2, Blame::majority, 0, 1);
  expect_named(found[1], 3, Blame::majority, 0, 2);
}

TEST(DigestVote, ANamedRankIsNotASuspectToo) {
  // Three answers to question 0; question 1 identifies rank 1; ranks 0 and 2 remain undecided.
  const auto found = vote_once({{digest(1), digest(2)}, {digest(7), digest(9)}, {digest(3), digest(2)}});
  ASSERT_EQ(found.size(), 2u);
  expect_named(found[0], 1, Blame::majority, 1, 1);
  EXPECT_EQ(found[1].rank, -1);
  EXPECT_THAT(found[1].suspects, ElementsAre(0, 2));
}

TEST(DigestVote, GroupsAreIndependent) {
  // Groups 4: ranks 0, 2, 4; 1: ranks 1, 3; 9: rank 5. Answers of different groups do not agree.
  const auto found = vote(voters({5, 6, 5, 8, 7, 9}), {4, 1, 4, 1, 4, 9}, Ranks(6));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].rank, -1);
  EXPECT_THAT(found[0].suspects, ElementsAre(1, 3));
  expect_named(found[1], 4, Blame::majority, 0, 1);
  EXPECT_EQ(found[1].expected, digest(5));
}

/// A random job: its groups, the correct answers of each group, and ranks that give them.
struct Job {
  Ranks ranks, past;
  std::vector<int> group;
  std::size_t questions = 0;
};

Job random_job(std::mt19937_64& random) {
  Job job;
  job.questions = 1 + random() % 6;
  const std::size_t groups = 1 + random() % 3;
  std::vector<Answers> truth(groups, Answers(job.questions));
  for (Answers& answers : truth)
    for (Digest& one : answers) one = {random(), random()};
  const std::size_t ranks = 1 + random() % 8;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t g = random() % groups;
    job.group.push_back(static_cast<int>(g));
    job.ranks.push_back(truth[g]);
    job.past.push_back(random() % 2 ? truth[g] : Answers{});
  }
  return job;
}

std::vector<int> members_of(const Job& job, int group) {
  std::vector<int> members;
  for (std::size_t r = 0; r < job.group.size(); ++r)
    if (job.group[r] == group) members.push_back(static_cast<int>(r));
  return members;
}

/// Corrupts answers of fewer than half of each group, half of the time all in the same way. Returns what
/// `vote` must find, by rank: the first question and the count.
std::map<int, std::pair<std::size_t, std::uint64_t>> corrupt(Job& job, std::mt19937_64& random) {
  std::map<int, std::pair<std::size_t, std::uint64_t>> wrong;
  const Digest same{random() | 1, 0};
  for (int g = 0; g < 3; ++g) {
    std::vector<int> members = members_of(job, g);
    std::shuffle(members.begin(), members.end(), random);
    const std::size_t count = members.empty() ? 0 : random() % ((members.size() + 1) / 2);
    for (std::size_t i = 0; i < count; ++i) {
      std::set<std::size_t> questions;
      for (std::uint64_t n = 1 + random() % 3; n > 0; --n) questions.insert(random() % job.questions);
      for (const std::size_t q : questions) {
        Digest& one = job.ranks[static_cast<std::size_t>(members[i])][q];
        one.a ^= random() % 2 ? same.a : std::uint64_t{1} << random() % 64;
      }
      wrong[members[i]] = {*questions.begin(), questions.size()};
    }
  }
  return wrong;
}

TEST(DigestVote, AMillionAgreementsGiveNoAlarm) {
  std::mt19937_64 random(1);
  std::uint64_t comparisons = 0;
  while (comparisons < 1'000'000) {
    const Job job = random_job(random);
    ASSERT_THAT(vote(job.ranks, job.group, job.past), IsEmpty());
    comparisons += job.ranks.size() * job.questions;
  }
}

TEST(DigestVote, FewerThanHalfCorruptedAreAllNamedAndNobodyElse) {
  std::mt19937_64 random(2);
  std::uint64_t corrupted = 0;
  for (int round = 0; round < 20'000; ++round) {
    Job job = random_job(random);
    const auto wrong = corrupt(job, random);
    corrupted += wrong.size();
    const auto found = vote(job.ranks, job.group, job.past);
    ASSERT_EQ(found.size(), wrong.size()) << "round " << round;
    for (const Mismatch& dissent : found) {
      ASSERT_TRUE(wrong.contains(dissent.rank)) << "round " << round << ", rank " << dissent.rank;
      const auto r = static_cast<std::size_t>(dissent.rank);
      const auto& [question, count] = wrong.at(dissent.rank);
      expect_named(dissent, dissent.rank, job.past[r].empty() ? Blame::majority : Blame::certain, question,
                   count);
      EXPECT_EQ(dissent.actual, job.ranks[r][question]);
      EXPECT_NE(dissent.expected, dissent.actual);
    }
  }
  EXPECT_GT(corrupted, 8'000u);
}

TEST(DigestVote, AnyDifferenceIsDoubtedAndEveryRankAtMostOnce) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    Job job = random_job(random);
    bool differ = false;
    for (std::size_t r = 0; r < job.ranks.size(); ++r)
      for (std::size_t q = 0; q < job.questions; ++q) {
        if (random() % 3 == 0) job.ranks[r][q].a ^= random() % 3;
        differ |= !job.past[r].empty() && job.past[r][q] != job.ranks[r][q];
        for (std::size_t other = 0; other < r; ++other)
          differ |= job.group[other] == job.group[r] && job.ranks[other][q] != job.ranks[r][q];
      }
    const auto found = vote(job.ranks, job.group, job.past);
    ASSERT_EQ(found.empty(), !differ) << "round " << round;
    std::set<int> doubted;
    for (const Mismatch& dissent : found) {
      for (const int rank : dissent.suspects) EXPECT_TRUE(doubted.insert(rank).second) << rank;
      if (dissent.rank >= 0) {
        EXPECT_TRUE(doubted.insert(dissent.rank).second) << dissent.rank;
      }
      EXPECT_EQ(dissent.rank < 0, !dissent.suspects.empty());
    }
  }
}

TEST(Difference, IsTheFirstWrongQuestionAndTheirNumber) {
  const Answers right = {{1, 1}, {2, 2}, {3, 3}};
  EXPECT_FALSE(difference(right, right));
  const auto found = difference(right, {{1, 1}, {2, 4}, {5, 3}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->question, 1u);
  EXPECT_EQ(found->count, 2u);
  EXPECT_EQ(found->expected, (Digest{2, 2}));
  EXPECT_EQ(found->actual, (Digest{2, 4}));
}

}  // namespace
}  // namespace egt
