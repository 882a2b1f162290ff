#include "judge/injection_match.hpp"

#include <functional>

#include <gmock/gmock.h>

#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;
using testing::ElementsAre;
using testing::IsEmpty;

Json asked(const std::string& kind, int rank = 1) {
  return to_json(parse_injection(kind + ":rank=" + std::to_string(rank) + ",step=20").value());
}

Json fault_at(const std::string& kind, int rank = 1) {
  Json json = fault(rank).body;
  json["kind"] = kind;
  if (kind == "link") json["part"] = "links";
  return json;
}

TEST(Fits, AFaultOfADetectorThatClaimsTheKind) {
  const std::vector<std::string> faults = {"replica",        "replay",         "gemm",      "extreme",
                                           "collective",     "memory",         "file-bit",  "file-stale",
                                           "file-torn",      "file-misplaced", "file-lost", "nonfinite",
                                           "file-truncated", "link",           "all-reduce"};
  const std::vector<std::pair<std::string, std::vector<std::string>>> claims = {
      {"weight", {"replica", "replay", "nonfinite"}},
      {"optimizer", {"replica", "replay", "nonfinite"}},
      {"gradient", {"replay", "nonfinite"}},
      {"activation", {"replay", "nonfinite"}},
      {"gemm", {"replay", "gemm", "nonfinite"}},
      {"extreme", {"extreme"}},
      {"all-reduce", {"all-reduce", "nonfinite"}},
      {"collective", {"collective", "link"}},
      {"memory", {"memory"}},
      {"file-bit", {"file-bit"}},
      {"file-stale", {"file-stale"}},
      {"file-torn", {"file-torn"}},
      {"file-misplaced", {"file-misplaced"}},
      {"file-lost", {"file-lost"}}};
  for (const auto& [kind, right] : claims)
    for (const std::string& one : faults) {
      const bool wanted = std::find(right.begin(), right.end(), one) != right.end();
      EXPECT_EQ(fits(asked(kind), fault_at(one)), wanted) << kind << " and a fault " << one;
    }
}

TEST(Fits, ALinkToTheHostIsNoneToAnotherDevice) {
  Json link = fault_at("link");
  link["detector"] = "host copies";  // its text is not evaluated
  for (const char* part : {"peer-copies", "links"}) {
    link["part"] = part;
    EXPECT_FALSE(fits(asked("host-copy"), link)) << part;
    EXPECT_TRUE(fits(asked("collective"), link)) << part;
  }
  link["part"] = "host-copies";
  EXPECT_TRUE(fits(asked("host-copy"), link));
  EXPECT_FALSE(fits(asked("host-copy", 0), link));
  EXPECT_FALSE(fits(asked("collective"), link));
}

TEST(Fits, AFaultOfAnEarlierVersionMayBeOfAnyPart) {
  Json link = fault_at("link");
  link["part"] = nullptr;  // a device's counters belong to no part
  EXPECT_FALSE(fits(asked("host-copy"), link));
  EXPECT_FALSE(fits(asked("collective"), link));
  link.erase("part");
  EXPECT_TRUE(fits(asked("host-copy"), link));
  EXPECT_TRUE(fits(asked("collective"), link));
  EXPECT_FALSE(fits(asked("collective", 0), link));
}

TEST(SlowDetector, IsOfInjectionsAndFaultsOfMemoryHostCopiesAndFiles) {
  const auto of_fault = [](const std::string& kind, const char* part) {
    Record record = fault(1);
    record.body["kind"] = kind;
    record.body["part"] = part ? part : "";
    if (!part) record.body.erase("part");
    return slow_detector(record);
  };
  EXPECT_EQ(of_fault("memory", "memory"), Detector::memory);
  EXPECT_EQ(of_fault("link", "host-copies"), Detector::host_copy);
  EXPECT_EQ(of_fault("link", "peer-copies"), std::nullopt);
  EXPECT_EQ(of_fault("multiprocessor", "multiprocessors"), Detector::vote);
  EXPECT_EQ(of_fault("file-torn", "io"), Detector::file);
  EXPECT_EQ(of_fault("replica", "train"), std::nullopt);
  EXPECT_EQ(of_fault("link", nullptr), Detector::host_copy) << "of an earlier version";
  EXPECT_EQ(slow_detector(injection("host-copy:rank=1,step=20")), Detector::host_copy);
  EXPECT_EQ(slow_detector(injection("weight:rank=1,step=20")), std::nullopt);
  EXPECT_EQ(slow_detector(injection("hang:rank=1,step=20")), std::nullopt);
  EXPECT_EQ(slow_detector(finding(1, "memory")), std::nullopt);
}

TEST(Fits, AnyFaultTellsOfAnIdleDevice) {
  for (const char* kind : {"replay", "replica", "gemm", "evaluation", "memory", "nonfinite"}) {
    EXPECT_TRUE(fits(asked("idle"), fault_at(kind))) << kind;
    EXPECT_FALSE(fits(asked("idle"), fault_at(kind, 0))) << kind;
  }
}

