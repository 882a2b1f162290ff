#include "report/fleet/fleet.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/comparison_fixtures.hpp"

namespace egt {
namespace {

using namespace comparison_fixtures;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Optional;

constexpr const char* hostile = "<img src=x onerror=alert(1)>";

/// A run of one node with one GPU.
ComparedFile run(const std::string& host, double rate, const std::string& verdict = "pass",
                 const std::string& ended = "2026-11-28T10:00:00.000Z") {
  Json result = result_of({h100}, {part("memory", 0, {{"memory_gb_per_s", rate}})}, "burn");
  result["ranks"][0].update({{"hostname", host}});
  result["ranks"][0]["device"].update({{"uuid", "GPU-" + host}, {"pci_bus_id", "00:06.0"}});
  result["verdict"] = verdict;
  result["reasons"] = verdict == "pass" ? Json::array() : Json::array({"rank 0: wrong"});
  result["system_info"] = {{"hostname", host}, {"ended_at", ended}};
  result["nodes"] = {{{"hostname", host},
                      {"slurm_node", nullptr},
                      {"verdict", verdict == "pass" ? "pass" : "fail"},
                      {"reasons", Json::array()},
                      {"action", {{"name", "none"}, {"text", "nothing to do"}, {"command", nullptr}}}}};
  return file_of(host + ended, std::move(result));
}

std::map<std::string, std::string> verdicts(const Fleet& fleet) {
  std::map<std::string, std::string> all;
  for (const FleetNode& node : fleet.nodes) all[node.name] += node.verdict;
  return all;
}

TEST(Fleet, CountsEveryNodeAndEndsWithTheMostSevereVerdict) {
  std::vector<ComparedFile> files = {run("a", 100), run("b", 100), run("c", 100, "degraded")};
  EXPECT_EQ(fleet_of({files[0], files[1]}, 0.05).exit_code, 0);
  EXPECT_EQ(fleet_of(files, 0.05).exit_code, 5);
  files.push_back({"d/result.json", "d", Json(), "is damaged"});
  const Fleet unreadable = fleet_of(files, 0.05);
  EXPECT_EQ(unreadable.exit_code, 4) << "never 0";
  EXPECT_EQ(unreadable.nodes[0].name, "d/result.json");
  EXPECT_EQ(unreadable.nodes[0].reason, "is damaged");
  files.push_back(run("e", 100, "fault"));
  const Fleet fleet = fleet_of(files, 0.05);
  EXPECT_EQ(std::pair(fleet.exit_code, fleet.verdict), std::pair(1, std::string("fault")));
  EXPECT_THAT(fleet.reasons, ElementsAre("2 pass, 1 fault, 1 unreadable, 1 degraded"));
  EXPECT_EQ(fleet.nodes[0].name, "e") << "what needs action first";
  for (const char* unknown : {"", "fine", "suspect", "unreadable"})
    EXPECT_EQ(fleet_of({run("a", 100, unknown)}, 0.05).exit_code, 4) << unknown;
  Json injected = run("f", 100, "fault").result;
  injected["injected"] = true;
  EXPECT_EQ(fleet_of({file_of("f", injected)}, 0.05).nodes[0].verdict, "injected");
  EXPECT_EQ(fleet_of({file_of("f", injected)}, 0.05).exit_code, 4);
}

TEST(Fleet, TheNewestRunOfANodeReplacesOlderOnesOfTheSameGpus) {
  const ComparedFile old = run("a", 100, "fault", "2026-11-20T10:00:00.000Z"), fresh = run("a", 100);
  const Fleet fleet = fleet_of({old, fresh}, 0.05);
  ASSERT_EQ(fleet.nodes.size(), 1u);
  EXPECT_EQ(fleet.exit_code, 0);
  EXPECT_EQ(fleet.nodes[0].runs, 2u);
  EXPECT_EQ(fleet.nodes[0].earlier_verdict, "fault");
  ComparedFile links = fresh, shorter = fresh, longer = old;
  links.result["command"] = "links";
  EXPECT_EQ(fleet_of({old, links}, 0.05).exit_code, 1) << "another command does not clear the fault";
  const ComparedFile between = run("a", 100, "pass", "2026-11-21T10:00:00.000Z");
  EXPECT_EQ(fleet_of({old, between, links}, 0.05).exit_code, 0) << "burn cleared it before links ran";
  EXPECT_EQ(fleet_of({old, between, links}, 0.05).nodes[0].runs, 3u);
  longer.result["test_summary"]["actual_duration_seconds"] = 100;
  shorter.result["test_summary"]["actual_duration_seconds"] = 99;
  EXPECT_EQ(fleet_of({longer, shorter}, 0.05).exit_code, 1) << "a shorter run does not, either";
  ComparedFile other = fresh;
  other.result["ranks"][0]["device"]["uuid"] = "GPU-other";  // another machine of the same name
  EXPECT_EQ(fleet_of({old, other}, 0.05).exit_code, 1);
  ComparedFile both = old;
  both.result["ranks"].push_back(both.result["ranks"][0]);
  both.result["ranks"][1].update({{"rank", 1}});
  both.result["ranks"][1]["device"]["pci_bus_id"] = "00:07.0";
  EXPECT_EQ(fleet_of({both, fresh}, 0.05).exit_code, 1) << "its second GPU was not tested again";
  ComparedFile timeless = old;
  timeless.result.erase("system_info");
  EXPECT_EQ(fleet_of({timeless, fresh}, 0.05).exit_code, 1) << "which is newer is not known";
}

TEST(Fleet, RatesAreRelativeToTheMedianOfComparableNodes) {
  std::vector<ComparedFile> files = {run("a", 100), run("b", 102), run("c", 90), run("d", 100)};
  const Fleet fleet = fleet_of(files, 0.05);
  EXPECT_EQ(fleet.nodes[0].name, "c") << "the lowest rate first";
  EXPECT_EQ(fleet.nodes[0].rates[0].name, "memory bandwidth");
  EXPECT_THAT(fleet.nodes[0].rates[0].ratio, Optional(testing::DoubleNear(0.9, 1e-9)));
  EXPECT_EQ(fleet.exit_code, 0) << "a rate is no verdict";
  EXPECT_THAT(fleet.reasons,
              ElementsAre("4 pass", "a rate more than 5 % below the median of the same model: 1 node"));
  files[0].result["options"] = files[1].result["options"] = {{"layers", {64, 32}}};
  for (const FleetNode& node : fleet_of(files, 0.05).nodes)
    EXPECT_EQ(node.rates[0].ratio, std::nullopt) << "too few nodes ran with these options";
}

TEST(Fleet, AResultOfSeveralNodesHasARowForEach) {
  Json result = run("a", 100, "fault").result, b = run("b", 90).result;
  b["ranks"][0]["rank"] = b["results"][0]["rank"] = 1;
  for (const char* list : {"ranks", "results", "nodes"}) result[list].push_back(b[list][0]);
  result["faults"] = {{{"rank", 0}, {"kind", "memory"}, {"suspects", {0}}}};
  const Fleet fleet = fleet_of({file_of("run", result)}, 0.05);
  EXPECT_THAT(verdicts(fleet), ElementsAre(testing::Pair("a", "fault"), testing::Pair("b", "pass")));
  EXPECT_EQ(fleet.nodes[0].errors, 1u);
  EXPECT_EQ(fleet.nodes[1].rates[0].value, 90);
  result["nodes"][1]["verdict"] = "unknown";  // stopped by the other node's fault
  EXPECT_EQ(verdicts(fleet_of({file_of("run", result)}, 0.05))["b"], "incomplete");
  result["nodes"][0]["verdict"] = "unknown";  // nothing identifies the node
  EXPECT_EQ(verdicts(fleet_of({file_of("run", result)}, 0.05))["b"], "suspect");
  result["nodes"][0]["verdict"] = result["nodes"][1]["verdict"] = "suspect";
  EXPECT_EQ(fleet_of({file_of("run", result)}, 0.05).exit_code, 1);
}

TEST(Fleet, TextHasARowPerNodeAtAnyWidth) {
  std::vector<ComparedFile> files;
  for (int i = 0; i < 100; ++i) files.push_back(run(fmt::format("node{:03}", i), i == 7 ? 80 : 100));
  files.push_back({"evil\x1b[31m\n", "evil", Json(), "is\x1b damaged"});
  const Fleet fleet = fleet_of(files, 0.05);
  for (const std::size_t columns : {0u, 60u, 200u}) {
    const std::string text = fleet_text(fleet, columns);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    for (int i = 0; i < 100; ++i) EXPECT_THAT(text, HasSubstr(fmt::format("\nnode{:03} ", i)));
    EXPECT_EQ(text.find("left out at this width") != std::string::npos, columns == 60) << columns;
    EXPECT_THAT(text, HasSubstr("Verdict: incomplete (exit code 4)\n  100 pass, 1 unreadable\n"));
    EXPECT_THAT(line_with(text, "node007"), HasSubstr(" -20.0 %"));
  }
}

TEST(Fleet, PageHoldsNothingOfWhatItShowsAsMarkup) {
  ComparedFile file = run(hostile, 100, "fault");
  file.path = hostile;
  file.result["reasons"] = {hostile};
  const std::string page = fleet_page(fleet_of({file, {hostile, hostile, {}, hostile}}, 0.05));
  EXPECT_THAT(page,
              AllOf(Not(HasSubstr("<img")), HasSubstr("&lt;img"), HasSubstr("<title>fault: fleet</title>")));
}

TEST(Fleet, ReadsForeignResults) {
  const Json whole = run("a", 100).result;
  for (const Json& foreign : {Json(), Json(7), Json("text"), Json::array({1, "x", nullptr}), Json{{"0", 3}}})
    for (const auto& [key, value] : whole.items()) {
      Json result = whole;
      result[key] = foreign;
      const Fleet fleet = fleet_of({file_of("x", result)}, 0.05);
      EXPECT_FALSE(fleet.nodes.empty()) << key;
      EXPECT_FALSE(fleet_text(fleet, 80).empty());
      EXPECT_FALSE(fleet_json(fleet).empty());
    }
}

}  // namespace
}  // namespace egt
