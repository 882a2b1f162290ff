// Conversion of a trial's metrics into result entries.
#include "workload/links/link_results.hpp"

#include <gmock/gmock.h>

#include "tests/support/link_fixtures.hpp"
#include "workload/links/link_injections.hpp"

namespace egt {
namespace {

using namespace fixtures;
using testing::HasSubstr;

/// 1 GB one way in 2.5 ms, both ways in 2.6 ms.
PairSide side(double one_way = 2.5e-3) {
  PairSide side;
  side.largest = 1'000'000'000;
  side.repeats = 10;
  side.latency = {.median = 1.2e-5, .low = 1.1e-5, .high = 1.3e-5};
  const auto sizes = link_sizes(side.largest);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    side.one_way[i] = one_way * static_cast<double>(sizes[i]) * 1e-9;
    side.both_ways[i] = 2.6e-12 * static_cast<double>(sizes[i]);
  }
  side.one_way_largest = {.median = one_way, .least = 0.96 * one_way, .most = 1.2 * one_way};
  side.both_largest = {.median = 2.6e-3, .least = 2.5e-3, .most = 2.7e-3};
  return side;
}

PairResult pair_result(LinkMethod method) {
  PairResult result;
  result.state = PairResult::State::done;
  result.a = 0;
  result.b = 2;
  result.method = method;
  result.side_a = side(2.5e-3);
  result.side_b = side(5e-3);
  return result;
}

TEST(TimingOf, MedianAndEnds) {
  const LinkTiming odd = timing_of({3, 1, 2}), even = timing_of({4, 1, 2, 3});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(even.least, 1);
  EXPECT_EQ(even.most, 4);
  EXPECT_FALSE(timing_of({}).is_measured());
  const Json json = bandwidth_json(1e9, {.median = 2.5e-3, .least = 2e-3, .most = 3e-3});
  EXPECT_NEAR(json["gb_per_second"], 400, 1e-6);
  EXPECT_NEAR(json["gbit_per_second"], 3200, 1e-6);
  EXPECT_NEAR(json["highest_gb_per_second"], 500, 1e-6);
  EXPECT_NEAR(json["spread_percent"], 40, 1e-6);
  EXPECT_TRUE(bandwidth_json(1e9, {})["gb_per_second"].is_null());
}

/// Blocks of about 2 us; every `strange`th takes 40 times as long, because of a late host or not.
std::vector<LinkRepeat> blocks_of(int count, int strange, bool led) {
  std::vector<LinkRepeat> blocks;
  for (int i = 0; i < count; ++i) {
    const double seconds = 2e-6 * (1 + 0.01 * (i % 5));
    blocks.push_back(i % strange == 0 ? LinkRepeat{40 * seconds, led} : LinkRepeat{seconds, true});
  }
  return blocks;
}

TEST(LatencyOf, IsThatOfTheBlocksThatTheHostWasAheadOf) {
  const LinkLatency latency = latency_of(blocks_of(25, 2, false));
  EXPECT_NEAR(latency.median, 2.04e-6, 0.05e-6);
  EXPECT_FALSE(latency.scatters());
  EXPECT_FALSE(latency_of(blocks_of(25, 1, false)).is_measured()) << "the host's time alone is no latency";
  EXPECT_FALSE(latency_of({}).is_measured());
  std::vector<LinkRepeat> few(25, LinkRepeat{2e-6, false});
  std::fill_n(few.begin(), 8, LinkRepeat{2e-6, true});
  EXPECT_FALSE(latency_of(few).is_measured()) << "less than a third of them";
  few[8].led = true;
  EXPECT_TRUE(latency_of(few).is_measured());
}

TEST(LatencyOf, AFewLongBlocksDoNotMoveIt) {
  const LinkLatency latency = latency_of(blocks_of(25, 8, true));
  EXPECT_NEAR(latency.median, 2.04e-6, 0.05e-6);
  EXPECT_FALSE(latency.scatters());
}

TEST(LatencyOf, SaysWhereItScatters) {
  const LinkLatency latency = latency_of(blocks_of(25, 3, true));
  EXPECT_TRUE(latency.scatters());
  const Json json = latency_json(latency);
  EXPECT_NEAR(json["latency_us"], 2.04, 0.05);
  EXPECT_NEAR(json["latency_quartiles_us"][0], 2, 0.05);
  EXPECT_GT(json["latency_quartiles_us"][1], 40);
  EXPECT_EQ(json["latency_scatters"], true);
  const Json none = latency_json({});
  for (const auto& [name, value] : none.items()) EXPECT_TRUE(value.is_null()) << name;
}

TEST(PairReport, AnExchangeIsTimedByWhoReceivesACopyByWhoSends) {
  const auto ends = h200_node(3);
  const Json exchange = pair_report(pair_result(LinkMethod::exchange), ends).figures;
  EXPECT_NEAR(exchange["one_way"]["0->2"]["gb_per_second"], 200, 1e-6);
  EXPECT_NEAR(exchange["one_way"]["2->0"]["gb_per_second"], 400, 1e-6);
  const Json copy = pair_report(pair_result(LinkMethod::copy), ends).figures;
  EXPECT_NEAR(copy["one_way"]["0->2"]["gb_per_second"], 400, 1e-6);
  EXPECT_NEAR(copy["one_way"]["2->0"]["gb_per_second"], 200, 1e-6);
}

TEST(PairReport, TellsWhichDirectionIsBelowItsLimit) {
  const Json figures = pair_report(pair_result(LinkMethod::copy), h200_node(3), {{2, 0}}).figures;
  EXPECT_EQ(figures["one_way"]["0->2"]["below_limit"], false);
  EXPECT_EQ(figures["one_way"]["2->0"]["below_limit"], true);
  EXPECT_TRUE(figures["not_judged"].is_null());
}

TEST(PairReport, TellsAllThatWasMeasured) {
  const auto ends = h200_node(3);
  const PartReport part = pair_report(pair_result(LinkMethod::exchange), ends);
  EXPECT_EQ(part.name, "pair 0-2 by NCCL");
  EXPECT_TRUE(part.success && part.of_all_ranks);
  const Json& figures = part.figures;
  EXPECT_EQ(figures["link"]["text"], "NVLink 4 x18 through NVSwitch");
  EXPECT_EQ(figures["link"]["line_rate_gb_per_second"], 450);
  EXPECT_NEAR(figures["both_ways"]["gb_per_second"], 2 / 2.6e-3, 1e-6);
  EXPECT_NEAR(figures["ratio_line_rate"], 200.0 / 450, 1e-9) << "of the slower way";
  EXPECT_NEAR(figures["latency_us"], 12, 1e-9);
  EXPECT_EQ(figures["sizes"].size(), 10u);
  for (const char* way : {"0->2", "2->0", "both"}) EXPECT_EQ(figures["bandwidths"][way].size(), 10u);
  EXPECT_LT(figures.dump().size(), 3000u) << "every progress record has all of them";
}

TEST(PairReport, FailedAndImpossibleOnesNameWhy) {
  const auto ends = h200_node(3);
  PairResult result = pair_result(LinkMethod::copy);
  result.state = PairResult::State::impossible;
  result.why = "no peer access";
  PartReport part = pair_report(result, ends);
  EXPECT_TRUE(part.success);
  EXPECT_EQ(part.figures["not_possible"], "no peer access");
  EXPECT_TRUE(part.figures["one_way"].is_null());
  result.state = PairResult::State::lost;
  result.why = "rank 0 and rank 2 did not come through it";
  part = pair_report(result, ends);
  EXPECT_FALSE(part.success);
  EXPECT_THAT(part.failure, HasSubstr("rank 0 and rank 2"));
  EXPECT_TRUE(part.figures["not_possible"].is_null());
}

TEST(CollectiveReport, BandwidthsOfNcclTests) {
  CollectiveResult result;
  result.collective = CollectiveKind::all_reduce;
  result.is_made = true;
  result.outcome.sizes = {{.bytes = 8, .seconds = 1e-5}, {.bytes = 1'000'000'000, .seconds = 4e-3}};
  PartReport part = collective_report(result, 4);
  EXPECT_NEAR(part.figures["algorithm_gb_per_second"], 250, 1e-6);
  EXPECT_NEAR(part.figures["bus_gb_per_second"], 375, 1e-6);
  EXPECT_NEAR(part.figures["least_latency_us"], 10, 1e-6);
  result.outcome.findings.emplace_back();
  part = collective_report(result, 4);
  EXPECT_FALSE(part.success);
  EXPECT_THAT(part.failure, HasSubstr("wrong elements"));
}

TEST(CheckLinkInjections, OnlyWhatCouldStrike) {
  const auto check = [](const std::string& spec, int ranks = 4) {
    return check_link_injections({parse_injection(spec).value()}, ranks).what();
  };
  for (const char* spec :
       {"collective:rank=1,step=0", "collective:rank=1,step=0,peer=2,bit=3", "slow:rank=0,step=0,peer=3",
        "slow:rank=0,step=0,ms=5", "hang:rank=1,step=2,peer=0", "kill:rank=1,step=2", "xid:rank=0,step=0"})
    EXPECT_EQ(check(spec), "") << spec;
  EXPECT_THAT(check("weight:rank=0,step=0"), HasSubstr("links has nothing"));
  EXPECT_THAT(check("slow:rank=0,step=0,peer=4"), HasSubstr("peer 4 is no other rank"));
  EXPECT_THAT(check("slow:rank=1,step=0,peer=1"), HasSubstr("peer 1 is no other rank"));
  EXPECT_THAT(check("slow:rank=0,step=0", 1), HasSubstr("at least 2 ranks"));
  EXPECT_THAT(check("collective:rank=1,step=0,layer=2"), HasSubstr("leave layer out"));
  EXPECT_THAT(check("hang:rank=1,step=0,layer=1,peer=2"), HasSubstr("leave one of them out"));
}

}  // namespace
}  // namespace egt
