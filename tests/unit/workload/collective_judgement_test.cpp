#include "workload/collective/collective_judgement.hpp"

#include <set>

#include <gmock/gmock.h>

namespace egt::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Role = CollectiveFinding::Role;

std::uint32_t as_float(std::uint32_t number) {
  return float_bits(static_cast<float>(number));
}

Mismatches found(std::uint64_t index, std::uint32_t expected, std::uint32_t actual, std::uint64_t count = 1) {
  Mismatches m = Mismatches::none();
  m.count = count;
  m.first_index = index;
  m.samples = std::min<std::uint64_t>(count, Mismatches::max_samples);
  m.xor_or = m.xor_and = expected ^ actual;
  for (std::uint64_t i = 0; i < m.samples; ++i) m.sample[i] = {index + i, expected, actual};
  return m;
}

/// A sum in which only field 1 is wrong, and a word that is no sum.
const Mismatches wrong_in_field_1 = found(77, as_float(0x123456), as_float(0x123456 ^ 0x80));
const Mismatches wrong_anywhere = found(77, as_float(0x123456), as_float(0x123456) ^ 0x40000000u);
const Mismatches wrong_elsewhere = found(5, as_float(0x123456), as_float(0x123456 ^ 0x801));
const Mismatches wrong_message = found(77, 0x12345678u, 0x12345679u);

class Judgement : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  RankReports& of(int rank) { return reports[static_cast<std::size_t>(rank)]; }
  Mismatches& block(int receiver, int sender) {
    return of(receiver).blocks[static_cast<std::size_t>(sender)];
  }
  std::vector<CollectiveFinding> judge() const { return judge_round(round, reports); }
  /// The first finding, or an empty one.
  CollectiveFinding first() const {
    const auto findings = judge();
    return findings.empty() ? CollectiveFinding() : findings[0];
  }

  void expect_one(CollectiveKind kind, Role role, int rank, Blame blame) {
    const auto findings = judge();
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].kind, kind);
    EXPECT_EQ(findings[0].role, role) << findings[0].where;
    EXPECT_EQ(findings[0].rank, rank) << findings[0].where;
    EXPECT_EQ(findings[0].blame, blame) << findings[0].where;
    EXPECT_EQ(findings[0].suspects.empty(), blame != Blame::ambiguous);
  }

  CollectiveRound round{.number = 0, .size = GetParam(), .slice = 1000};
  std::vector<RankReports> reports{static_cast<std::size_t>(GetParam()), RankReports(GetParam())};
};

TEST_P(Judgement, NothingWrongNobodyBlamed) {
  EXPECT_THAT(judge(), IsEmpty());
}

TEST_P(Judgement, OneWrongReceiverIsToBlame) {
  for (int rank = 0; rank < size(); ++rank) {
    const auto expect = [&](CollectiveKind kind, Mismatches& report, const Mismatches& wrong) {
      report = wrong;
      expect_one(kind, Role::receiver, rank, Blame::majority);
      EXPECT_EQ(first().count, 1u);
      EXPECT_EQ(first().sample.actual, wrong.sample[0].actual);
      EXPECT_EQ(first().sample.index % 1000, 77u);
      report = Mismatches::none();
    };
    for (const Mismatches& wrong : {wrong_in_field_1, wrong_anywhere}) {
      expect(CollectiveKind::all_reduce, of(rank).all_reduce, wrong);
      expect(CollectiveKind::reduce_scatter, of(rank).reduce_scatter, wrong);
    }
    expect(CollectiveKind::broadcast, of(rank).broadcast, wrong_message);
    expect(CollectiveKind::all_gather, block(rank, 0), wrong_message);
    expect(CollectiveKind::all_gather, block(rank, size() - 1), wrong_message);
  }
}

