#include "workload/links/link_remeasure.hpp"

#include <gmock/gmock.h>

#include "tests/support/link_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;
using testing::IsEmpty;
using testing::SizeIs;

/// GB/s from a to b and back.
PairResult pair_of(int a, int b, double forth, double back, LinkMethod method = LinkMethod::exchange) {
  PairResult pair;
  pair.state = PairResult::State::done;
  pair.a = a;
  pair.b = b;
  pair.method = method;
  const bool receiver_times = method == LinkMethod::exchange;
  for (const bool from_a : {true, false}) {
    PairSide& side = from_a == receiver_times ? pair.side_b : pair.side_a;
    const double seconds = 1 / (from_a ? forth : back);
    side.largest = 1'000'000'000;
    side.one_way_largest = {.median = seconds, .least = 0.99 * seconds, .most = 1.1 * seconds};
  }
  return pair;
}

/// All pairs of four ranks with both methods; copies are faster.
std::vector<PairResult> all_pairs() {
  std::vector<PairResult> pairs;
  for (const LinkMethod method : {LinkMethod::exchange, LinkMethod::copy})
    for (int a = 0; a < 4; ++a)
      for (int b = a + 1; b < 4; ++b) {
        const double rate = method == LinkMethod::copy ? 393 : 380;
        pairs.push_back(pair_of(a, b, rate, rate, method));
      }
  return pairs;
}

TEST(DirectionsOf, TakeTheBetterMethodOfEach) {
  auto pairs = all_pairs();
  pairs[6] = pair_of(0, 1, 390, 100, LinkMethod::copy);
  const auto directions = directions_of(pairs, h200_node(4));
  ASSERT_THAT(directions, SizeIs(12));
  EXPECT_NEAR(directions[0].median, 390e9, 1);
  EXPECT_EQ(directions[0].source, 6u);
  for (const LinkFigure& one : directions)
    if (one.from == 1 && one.to == 0) {
      EXPECT_NEAR(one.median, 380e9, 1);
      EXPECT_EQ(one.source, 0u);
    }
  pairs[6].state = PairResult::State::lost;
  EXPECT_EQ(directions_of(pairs, h200_node(4))[0].source, 0u);
}

TEST(PairToMeasureAgain, NoneWhereAllIsWell) {
  EXPECT_EQ(pair_to_measure_again(all_pairs(), h200_node(4), 0), std::nullopt);
  EXPECT_EQ(pair_to_measure_again({}, h200_node(4), 0), std::nullopt);
}

TEST(PairToMeasureAgain, TheSlowestAsOftenAsTheOthers) {
  auto pairs = all_pairs();
  pairs[1] = pair_of(0, 2, 200, 200);
  pairs[7] = pair_of(0, 2, 210, 380, LinkMethod::copy);
  pairs[5] = pair_of(2, 3, 90, 100);
  pairs[11] = pair_of(2, 3, 80, 100, LinkMethod::copy);
  std::vector<std::size_t> chosen;
  while (const auto which = pair_to_measure_again(pairs, h200_node(4), 0)) {
    chosen.push_back(*which);
    pairs[*which].others.emplace_back();
    ASSERT_LE(chosen.size(), 20u);
  }
  // With the faster method of the slow direction: 0 -> 2 by copies; 2 -> 3 by exchange, 3 -> 2 by either.
  ASSERT_GE(chosen.size(), 4u);
  EXPECT_EQ(chosen[0], 5u);
  EXPECT_EQ(chosen[1], 7u);
  for (const PairResult& pair : pairs) EXPECT_LE(pair.looks(), max_looks);
  EXPECT_EQ(pairs[7].looks(), max_looks);
}

TEST(AddLook, OneThatWasSlowOnceIsNotSlow) {
  const auto ends = h200_node(4);
  auto pairs = all_pairs();
  for (const std::size_t i : {4u, 10u}) pairs[i] = pair_of(1, 3, 393, 150, pairs[i].method);
  EXPECT_THAT(judge_links(directions_of(pairs, ends), ends, 0), SizeIs(1));
  add_look(pairs[4], pair_of(1, 3, 391, 390));
  EXPECT_THAT(judge_links(directions_of(pairs, ends), ends, 0), SizeIs(1)) << "one against one";
  add_look(pairs[4], pair_of(1, 3, 392, 389));
  EXPECT_THAT(judge_links(directions_of(pairs, ends), ends, 0), IsEmpty());
  EXPECT_EQ(pairs[4].looks(), 3);
}

TEST(AddLook, OneThatWasSlowTwiceOfThreeIsSlow) {
  const auto ends = h200_node(4);
  auto pairs = all_pairs();
  for (const std::size_t i : {4u, 10u}) pairs[i] = pair_of(1, 3, 393, 150, pairs[i].method);
  add_look(pairs[4], pair_of(1, 3, 391, 390));
  add_look(pairs[4], pair_of(1, 3, 140, 393));
  const auto findings = judge_links(directions_of(pairs, ends), ends, 0);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_NEAR(*findings[0].actual, 150, 1) << "the median look's";
  EXPECT_THAT(findings[0].text, testing::HasSubstr("unstable"));
}

/// Ranks of a machine with two cores.
std::vector<LinkEndpoint> host_ends(int ranks) {
  std::vector<LinkEndpoint> ends;
  for (int rank = 0; rank < ranks; ++rank) {
    ends.push_back(host_end(rank));
    ends.back().cpus = {0, 1};
  }
  return ends;
}

TEST(DirectionsOf, AreNotJudgedBetweenRanksThatShareCores) {
  auto two = host_ends(2), three = host_ends(3);
  EXPECT_TRUE(directions_of({pair_of(0, 1, 10, 1)}, two)[0].is_judged);
  EXPECT_TRUE(directions_of({pair_of(0, 1, 10, 1)}, two)[0].needs_cores);
  for (const LinkFigure& one : directions_of({pair_of(0, 1, 10, 1)}, three)) EXPECT_FALSE(one.is_judged);
  two[0].cpus = two[1].cpus = {1};  // bound to one core
  EXPECT_FALSE(directions_of({pair_of(0, 1, 10, 1)}, two)[0].is_judged);
  three[2].machine = "another";
  EXPECT_TRUE(directions_of({pair_of(0, 1, 10, 1)}, three)[0].is_judged);
  three[2] = gpu_end(2);
  EXPECT_TRUE(directions_of({pair_of(0, 1, 10, 1)}, three)[0].is_judged) << "which needs no core";
  EXPECT_EQ(link_end_from(to_json(two[0])).cpus, std::vector<int>{1});
}

TEST(AddLook, OneThatDidNotComeThroughChangesNoFigureAndIsTheLast) {
  const auto ends = h200_node(4);
  auto pairs = all_pairs();
  for (const std::size_t i : {4u, 10u}) pairs[i] = pair_of(1, 3, 150, 150, pairs[i].method);
  const auto which = pair_to_measure_again(pairs, ends, 0);
  ASSERT_TRUE(which);
  PairResult lost = pair_of(1, 3, 393, 393);
  lost.state = PairResult::State::lost;
  add_look(pairs[*which], lost);
  EXPECT_EQ(pairs[*which].looks(), 1);
  EXPECT_NE(pair_to_measure_again(pairs, ends, 0), which);
  EXPECT_THAT(judge_links(directions_of(pairs, ends), ends, 0), SizeIs(1));
}

}  // namespace
}  // namespace egt
