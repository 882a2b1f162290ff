#include "workload/links/link_judgement.hpp"

#include <gmock/gmock.h>

#include "tests/support/link_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double giga = 1e9;

/// Every direction between these endpoints in GB/s; `spread`: relative advantage of the best repeat.
std::vector<LinkFigure> figures_of(const std::vector<LinkEndpoint>& ends, double rate, double spread = 1.01) {
  std::vector<LinkFigure> figures;
  for (const LinkEndpoint& a : ends)
    for (const LinkEndpoint& b : ends)
      if (a.rank != b.rank)
        figures.push_back({.from = a.rank,
                           .to = b.rank,
                           .type = classify(a, b),
                           .median = rate * giga,
                           .best = rate * giga * spread});
  return figures;
}

/// Both directions between two ranks.
void slow_down(std::vector<LinkFigure>& figures, int a, int b, double rate) {
  for (LinkFigure& figure : figures)
    if ((figure.from == a && figure.to == b) || (figure.from == b && figure.to == a)) {
      figure.median = rate * giga;
      figure.best = rate * giga * 1.01;
    }
}

std::vector<std::string> places(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.kind, "link");
    EXPECT_TRUE(finding.expected && finding.actual && *finding.actual < *finding.expected);
    all.push_back(finding.where);
  }
  return all;
}

TEST(JudgeLinks, HealthyH200sAreFine) {
  const auto ends = h200_node(4);
  EXPECT_THAT(judge_links(figures_of(ends, 393), ends, 2.5e9), IsEmpty());
}

TEST(JudgeLinks, ASlowPairIsNamedWithItsFigures) {
  const auto ends = h200_node(4);
  auto figures = figures_of(ends, 393);
  slow_down(figures, 1, 3, 180);
  const auto findings = judge_links(figures, ends, 2.5e9);
  ASSERT_THAT(places(findings), ElementsAre("rank 1 <-> rank 3"));
  EXPECT_EQ(findings[0].rank, -1);
  EXPECT_THAT(findings[0].ranks, ElementsAre(1, 3));
  EXPECT_THAT(findings[0].text, HasSubstr("NVLink 4 x18 through NVSwitch"));
  EXPECT_THAT(findings[0].text, HasSubstr("180 GB/s"));
  EXPECT_NEAR(*findings[0].actual, 180, 0.1);
  EXPECT_NEAR(*findings[0].expected, 0.9 * 393, 0.1) << "the highest of the limits that it is below";
}

TEST(JudgeLinks, OneDirectionAlone) {
  const auto ends = h200_node(4);
  auto figures = figures_of(ends, 393);
  for (LinkFigure& figure : figures)
    if (figure.from == 2 && figure.to == 0) figure.median = figure.best = 100 * giga;
  EXPECT_THAT(places(judge_links(figures, ends, 0)), ElementsAre("rank 2 -> rank 0"));
}

TEST(JudgeLinks, AGoodRepeatDoesNotClearABadMedian) {
  const auto ends = h200_node(4);
  auto figures = figures_of(ends, 393);
  slow_down(figures, 1, 3, 8);
  for (LinkFigure& figure : figures) {
    figure.best = 393 * giga;
    figure.lowest = 7 * giga;
  }
  const auto findings = judge_links(figures, ends, 2.5e9);
  ASSERT_THAT(places(findings), ElementsAre("rank 1 <-> rank 3"));
  EXPECT_THAT(findings[0].text, HasSubstr(", unstable: 7 to 393 GB/s"));
}

TEST(JudgeLinks, CoresAreSharedWithTheSystemSoTheBestRepeatCounts) {
  const std::vector<LinkEndpoint> ends = {host_end(0), host_end(1), host_end(2), host_end(3)};
  auto figures = figures_of(ends, 10);
  for (LinkFigure& figure : figures) figure.needs_cores = true;
  slow_down(figures, 0, 1, 1);
  EXPECT_THAT(places(judge_links(figures, ends, 0)), ElementsAre("rank 0 <-> rank 1"));
  for (LinkFigure& figure : figures) figure.best = 10 * giga;
  EXPECT_THAT(judge_links(figures, ends, 0), IsEmpty());
  slow_down(figures, 0, 1, 1);
  for (LinkFigure& figure : figures) figure.is_judged = false;
  EXPECT_THAT(judge_links(figures, ends, 0), IsEmpty());
  EXPECT_THAT(places(judge_links(figures, ends, 2.5e9)), ElementsAre("rank 0 <-> rank 1"));
}

TEST(JudgeLinks, EachLimitByItself) {
  const auto ends = h200_node(4);
  // All equal, so no pair is below its peers: 75 % of 450 GB/s are 337.5.
  EXPECT_THAT(judge_links(figures_of(ends, 338), ends, 0), IsEmpty());
  EXPECT_THAT(places(judge_links(figures_of(ends, 330), ends, 0)), ElementsAre("every pair"));
  EXPECT_THAT(judge_links(figures_of(ends, 330), ends, 0)[0].ranks, ElementsAre(0, 1, 2, 3));
  // Without a line rate, only the limit set by the user applies.
  std::vector<LinkEndpoint> unknown;
  for (int rank = 0; rank < 4; ++rank) {
    unknown.push_back(gpu_end(rank));
    unknown.back().links = {};
  }
  EXPECT_THAT(judge_links(figures_of(unknown, 1), unknown, 0), IsEmpty());
  const auto below = judge_links(figures_of(unknown, 1), unknown, 2.5e9);
  ASSERT_THAT(places(below), ElementsAre("every pair"));
  EXPECT_THAT(below[0].text, HasSubstr("--warn-below 20 Gb/s"));
}