TEST_P(Judgement, ASumWrongOnAllInOneFieldIsItsSources) {
  for (round.number = 0; round.number < static_cast<std::uint64_t>(size()); ++round.number) {
    for (int rank = 0; rank < size(); ++rank) of(rank).all_reduce = wrong_in_field_1;
    expect_one(CollectiveKind::all_reduce, Role::source, round.source_of(1), Blame::majority);
    for (int rank = 0; rank < size(); ++rank)
      of(rank).all_reduce = found(70, as_float(0x123456), as_float(0x123456 ^ 0x80), 9);
    expect_one(CollectiveKind::all_reduce, Role::source, round.source_of(1), Blame::certain);
  }
}

TEST_P(Judgement, ASumWrongOnAllInMoreThanOneFieldIsAmbiguous) {
  for (const Mismatches& wrong : {wrong_anywhere, wrong_elsewhere}) {
    for (int rank = 0; rank < size(); ++rank) of(rank).all_reduce = wrong;
    expect_one(CollectiveKind::all_reduce, Role::unknown, -1, Blame::ambiguous);
    EXPECT_EQ(first().suspects.size(), static_cast<std::size_t>(size()));
  }
}

TEST_P(Judgement, WrongOnAllEachInItsOwnWayIsAmbiguous) {
  for (int rank = 0; rank < size(); ++rank) {
    of(rank).all_reduce = of(rank).reduce_scatter = of(rank).broadcast =
        found(static_cast<std::uint64_t>(rank), as_float(3), 0xFFFFFFFFu);
  }
  const auto findings = judge();
  ASSERT_EQ(findings.size(), 3u);
  for (const auto& finding : findings) EXPECT_EQ(finding.blame, Blame::ambiguous) << finding.where;
}

TEST_P(Judgement, ABroadcastWrongOnAllIsTheRoots) {
  round.number = static_cast<std::uint64_t>(size()) + 1;
  for (int rank = 0; rank < size(); ++rank) of(rank).broadcast = wrong_message;
  expect_one(CollectiveKind::broadcast, Role::source, 1, Blame::certain);
}

TEST_P(Judgement, WrongOnAllButTheSenderIsAmbiguous) {
  if (size() == 2) GTEST_SKIP() << "that is one receiver";
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == 1) continue;
    of(rank).broadcast = wrong_message;
    block(rank, 1) = wrong_message;
  }
  round.number = 1;
  const auto findings = judge();
  ASSERT_EQ(findings.size(), 2u);
  for (const auto& finding : findings) {
    EXPECT_EQ(finding.blame, Blame::ambiguous);
    EXPECT_EQ(finding.rank, 1);
    EXPECT_EQ(finding.suspects.size(), static_cast<std::size_t>(size()));
  }
}

TEST_P(Judgement, ABlockWrongOnAllIsItsRanks) {
  for (int rank = 0; rank < size(); ++rank) block(rank, 1) = wrong_message;
  expect_one(CollectiveKind::all_gather, Role::source, 1, Blame::certain);
  EXPECT_EQ(first().sample.index, 1077u);
}

TEST_P(Judgement, AReceiverWithManyWrongBlocksIsToldOnce) {
  for (int sender = 0; sender < size(); ++sender) block(1, sender) = wrong_message;
  expect_one(CollectiveKind::all_gather, Role::receiver, 1, Blame::majority);
  EXPECT_EQ(first().count, static_cast<std::uint64_t>(size()));
  EXPECT_EQ(first().sample.index, 77u);
}

TEST_P(Judgement, HalfOfTheReceiversIsNoMinority) {
  if (size() < 4 || size() % 2) GTEST_SKIP() << "needs an even number of ranks, four at least";
  for (int rank = size() / 2; rank < size(); ++rank)
    of(rank).broadcast = found(static_cast<std::uint64_t>(rank), 0x12345678u, 0x12345679u);
  for (const CollectiveFinding& finding : judge())
    EXPECT_EQ(finding.blame, Blame::ambiguous) << finding.where;
  EXPECT_FALSE(judge().empty());
}

