#include "judge/node_verdicts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace egt {
namespace {

/// Ranks 0 and 1 on one host, 2 and 3 on another, 4 on a third with an unusual name.
Json result_of(const char* verdict) {
  Json result = {{"verdict", verdict}, {"ranks", Json::array()}};
  const char* const hosts[] = {"a.site", "a.site", "b.site", "b.site", "it's; rm"};
  for (int rank = 0; rank < 5; ++rank)
    result["ranks"].push_back(
        {{"rank", rank}, {"hostname", hosts[rank]}, {"error", nullptr}, {"end_reason", "duration"}});
  for (const char* list : {"faults", "losses", "findings"}) result[list] = Json::array();
  return result;
}

Json fault(int rank, std::vector<int> suspects) {
  return {{"rank", rank}, {"step", 7}, {"kind", "memory"}, {"suspects", suspects}};
}

std::vector<std::string> verdicts_of(const Json& result) {
  std::vector<std::string> verdicts;
  for (const Json& node : node_verdicts(result, true)) verdicts.push_back(node["verdict"]);
  return verdicts;
}

using Verdicts = std::vector<std::string>;

TEST(NodeVerdicts, AHostFailsByItsRanks) {
  Json result = result_of("fault");
  result["faults"].push_back(fault(2, {}));
  EXPECT_EQ(verdicts_of(result), (Verdicts{"pass", "fail", "pass"}));
  result["losses"].push_back({{"rank", 1}, {"how", "killed"}});
  result["ranks"][4].update(
      {{"end_reason", "error"}, {"error", {{"code", "out_of_memory"}, {"what", "no memory"}}}});
  EXPECT_EQ(verdicts_of(result), (Verdicts{"fail", "fail", "suspect"}));
  result["ranks"][4]["error"]["code"] = "aborted";  // because another rank was lost
  EXPECT_EQ(verdicts_of(result), (Verdicts{"fail", "fail", "unknown"}));
  result["ranks"][4]["error"]["code"] = "out_of_memory";
  EXPECT_EQ(node_verdicts(result, true)[2]["reasons"], Json::array({"rank 4: no memory"}));
}

TEST(NodeVerdicts, AHostThatIsLostBeforeItsFirstRecordIsListed) {
  Json result = result_of("incomplete");
  result["losses"].push_back({{"rank", 5}, {"hostname", "e.site"}, {"how", "vanished"}});
  EXPECT_EQ(verdicts_of(result), (Verdicts{"unknown", "unknown", "unknown", "fail"}));
  EXPECT_EQ(node_verdicts(result, true)[3]["hostname"], "e.site");
}

TEST(NodeVerdicts, NobodyPassesIfEvidenceIsMissing) {
  Json result = result_of("fault");
  result["faults"].push_back(fault(2, {}));
  Verdicts verdicts;
  for (const Json& node : node_verdicts(result, false)) verdicts.push_back(node["verdict"]);
  EXPECT_EQ(verdicts, (Verdicts{"unknown", "fail", "unknown"}));
}

TEST(NodeVerdicts, AHostThatDidNotDoItsWorkDoesNotPass) {
  Json result = result_of("fault");
  result["faults"].push_back(fault(2, {}));
  for (const char* reason : {"fault", "signal", "peer lost"}) {
    result["ranks"][0]["end_reason"] = reason;
    EXPECT_EQ(verdicts_of(result), (Verdicts{"unknown", "fail", "pass"})) << reason;
  }
  result["ranks"][0]["end_reason"] = nullptr;  // no end record
  result["results"] = {{{"rank", 4}, {"success", false}}, {{"rank", 3}, {"success", false}}};
  EXPECT_EQ(verdicts_of(result), (Verdicts{"unknown", "fail", "unknown"}));
  result["fault_repeats"] = {{{"rank", 1}, {"kind", "replay"}, {"count", 2}}};
  EXPECT_EQ(verdicts_of(result), (Verdicts{"fail", "fail", "unknown"}));
  EXPECT_EQ(node_verdicts(result, true)[0]["reasons"], Json::array({"rank 1: 2 more replay faults"}));
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

TEST(NodeVerdicts, TheDiskOfTheRunDirectoryDrainsNoNode) {
  Json result = result_of("incomplete");
  result["losses"].push_back({{"rank", 2}, {"how", "stuck"}, {"phase", "journal: write"}});
  EXPECT_EQ(verdicts_of(result), (Verdicts{"unknown", "suspect", "unknown"}));
  result["losses"][0]["phase"] = "train: sums";
  EXPECT_EQ(verdicts_of(result), (Verdicts{"unknown", "fail", "unknown"}));
}

TEST(NodeVerdicts, TheFaultsOfASelftestSpeakAgainstNobody) {
  Json result = result_of("pass");
  result["faults"].push_back(fault(2, {}));
  EXPECT_EQ(verdicts_of(result), (Verdicts{"pass", "pass", "pass"}));
  result["verdict"] = "fault";  // one of them was not detected
  result["command"] = "selftest";
  EXPECT_EQ(verdicts_of(result), (Verdicts{"unknown", "unknown", "unknown"}));
}

TEST(NodeVerdicts, ARunWithInjectedFaultsDrainsNoNode) {
  Json result = result_of("fault");
  result["injected"] = true;
  result["faults"] = {fault(2, {}), fault(0, {0, 4})};
  EXPECT_EQ(verdicts_of(result), (Verdicts{"injected", "injected", "injected"}));
  EXPECT_EQ(node_list_text(node_verdicts(result, true)).find("scontrol"), std::string::npos);
  Json selftest = result_of("incomplete");
  selftest["command"] = "selftest";
  selftest["findings"].push_back({{"rank", 2}, {"text", "hot"}});
  EXPECT_EQ(verdicts_of(selftest), (Verdicts{"unknown", "injected", "unknown"}));
}

/// The names of the nodes' actions.
std::vector<std::string> actions_of(const Json& result) {
  std::vector<std::string> names;
  for (const Json& node : node_verdicts(result, true)) names.push_back(node["action"]["name"]);
  return names;
}

TEST(NodeVerdicts, TheMostSevereEvidenceOfANodeIsItsAction) {
  Json result = result_of("fault");
  result["faults"].push_back(fault(2, {}));
  EXPECT_EQ(actions_of(result), (Verdicts{"none", "reset-gpu", "none"}));
  EXPECT_EQ(node_verdicts(result, true)[1]["action"]["rank"], 2);
  EXPECT_EQ(node_verdicts(result, true)[1]["action"]["command"], "nvidia-smi -q -d ECC,ROW_REMAPPER");
  result["findings"] = {{{"rank", 3}, {"kind", "temperature"}, {"text", "hot"}},
                        {{"rank", 1}, {"kind", "temperature"}, {"text", "hot"}}};
  EXPECT_EQ(actions_of(result), (Verdicts{"check-cooling", "reset-gpu", "none"}));
  result["findings"].push_back(
      {{"rank", 3}, {"kind", "remap"}, {"where", "a row of memory could not be remapped"}, {"text", "bad"}});
  EXPECT_EQ(actions_of(result), (Verdicts{"check-cooling", "replace-gpu", "none"}));
  EXPECT_EQ(node_verdicts(result, true)[1]["action"]["rank"], 3);
}

TEST(NodeVerdicts, TheActionOfAFaultFollowsItsKindAndBlame) {
  const auto action = [](const char* kind, const char* where, std::vector<int> suspects = {}) {
    Json result = result_of("fault");
    result["faults"] = {{{"rank", 2},
                         {"step", 7},
                         {"kind", kind},
                         {"where", where},
                         {"actual", where},
                         {"suspects", suspects}}};
    return actions_of(result)[1];
  };
  EXPECT_EQ(action("xid", "79"), "reboot-node");
  EXPECT_EQ(action("xid", "74"), "reseat");
  EXPECT_EQ(action("xid", "64"), "replace-gpu");
  EXPECT_EQ(action("xid", "95"), "reset-gpu");
  EXPECT_EQ(action("file-torn", "block 3"), "replace-drive");
  EXPECT_EQ(action("replay", "layer 3"), "isolate-gpu");
  EXPECT_EQ(action("replay", "layer 3", {1, 2}), "run-longer");
  EXPECT_EQ(action("collective", "all-gather"), "reseat");
  EXPECT_EQ(action("collective", "all-gather", {1, 2}), "test-links");
  EXPECT_EQ(action("a kind of a later version", ""), "isolate-gpu");
}

TEST(NodeVerdicts, LostAndUnknownNodesHaveAnAction) {
  Json result = result_of("incomplete");
  result["losses"].push_back({{"rank", 2}, {"how", "vanished"}});
  EXPECT_EQ(actions_of(result), (Verdicts{"run-longer", "check-node", "run-longer"}));
}

TEST(NodeVerdicts, AnInterruptedRunIsToBeFinished) {
  EXPECT_EQ(actions_of(result_of("interrupted")), (Verdicts{"finish-run", "finish-run", "finish-run"}));
}

TEST(NodeVerdicts, InjectedFaultsRecommendNothing) {
  Json result = result_of("fault");
  result["injected"] = true;
  result["faults"] = {fault(2, {})};
  result["losses"].push_back({{"rank", 0}, {"how", "vanished"}});
  EXPECT_EQ(actions_of(result), (Verdicts{"none", "none", "none"}));
  const auto words = [&] { return node_verdicts(result, true)[1]["action"]["text"].get<std::string>(); };
  EXPECT_EQ(words().find("none, the fault was injected; after a real one: reset the GPU"), 0u) << words();
  EXPECT_NE(words().find(" (rank 2)"), std::string::npos) << words();
  result["command"] = "selftest";
  EXPECT_EQ(words(), "nothing to do") << "selftest injects hundreds";
  result["command"] = "burn";
  const std::string text = node_list_text(node_verdicts(result, true));
  EXPECT_EQ(text.find("action"), std::string::npos);
  EXPECT_NE(node_list_text(node_verdicts(result_of("incomplete"), true))
                .find("unknown a.site action: run-longer\n"),
            std::string::npos);
  EXPECT_EQ(text.find("kubectl"), std::string::npos);
}

TEST(NodeVerdicts, AFailedNodeOutsideSlurmIsCordoned) {
  Json result = result_of("fault");
  result["faults"] = {fault(2, {})};
  const std::string text = node_list_text(node_verdicts(result, true));
  EXPECT_NE(text.find("fail b.site rank 2, step 7: memory fault; action: reset-gpu\n"), std::string::npos)
      << text;
  EXPECT_NE(
      text.find("\nkubectl cordon \"$(kubectl get pod 'b.site' -o jsonpath={.spec.nodeName} 2>/dev/null || "
                "echo 'b.site')\"\n"),
      std::string::npos)
      << text;
  result["ranks"][2]["slurm_node"] = result["ranks"][3]["slurm_node"] = "b";
  EXPECT_EQ(node_list_text(node_verdicts(result, true)).find("kubectl"), std::string::npos);
}

/// The name in the drain line of a failed node.
std::string drained(const char* hostname, const Json& slurm_node = nullptr) {
  const std::string text = node_list_text(Json::array(
      {{{"hostname", hostname}, {"slurm_node", slurm_node}, {"verdict", "fail"}, {"reasons", {"r"}}}}));
  const std::string key = "NodeName=";
  const std::size_t begin = text.find(key);
  if (begin == std::string::npos) return "no drain line";
  return text.substr(begin + key.size(), text.find(" State=", begin) - begin - key.size());
}

TEST(NodeVerdicts, SlurmsNameOfANodeIsTheOneThatSlurmGave) {
  EXPECT_EQ(drained("node7.cluster.example"), "'node7'");
  EXPECT_EQ(drained("node7."), "'node7'");
  EXPECT_EQ(drained("Node7.Example"), "'Node7'");  // Slurm distinguishes upper and lower case
  for (const char* address : {"10.0.0.5", "fd00::5", "::ffff:10.0.0.5"})
    EXPECT_EQ(drained(address), fmt::format("'{}'", address));
  EXPECT_EQ(drained("1.2.3.4.example"), "'1'");  // not an address
  EXPECT_EQ(drained("container", "gpu-17.a"), "'gpu-17.a'");
  EXPECT_EQ(drained(""), "no drain line");
}

TEST(NodeVerdicts, ContainersThatShareAHostNameAreTheirSlurmNodes) {
  Json result = result_of("fault");
  for (int rank = 0; rank < 5; ++rank)
    result["ranks"][static_cast<std::size_t>(rank)].update(
        {{"hostname", "container"}, {"slurm_node", rank < 2 ? "n1" : "n2"}});
  result["faults"].push_back(fault(2, {}));
  EXPECT_EQ(verdicts_of(result), (Verdicts{"pass", "fail"}));
  EXPECT_EQ(node_verdicts(result, true)[1]["slurm_node"], "n2");
}

TEST(NodeVerdicts, TheListDrainsThoseThatFailed) {
  Json result = result_of("fault");
  for (const int rank : {2, 2, 3, 3, 4}) result["faults"].push_back(fault(rank, {}));
  for (int rank = 0; rank < 5; ++rank)
    result["ranks"][static_cast<std::size_t>(rank)]["slurm_node"] = fmt::format("n{}", rank / 2);
  result["findings"] = {{{"rank", 3}, {"kind", "power"}, {"text", "low"}},
                        {{"rank", 3}, {"kind", "power"}, {"text", "lower"}}};
  const std::string b = "rank 2, step 7: memory fault (2 times); rank 3, step 7: memory fault (2 times)",
                    c = "rank 4, step 7: memory fault";
  const std::string text = node_list_text(node_verdicts(result, true));
  EXPECT_NE(text.find(fmt::format("fail b.site {}; ", b)), std::string::npos) << text;
  EXPECT_NE(text.find("; and 1 more; action: reset-gpu\n"), std::string::npos) << text;
  EXPECT_NE(text.find(fmt::format("fail it's; rm {}; action: reset-gpu\n", c)), std::string::npos) << text;
  EXPECT_NE(
      text.find(fmt::format("scontrol update NodeName='n1' State=DRAIN Reason='extreme_gpu_trainer: {}", b)),
      std::string::npos)
      << text;
  EXPECT_NE(text.find(fmt::format(
                "scontrol update NodeName='n2' State=DRAIN Reason='extreme_gpu_trainer: {}'\n", c)),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace egt
