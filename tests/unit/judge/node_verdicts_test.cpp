#include "judge/node_verdicts.hpp"

#include <gtest/gtest.h>

namespace egt {
namespace {

/// Ranks 0 and 1 on one host, 2 and 3 on another, 4 on a third of an odd name.
Json result_of(const char* verdict) {
  Json result = {{"verdict", verdict}, {"ranks", Json::array()}};
  const char* const hosts[] = {"a.site", "a.site", "b.site", "b.site", "it's; rm"};
  for (int rank = 0; rank < 5; ++rank)
    result["ranks"].push_back({{"rank", rank}, {"hostname", hosts[rank]}, {"error", nullptr}});
  for (const char* list : {"faults", "losses", "findings"}) result[list] = Json::array();
  return result;
}

Json fault(int rank, std::vector<int> suspects) {
  return {{"rank", rank}, {"step", 7}, {"kind", "memory"}, {"suspects", suspects}};
}

std::vector<std::string> verdicts_of(const Json& result) {
  std::vector<std::string> verdicts;
  for (const Json& node : node_verdicts(result)) verdicts.push_back(node["verdict"]);
  return verdicts;
}

using Verdicts = std::vector<std::string>;

TEST(NodeVerdicts, AHostFailsByItsRanks) {
  Json result = result_of("fault");
  result["faults"].push_back(fault(2, {}));
  EXPECT_EQ(verdicts_of(result), (Verdicts{"pass", "fail", "pass"}));
  result["losses"].push_back({{"rank", 1}, {"how", "killed"}});
  result["ranks"][4]["error"] = "no memory";
  EXPECT_EQ(verdicts_of(result), (Verdicts{"fail", "fail", "fail"}));
  EXPECT_EQ(node_verdicts(result)[2]["reasons"], Json::array({"rank 4: no memory"}));
}

TEST(NodeVerdicts, SuspectsOfOneHostAreIts) {
  Json result = result_of("fault");
  result["faults"].push_back(fault(0, {0, 1}));
  EXPECT_EQ(verdicts_of(result), (Verdicts{"fail", "pass", "pass"}));
  result["faults"][0] = fault(0, {1, 2});
  EXPECT_EQ(verdicts_of(result), (Verdicts{"suspect", "suspect", "pass"}));
}

TEST(NodeVerdicts, NobodyPassesInARunThatWasNotDone) {
  for (const char* verdict : {"incomplete", "interrupted"})
    EXPECT_EQ(verdicts_of(result_of(verdict)), (Verdicts{"unknown", "unknown", "unknown"}));
}

TEST(NodeVerdicts, NobodyPassesWhereNobodyIsNamed) {
  const Verdicts unknown{"unknown", "unknown", "unknown"};
  EXPECT_EQ(verdicts_of(result_of("degraded")), unknown);
  Json result = result_of("fault");
  EXPECT_EQ(verdicts_of(result), unknown);
  result["faults"].push_back(fault(-1, {}));
  EXPECT_EQ(verdicts_of(result), unknown);
  result["faults"].push_back(fault(2, {}));
  EXPECT_EQ(verdicts_of(result), (Verdicts{"unknown", "fail", "unknown"}));
}

TEST(NodeVerdicts, HostsThatLostEachOtherAreSuspects) {
  Json result = result_of("incomplete");
  for (const int rank : {0, 1, 2, 4}) result["losses"].push_back({{"rank", rank}, {"how", "silent"}});
  EXPECT_EQ(verdicts_of(result), (Verdicts{"suspect", "suspect", "suspect"}));
  result["losses"].erase(3);
  EXPECT_EQ(verdicts_of(result), (Verdicts{"fail", "fail", "unknown"}));
}

TEST(NodeVerdicts, TheFaultsOfASelftestSpeakAgainstNobody) {
  Json result = result_of("pass");
  result["faults"].push_back(fault(2, {}));
  EXPECT_EQ(verdicts_of(result), (Verdicts{"pass", "pass", "pass"}));
  result["verdict"] = "fault";  // one of them was not found
  result["command"] = "selftest";
  EXPECT_EQ(verdicts_of(result), (Verdicts{"unknown", "unknown", "unknown"}));
}

TEST(NodeVerdicts, TheListDrainsThoseThatFailed) {
  Json result = result_of("fault");
  for (const int rank : {2, 2, 3, 3, 4}) result["faults"].push_back(fault(rank, {}));
  EXPECT_EQ(node_list_text(node_verdicts(result)),
            "pass a.site\n"
            "fail b.site rank 2, step 7: memory fault; rank 2, step 7: memory fault; rank 3, step 7: memory "
            "fault; and 1 "
            "more\n"
            "fail it's; rm rank 4, step 7: memory fault\n"
            "scontrol update NodeName='b' State=DRAIN Reason='extreme_gpu_trainer: rank 2, step 7: memory "
            "fault; rank 2, "
            "step 7: memory fault; rank 3, step 7: memory fault; and 1 more'\n"
            "scontrol update NodeName='it'\\''s; rm' State=DRAIN Reason='extreme_gpu_trainer: rank 4, step "
            "7: memory "
            "fault'\n");
}

}  // namespace
}  // namespace egt
