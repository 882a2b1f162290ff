#include "report/console/console_text.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <sstream>

#include "judge/result.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string text_of(const std::vector<Record>& records) {
  const Verdict verdict = judge(records);
  return verdict_text({}, verdict, build_result(records, verdict), "r1", true);
}

TEST(VerdictText, TheLastLinesTellChecksAndRepeats) {
  auto records = fixtures::good_run(2);
  fixtures::hold_back(records, "memory", 1, 8112);
  for (int rank = 0; rank < 2; ++rank) {
    Json& train = fixtures::find(records, RecordKind::end, rank).body["parts"][0];
    train["work"]["replays"] = 7;
    train["figures"]["checks_fraction"] = rank == 0 ? 0.0091 : 0.004;
    Json& telemetry = fixtures::find(records, RecordKind::end, rank).body["telemetry"];
    telemetry["power_w_mean"] = 686.1 + 3 * rank;
    telemetry["power_limit_w"] = 700;
    PartReport load;
    load.name = "load";
    load.figures = {{"work_index", 1.21 + 0.1 * rank},
                    {"share_extreme", 0.6 + 0.1 * rank},
                    {"share_products", 0.2},
                    {"share_files", nullptr}};
    fixtures::find(records, RecordKind::end, rank).body["parts"].push_back(part_to_json(load));
  }
  const std::string reported = text_of(records);
  EXPECT_THAT(reported, HasSubstr("\n  Checks: 14 replays, 0.91 % of the time\n"));
  EXPECT_THAT(reported, HasSubstr("\n  Power: 686 to 689 W on average of 700 W (98.0 to 98.4 %)\n"));
  EXPECT_THAT(reported, HasSubstr("\n  Work index: 1.21 to 1.31 (extreme 0.65, products 0.20); 1 is "
                                  "one part after the other, each as fast as alone\n"));
  EXPECT_THAT(reported, HasSubstr("FAULT  node1  2x NVIDIA H200  31 s  8112 errors\n"));
}

TEST(VerdictText, IsWrappedAtTheWordsOfATerminalOnly) {
  auto records = fixtures::good_run(2);
  records.push_back(fixtures::fault(1));
  const Verdict verdict = judge(records);
  const Json result = build_result(records, verdict);
  const std::string whole = verdict_text({}, verdict, result, "r1", true);
  std::string rejoined = verdict_text({.results_columns = 60}, verdict, result, "r1", true);
  const std::string prose = rejoined.substr(rejoined.find("\nVerdict: "));
  std::istringstream lines(prose);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60u) << line;
  std::string joined;  // continued lines are indented by four columns
  for (std::size_t i = 0; i < prose.size(); ++i)
    if (prose.compare(i, 5, "\n    ") == 0) {
      joined += ' ';
      i += 4;
    } else {
      joined += prose[i];
    }
  EXPECT_EQ(joined, whole.substr(whole.find("\nVerdict: ")));
  EXPECT_NE(joined, prose);
}

TEST(VerdictText, NodesWithTheSameActionShareALine) {
  const auto records = fixtures::good_run(1);
  const Verdict verdict = judge(records);
  Json result = build_result(records, verdict);
  const auto node = [](const char* host, const char* name, const Json& rank) {
    return Json{{"hostname", host},
                {"action",
                 {{"name", name},
                  {"text", *name == 'n' ? "nothing to do" : std::string("do ") + name},
                  {"command", "look"},
                  {"rank", rank}}}};
  };
  result["nodes"] = {node("a", "reseat", nullptr), node("b", "none", nullptr), node("c", "reseat", nullptr),
                     node("d", "reset-gpu", 3)};
  const std::string reported = verdict_text({}, verdict, result, "r1", true);
  EXPECT_THAT(reported, HasSubstr("\n  Action for a, c: do reseat. First: look\n"
                                  "  Action for d: do reset-gpu (rank 3). First: look\n"));
  EXPECT_THAT(reported, Not(HasSubstr("nothing to do")));
  EXPECT_THAT(text_of(records), Not(HasSubstr("Action for")));
}