TEST(JudgeLinks, AllLinksOfARank) {
  const auto ends = h200_node(4);
  auto figures = figures_of(ends, 393);
  for (const int other : {0, 1, 3}) slow_down(figures, 2, other, 200);
  const auto findings = judge_links(figures, ends, 0);
  ASSERT_THAT(places(findings), ElementsAre("all links of rank 2"));
  EXPECT_EQ(findings[0].rank, 2);
  EXPECT_EQ(findings[0].hostname, "node1");
  EXPECT_THAT(findings[0].text, HasSubstr("rank 2 <-> rank 3"));
}

TEST(JudgeLinks, ASlowRankIsMostOfTheMedianOfFewRanks) {
  // One rank of three: two of three pairs are slow; one of four: half. 85 % is above 75 % of the line rate.
  for (const int ranks : {3, 4}) {
    const auto ends = h200_node(ranks);
    auto figures = figures_of(ends, 393 / 0.85);
    for (int other = 0; other < ranks; ++other)
      if (other != 1) slow_down(figures, 1, other, 393);
    const auto findings = judge_links(figures, ends, 0);
    ASSERT_THAT(places(findings), ElementsAre("all links of rank 1")) << ranks;
    EXPECT_THAT(findings[0].text, HasSubstr("90 % of the median of such pairs without rank 1, 462 GB/s"));
  }
}

TEST(JudgeLinks, TheLinkBetweenTwoHosts) {
  std::vector<LinkEndpoint> ends = {h200_end(0, "hosta"), h200_end(1, "hosta"), h200_end(2, "hostb"),
                                    h200_end(3, "hostb"), h200_end(4, "hostc"), h200_end(5, "hostc")};
  auto figures = figures_of(ends, 393);
  for (LinkFigure& figure : figures)
    if (figure.type.kind == LinkKind::network) figure.median = figure.best = 3 * giga;
  EXPECT_THAT(judge_links(figures, ends, 2.5e9), IsEmpty());
  for (const int a : {0, 1})
    for (const int b : {4, 5}) slow_down(figures, a, b, 0.0125);
  slow_down(figures, 2, 3, 180);
  EXPECT_THAT(places(judge_links(figures, ends, 2.5e9)), ElementsAre("hosta <-> hostc", "rank 2 <-> rank 3"));
}

TEST(JudgeLinks, OneRankAHost) {
  std::vector<LinkEndpoint> ends = {host_end(0, "hosta"), host_end(1, "hostb"), host_end(2, "hostc")};
  auto figures = figures_of(ends, 1);
  slow_down(figures, 0, 2, 0.0125);
  EXPECT_THAT(places(judge_links(figures, ends, 0)), ElementsAre("rank 0 <-> rank 2"));
}

TEST(JudgeLinks, HostMemoryIsRough) {
  const std::vector<LinkEndpoint> ends = {host_end(0), host_end(1), host_end(2), host_end(3)};
  auto figures = figures_of(ends, 10);
  slow_down(figures, 0, 1, 3);
  EXPECT_THAT(judge_links(figures, ends, 0), IsEmpty());
  slow_down(figures, 0, 1, 1);
  EXPECT_THAT(places(judge_links(figures, ends, 0)), ElementsAre("rank 0 <-> rank 1"));
}

TEST(JudgeLinks, TypesAreNotHeldAgainstEachOther) {
  std::vector<LinkEndpoint> ends = h200_node(4);
  ends[3].links.nvlinks.clear();  // 3 reaches the other ranks by PCIe only
  auto figures = figures_of(ends, 393);
  for (const int other : {0, 1, 2}) slow_down(figures, 3, other, 50);
  EXPECT_THAT(judge_links(figures, ends, 2.5e9), IsEmpty());
  slow_down(figures, 3, 1, 40);
  EXPECT_THAT(places(judge_links(figures, ends, 2.5e9)), ElementsAre("rank 1 <-> rank 3"));
}

TEST(JudgeLinks, ManyPairsAreCounted) {
  const auto ends = h200_node(8);
  const auto findings = judge_links(figures_of(ends, 100), ends, 0);
  ASSERT_THAT(places(findings), ElementsAre("every pair"));
  EXPECT_THAT(findings[0].text, HasSubstr("and 20 more"));
}

TEST(JudgeHostLink, ByItsLineRateAlone) {
  const LinkEndpoint end = gpu_end(2);  // PCIe 5 x16: 63 GB/s
  EXPECT_FALSE(judge_host_link(end, "host to device", 55e9));
  const auto slow = judge_host_link(end, "host to device", 27e9);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 2);
  EXPECT_EQ(slow->where, "host to device");
  EXPECT_THAT(slow->text, HasSubstr("75 % of the line rate of 63 GB/s"));
  EXPECT_FALSE(judge_host_link(host_end(0), "host to device", 1));
}

TEST(CommonRank, IsToBlameWhereSeveralPairsShareIt) {
  EXPECT_EQ(common_rank({}), std::nullopt);
  EXPECT_EQ(common_rank({{0, 2}}), std::nullopt);
  EXPECT_EQ(common_rank({{0, 2}, {0, 2}}), std::nullopt) << "one pair, by two methods";
  EXPECT_EQ(common_rank({{0, 2}, {2, 3}}), 2);
  EXPECT_EQ(common_rank({{0, 2}, {0, 3}, {0, 1}}), 0);
  EXPECT_EQ(common_rank({{0, 2}, {1, 3}}), std::nullopt);
  EXPECT_EQ(common_rank({{0, 1}, {0, 2}, {1, 2}}), std::nullopt);
}

}  // namespace
}  // namespace egt