TEST(Fits, OnTheRightRank) {
  EXPECT_TRUE(fits(asked("memory", 0), fault_at("memory", 0)));
  EXPECT_FALSE(fits(asked("memory", 0), fault_at("memory", 1)));
  Json suspects_do_not_help = fault_at("memory", 1);
  suspects_do_not_help["suspects"] = {0};
  EXPECT_FALSE(fits(asked("memory", 0), suspects_do_not_help));
}

TEST(Fits, AFaultOfNoKnownRankIfItSuspectsTheRank) {
  Json ambiguous = fault_at("replica", -1);
  EXPECT_FALSE(fits(asked("weight"), ambiguous));
  ambiguous["suspects"] = {0, 2};
  EXPECT_FALSE(fits(asked("weight"), ambiguous));
  ambiguous["suspects"] = {0, 1};
  EXPECT_TRUE(fits(asked("weight"), ambiguous));
  ambiguous.erase("suspects");
  ambiguous["where"] = "weights of layer 2, different on rank 10 and rank 1";
  EXPECT_FALSE(fits(asked("weight"), ambiguous)) << "words say nothing";
}

TEST(Fits, NothingThatLacksKindOrRank) {
  for (const Json& json : {Json(), Json(3), Json::object()}) {
    EXPECT_FALSE(fits(asked("memory"), json));
    EXPECT_FALSE(fits(json, fault_at("memory")));
    EXPECT_FALSE(fits(json, json));
  }
}

TEST(InjectionOutcomes, NoneOfACleanRun) {
  EXPECT_EQ(injection_outcomes(good_run(2)), Json::array());
  auto records = good_run(2);
  ask_for(records, {});
  EXPECT_EQ(injection_outcomes(records), Json::array());
}

TEST(InjectionOutcomes, AFoundOneSaysWhereItStruck) {
  auto records = good_run(2);
  ask_for(records, {"memory:rank=1,step=20"});
  records.push_back(fault(1));
  records.push_back(injection("memory:rank=1,step=20,bit=7"));  // the bit was left open
  EXPECT_EQ(injection_outcomes(records), Json::array({{{"planned", "memory:rank=1,step=20"},
                                                       {"kind", "memory"},
                                                       {"rank", 1},
                                                       {"step", 20},
                                                       {"struck_step", 21},
                                                       {"where", "weights of layer 3"},
                                                       {"mask", "0x00000080"},
                                                       {"first_word", 77},
                                                       {"found", true}}}));
  EXPECT_THAT(missed_injections(injection_outcomes(records)), IsEmpty());
}

TEST(InjectionOutcomes, AFaultBeforeItIsNotItsOwn) {
  auto records = good_run(2);
  ask_for(records, {"memory:rank=1,step=20"});
  records.push_back(fault(1));  // at 1010 s
  records.push_back(injection("memory:rank=1,step=20", 1012));
  EXPECT_THAT(missed_injections(injection_outcomes(records)),
              ElementsAre("injected fault not found: memory on rank 1, step 20"));
  hold_back(records, "memory", 0, 3);
  EXPECT_FALSE(injection_outcomes(records)[0]["found"]) << "of another rank";
  hold_back(records, "memory", 1, 3, 1005);
  EXPECT_FALSE(injection_outcomes(records)[0]["found"]) << "before it";
  hold_back(records, "memory", 1, 3, 1020);
  EXPECT_TRUE(injection_outcomes(records)[0]["found"]) << "held back, since one like it was told before";
}

TEST(InjectionOutcomes, OfASlowRankItSaysWhyItIsNotFound) {
  const auto missed = [](double struck_at, const char* command, int size) {
    auto records = good_run(size);
    for (Record& record : records)
      if (record.kind == RecordKind::start) record.body["command"] = command;
    ask_for(records, {"slow:rank=1,step=20"});
    records.push_back(injection("slow:rank=1,step=20", struck_at));
    return missed_injections(injection_outcomes(records)).at(0);
  };
  auto run = good_run(2);
  const double ended = find(run, RecordKind::end, 1).time;
  const std::string not_found = "injected fault not found: slow on rank 1, step 20: ";
  EXPECT_EQ(missed(ended - 20, "burn", 2), not_found + "a slow rank is reported after 60 s; run longer");
  EXPECT_EQ(missed(ended - 90, "burn", 2),
            not_found + "its steps were not clearly slower than its peers'; use a larger count or ms");
  EXPECT_EQ(missed(ended - 90, "links", 2),
            not_found +
                "two ranks have one pair and no other to compare it with; use more ranks or a larger count");
  EXPECT_EQ(missed(ended - 90, "links", 3),
            not_found + "no pair was below --warn-below or far below the median pair; use a larger count");
}