TEST(VerdictText, AShareThatIsNotTrustedIsNamedAndNotPrinted) {
  auto records = fixtures::good_run(1);
  PartReport load;
  load.name = "load";
  load.figures = {{"work_index", 0.6},
                  {"share_extreme", 0.6},
                  {"share_files", nullptr},
                  {"mistrusted", {{"share_files", 1.97}, {"ratio_long_chains", 12.8}}}};
  fixtures::find(records, RecordKind::end, 0).body["parts"].push_back(part_to_json(load));
  EXPECT_THAT(text_of(records),
              HasSubstr("\n  Work index: 0.60 (extreme 0.60); 1 is one part after the other, each "
                        "as fast as alone; not counted: files, whose standalone rate was "
                        "measured on a busy device\n"));
}

TEST(VerdictText, UnitsWithTheSameRatesShareALine) {
  auto records = fixtures::good_run(1);
  PartReport vote;
  for (const auto& [unit, factor] : {std::pair{"fp32", 1}, {"branch", 1}, {"tensor fp16", 128}})
    for (const auto& [kind, verified] : {std::pair{WorkKind::vote, 1e9}, {WorkKind::vote_one_unit, 1e6}})
      vote.shares.push_back({.kind = kind, .precision = unit, .verified = factor * verified});
  vote.shares.push_back({.kind = WorkKind::vote, .precision = "fp64"});
  fixtures::find(records, RecordKind::end, 0).body["parts"].push_back(part_to_json(vote));
  EXPECT_THAT(
      text_of(records),
      HasSubstr("\n  Detectable by the vote: 3e-09 errors per operation, in one unit 3e-06: branch, fp32"
                "\n  Detectable by the vote: 2.3e-11 errors per operation, in one unit 2.3e-08: "
                "tensor fp16\n"));
}

TEST(VerdictText, ReplaysAloneAreVerifiedWork) {
  auto records = fixtures::good_run(1);
  for (Json& part : fixtures::find(records, RecordKind::end, 0).body["parts"]) part["work"] = Json::object();
  fixtures::find(records, RecordKind::end, 0).body["parts"][0]["work"] = {{"replays", 4}};
  EXPECT_EQ(judge(records).name, "pass");
  EXPECT_THAT(text_of(records), HasSubstr("\n  Verified: 4 replays\n"));
}

TEST(VerdictText, ADeviceBelowItsPowerLimitIsToldWithTheReason) {
  const auto reported = [&](const Json& telemetry) {
    auto records = fixtures::good_run(1);
    Json& own = fixtures::find(records, RecordKind::end, 0).body["telemetry"];
    own = telemetry;
    own["power_w_mean"] = 560;
    own["power_limit_w"] = 700;
    EXPECT_EQ(judge(records).name, "pass");
    return text_of(records);
  };
  const auto line = [](const char* why) {
    return fmt::format(" (80.0 %)\n    rank 0: 80.0 % of its limit; {}\n", why);
  };
  EXPECT_THAT(reported({{"throttle_seconds", {{"sw_thermal", 12.0}, {"sw_power_cap", 3.0}}}}),
              HasSubstr(line("thermal throttling for 12 s")));
  EXPECT_THAT(reported({{"throttle_seconds", {{"hw_power_brake", 3.0}}}}),
              HasSubstr(line("power brake for 3 s")));
  EXPECT_THAT(reported({{"duty", {{"min", 0.4}}}}), HasSubstr(line("the limiter lowered the load")));
  EXPECT_THAT(reported({{"throttle_seconds", {{"sw_power_cap", 7.0}}}}),
              HasSubstr(line("it was at its limit for 7 s")));
  const auto unreached = [](double seconds) {
    return Json{{"throttle_seconds", {{"sw_power_cap", 7.0}}}, {"mix", {{"unreached_seconds", seconds}}}};
  };
  EXPECT_THAT(
      reported(unreached(50)),
      HasSubstr(line("not capped, all parts at full duty cycle: the load does not reach this limit")));
  EXPECT_THAT(reported(unreached(5)), HasSubstr(line("it was at its limit for 7 s")));
  EXPECT_THAT(
      reported({{"throttle_seconds", {{"sw_thermal", 12.0}}}, {"mix", {{"power_sensor", "0 W for 30 s"}}}}),
      HasSubstr(line("its power sensor cannot be right: 0 W for 30 s")));
  EXPECT_THAT(reported(Json::object()), HasSubstr(line("no throttling: this load needs no more")));
}