TEST_P(Judgement, AMinorityOfReceiversIsToldOneByOne) {
  if (size() < 5) GTEST_SKIP() << "needs five ranks";
  of(1).broadcast = wrong_message;
  of(3).broadcast = wrong_elsewhere;
  const auto findings = judge();
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].rank, 1);
  EXPECT_EQ(findings[1].rank, 3);
  of(3).broadcast = wrong_message;  // one of them forwarded it to the other
  expect_one(CollectiveKind::broadcast, Role::unknown, -1, Blame::ambiguous);
  EXPECT_THAT(first().suspects, ElementsAre(0, 1, 3));
}

TEST_P(Judgement, AReduceScatterIsItsSourcesWhereThatPutItInWrong) {
  for (const Mismatches& slice : {wrong_in_field_1, wrong_anywhere, Mismatches::none()}) {
    const int source = round.source_of(1);
    of(source).put_in = found(1077, as_float(0x80), 0x7F800000u);
    of(0).reduce_scatter = slice;
    expect_one(CollectiveKind::reduce_scatter, Role::source, source, Blame::certain);
  }
}

TEST_P(Judgement, AReduceScatterWrongInOnesPartOfManySlicesIsThatSources) {
  of(0).reduce_scatter = wrong_in_field_1;
  of(1).reduce_scatter = found(3, as_float(0x123456), as_float(0x123456 ^ 0x200));
  expect_one(CollectiveKind::reduce_scatter, Role::source, round.source_of(1), Blame::majority);
}

TEST_P(Judgement, ReportsThatDidNotComeThroughAreSeen) {
  RankReports& damaged = of(size() - 1);
  damaged.broadcast = Mismatches{};
  expect_one(CollectiveKind::all_gather, Role::unknown, -1, Blame::ambiguous);
  EXPECT_THAT(first().where, HasSubstr("the reports of ranks"));
}

TEST_P(Judgement, AllRanksContributeInTurn) {
  std::set<int> contributed, roots;
  for (round.number = 0; round.number < static_cast<std::uint64_t>(size()); ++round.number) {
    roots.insert(round.root());
    int sources = 0;
    for (int rank = 0; rank < size(); ++rank) {
      if (!round.contributes(rank)) continue;
      ++sources;
      contributed.insert(rank);
      EXPECT_EQ(round.source_of(round.field_of(rank)), rank);
    }
    EXPECT_EQ(sources, std::min(size(), 4));
  }
  EXPECT_EQ(contributed.size(), static_cast<std::size_t>(size()));
  EXPECT_EQ(roots.size(), static_cast<std::size_t>(size()));
}

TEST_P(Judgement, AnIncidentIsToldOnceUntilTheSameRoleWentRight) {
  CollectiveIncidents incidents;
  CollectiveFinding at_root{.kind = CollectiveKind::broadcast, .role = Role::source, .rank = 0};
  CollectiveFinding received{.kind = CollectiveKind::broadcast, .role = Role::receiver, .rank = 1};
  const auto begun = [&](std::uint64_t number, const std::vector<CollectiveFinding>& findings) {
    round.number = number;
    return incidents.begin(round, findings).size();
  };
  const auto n = static_cast<std::uint64_t>(size());
  EXPECT_EQ(begun(0, {at_root, received}), 2u);
  EXPECT_EQ(begun(1, {received}), 0u);
  EXPECT_EQ(begun(n, {at_root}), 0u) << "rank 0 was no root meanwhile";
  EXPECT_EQ(begun(n + 1, {received}), 1u) << "the round before was clean of it";
  EXPECT_EQ(begun(2 * n, {}), 0u);
  EXPECT_EQ(begun(3 * n, {at_root}), 1u);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Judgement, ::testing::Values(2, 3, 4, 5, 6, 7, 8, 16));

}  // namespace
}  // namespace egt::test