TEST(InjectionOutcomes, OneThatDidNotStrikeIsNotFoundWhateverElseWas) {
  auto records = good_run(2);
  ask_for(records, {"memory:rank=1,step=20"});
  records.push_back(fault(1));
  const Json outcome = injection_outcomes(records).at(0);
  EXPECT_EQ(outcome["found"], false);
  EXPECT_EQ(outcome["step"], 20);
  EXPECT_TRUE(outcome["struck_step"].is_null() && outcome["where"].is_null() && outcome["mask"].is_null());
  EXPECT_THAT(
      missed_injections(Json::array({outcome})),
      ElementsAre(
          "injected fault never struck: memory on rank 1, step 20: the run ended before the next occasion; "
          "run longer"));
}

TEST(InjectionOutcomes, ASlowPairIsFoundByTheFindingAboutBothItsRanks) {
  const auto is_found = [](const Json& ranks) {
    auto records = good_run(4);
    ask_for(records, {"slow:rank=1,step=0,peer=3"});
    records.push_back(injection("slow:rank=1,step=0,peer=3"));
    records.push_back(finding(-1, "link", "a pair"));
    records.back().body["text"] = "rank 1 <-> rank 3 (NVLink 4 x18): 180 GB/s";  // the text is not evaluated
    records.back().body["ranks"] = ranks;
    if (ranks.is_null()) records.back().body.erase("ranks");
    return injection_outcomes(records)[0]["found"].get<bool>();
  };
  EXPECT_TRUE(is_found({1, 3}));
  EXPECT_TRUE(is_found({0, 1, 2, 3}));
  EXPECT_FALSE(is_found({1, 2}));
  EXPECT_FALSE(is_found({13, 31}));
  EXPECT_FALSE(is_found(Json::array({3})));
  EXPECT_FALSE(is_found(Json::array())) << "what the device counts";
  EXPECT_TRUE(is_found(nullptr)) << "of an earlier version, which did not say whose they are";
}

TEST(InjectionOutcomes, AnIdleDeviceIsFoundByWhateverGoesWrongOnItsRank) {
  const auto is_found = [](const std::function<void(std::vector<Record>&, int)>& tell, int rank) {
    auto records = good_run(2);
    ask_for(records, {"idle:rank=1,step=5"});
    records.push_back(injection("idle:rank=1,step=5"));
    tell(records, rank);
    return injection_outcomes(records)[0]["found"].get<bool>();
  };
  const std::vector<std::function<void(std::vector<Record>&, int)>> traces = {
      [](auto& records, int rank) { records.push_back(fault(rank)); },
      [](auto& records, int rank) { records.push_back(loss(rank)); },
      [](auto& records, int rank) { records.push_back(restart(rank)); },
      [](auto& records, int rank) { records.push_back(finding(rank)); },
      [](auto& records, int rank) {
        find(records, RecordKind::end, rank).body["parts"][0]["success"] = false;
      }};
  for (const auto& tell : traces) {
    EXPECT_TRUE(is_found(tell, 1));
    EXPECT_FALSE(is_found(tell, 0));
  }
  EXPECT_FALSE(is_found([](auto&, int) {}, 1));
}

TEST(InjectionOutcomes, WhatAPartFoundStaysFoundAfterAResume) {
  auto records = good_run(2);
  find(records, RecordKind::end, 1).body["parts"].push_back({{"name", "io"}, {"success", false}});
  ask_for(records, {"diskfull:rank=1,step=5"});
  records.push_back(injection("diskfull:rank=1,step=5"));
  EXPECT_EQ(injection_outcomes(resumed(records, 2))[0]["found"], true);
  auto later = resumed(good_run(2), 2);  // the same in the second part, which had no failure
  ask_for(later, {"diskfull:rank=1,step=5"});
  find(later, RecordKind::end, 1).body["parts"].push_back({{"name", "io"}, {"success", false}});
  later.push_back(injection("diskfull:rank=1,step=5", 2010));
  EXPECT_EQ(injection_outcomes(later)[0]["found"], false);
}

TEST(InjectionOutcomes, EachRecordAnswersOnceInTheOrderAskedFor) {
  auto records = good_run(2);
  const std::vector<std::string> specs = {"weight:rank=0,step=5", "memory:rank=1,step=20,bit=3",
                                          "memory:rank=1,step=20"};
  ask_for(records, specs);
  records.push_back(injection("memory:rank=1,step=20,bit=3"));
  records.push_back(injection("file-bit:rank=0,step=2"));  // as in a selftest, which has other options
  const Json outcomes = injection_outcomes(records);
  ASSERT_EQ(outcomes.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(outcomes[i]["planned"], specs[i]);
  EXPECT_TRUE(outcomes[0]["struck_step"].is_null());
  EXPECT_EQ(outcomes[1]["struck_step"], 21);
  EXPECT_TRUE(outcomes[2]["struck_step"].is_null());
  EXPECT_TRUE(outcomes[3]["planned"].is_null());
  EXPECT_EQ(outcomes[3]["kind"], "file-bit");
}

}  // namespace
}  // namespace egt