TEST(VerdictText, APulseIsToldWithItsSkewAndBothPowers) {
  const auto reported = [&](double hertz, const Json& high, const Json& low) {
    auto records = fixtures::good_run(2);
    for (int rank = 0; rank < 2; ++rank) {
      Json& body = fixtures::find(records, RecordKind::end, rank).body;
      PartReport load;
      load.name = "load";
      load.figures["pulse"] = {{"hertz", hertz},
                               {"duty", 0.5},
                               {"rises", 118},
                               {"clock_error_ms", 0.05},
                               {"late_ms", {{"p50", 0.02 + 0.01 * rank}, {"max", 0.3 + 0.1 * rank}}}};
      body["parts"].push_back(part_to_json(load));
      body["telemetry"]["pulse_power_w"] = {{"high", high}, {"low", low}};
    }
    return text_of(records);
  };
  const Json high = {{"avg", 688.0}}, low = {{"avg", 205.0}};
  EXPECT_THAT(reported(1, high, low),
              HasSubstr("\n  Pulse: 1 Hz, duty 0.5: 118 rises, at most 0.45 ms apart, "
                        "half of them 0.08; 688 W high, 205 W low\n"));
  EXPECT_THAT(reported(20, nullptr, nullptr),
              HasSubstr("at most 0.45 ms apart, half of them 0.08; power "
                        "unknown: no sensor, or the pulse is faster than its readings\n"));
}

/// Text for two ranks whose `train` entries have these metrics in addition to the fixture's.
std::string text_with(const Json& first, const Json& second) {
  auto records = fixtures::good_run(2);
  for (int rank = 0; rank < 2; ++rank)
    fixtures::find(records, RecordKind::end, rank)
        .body["parts"][0]["figures"]
        .update(rank == 0 ? first : second);
  return text_of(records);
}

Json breakdown(double forward, double activation, double wait) {
  return {{"breakdown",
           {{"step_ms", 20},
            {"forward_ms", forward},
            {"backward_ms", 4},
            {"activation_ms", activation},
            {"update_ms", 1},
            {"wait_ms", wait},
            {"other_ms", 0.01}}}};
}

TEST(VerdictText, AStepsTimeIsToldWithWhatTakesMostOfIt) {
  EXPECT_THAT(text_with(breakdown(5, 9, 1), breakdown(6, 8, 1)),
              HasSubstr("\n  Step: 20 ms: GEMMs 48 %, activations 42 %, update 5 %, communication wait 5 %; "
                        "most of it is GEMMs\n"));
  EXPECT_THAT(text_with(breakdown(2, 2, 11), breakdown(2, 2, 11)),
              HasSubstr("; the gradient all-reduce delays it\n"));
  EXPECT_THAT(text_with(breakdown(2, 2, 11), breakdown(10, 2, 2)), HasSubstr("; most of it is GEMMs\n"));
  EXPECT_THAT(text_with(breakdown(1, 1, 16), breakdown(7, 3, 5)),
              HasSubstr("; the others wait for rank 1\n"));
  EXPECT_THAT(text_with(Json::object(), Json::object()), Not(HasSubstr("\n  Step: ")));
  EXPECT_THAT(text_with(breakdown(2, 2, 11), Json::object()),
              HasSubstr("\n  Step: 20 ms: GEMMs 30 %, activations 10 %, update 5 %, other 55 %\n"))
      << "a rank alone waits for no sums";
  Json slow = breakdown(500, 900, 100);
  slow["breakdown"]["step_ms"] = 2320;
  EXPECT_THAT(text_with(slow, slow), HasSubstr("\n  Step: 2.32 s: GEMMs 22 %"));
}

TEST(VerdictText, UnevenSharesAreToldWithTheirGain) {
  const auto shares = [](int samples, const Json& gain) {
    return Json{{"batch", samples}, {"batch_changes", 1}, {"balance_gain", gain}};
  };
  EXPECT_THAT(text_with(shares(160, 1.43), shares(352, 1.43)),
              HasSubstr("\n  Shares of a step: 160 to 352 samples per rank; its passes 1.43 times as fast as "
                        "with even shares\n"));
  EXPECT_THAT(text_with(shares(64, nullptr), shares(64, nullptr)),
              HasSubstr("\n  Shares of a step: 64 samples per rank, even: too few steps were measured\n"));
  EXPECT_THAT(text_with(Json::object(), Json::object()), Not(HasSubstr("Shares of a step")));
}

}  // namespace
}  // namespace egt
