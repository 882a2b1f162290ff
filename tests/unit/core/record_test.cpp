#include "egt/core/record.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "egt/core/clock.hpp"

namespace egt {
namespace {

Fault memory_fault() {
  Fault fault;
  fault.kind = "memory";
  fault.detector = "patrol";
  fault.rank = 3;
  fault.hostname = "node7";
  fault.device_uuid = "GPU-1234";
  fault.step = 17;
  fault.phase = "memory";
  fault.where = "block 5";
  fault.offset = std::numeric_limits<std::uint64_t>::max();
  fault.expected = "0x00000001";
  fault.actual = "0x00000003";
  fault.xor_mask = "0x00000002";
  fault.count = 2;
  fault.blame = Blame::majority;
  return fault;
}

TEST(FaultJson, HasTheContractsNamesAndValues) {
  const Json json = to_json(memory_fault());
  std::set<std::string> names;
  for (const auto& item : json.items()) names.insert(item.key());
  EXPECT_EQ(names, (std::set<std::string>{"time",        "kind",     "detector",    "rank",  "hostname",
                                          "device_uuid", "step",     "phase",       "where", "offset",
                                          "expected",    "actual",   "xor",         "count", "blame",
                                          "suspects",    "incident", "provisional", "part",  "reproducer"}));
  EXPECT_EQ(json["kind"], "memory");
  EXPECT_EQ(json["rank"], 3);
  EXPECT_EQ(json["step"], 17);
  EXPECT_EQ(json["offset"].get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(json["xor"], "0x00000002");
  EXPECT_EQ(json["count"], 2);
  EXPECT_EQ(json["blame"], "majority");
  EXPECT_EQ(json["time"].get<std::string>().size(), std::string("2026-01-31T23:59:59.123Z").size());
}

TEST(FaultJson, WhatIsNotKnownIsNull) {
  const Json json = to_json(Fault{});
  for (const char* name : {"rank", "step", "part"}) EXPECT_TRUE(json[name].is_null()) << name;
  EXPECT_EQ(json["suspects"], Json::array());
}

TEST(FaultJson, AnAmbiguousOneNamesItsSuspects) {
  Fault fault;
  fault.blame = Blame::ambiguous;
  fault.suspects = {0, 2};
  EXPECT_EQ(to_json(fault)["suspects"], Json({0, 2}));
}

TEST(FaultJson, NamesEveryBlame) {
  EXPECT_STREQ(to_string(Blame::certain), "certain");
  EXPECT_STREQ(to_string(Blame::majority), "majority");
  EXPECT_STREQ(to_string(Blame::ambiguous), "ambiguous");
}

class RecordRoundTrip : public testing::TestWithParam<RecordKind> {};

TEST_P(RecordRoundTrip, ThroughTextKeepsEverything) {
  const Record record{
      GetParam(), 1769904000.123, 2, 99, {{"loss", 0.25}, {"text", "h\u00e9llo"}, {"none", nullptr}}};
  Record read;
  ASSERT_TRUE(from_json(Json::parse(to_json(record).dump()), read));
  EXPECT_EQ(read.kind, record.kind);
  EXPECT_EQ(read.time, record.time);
  EXPECT_EQ(read.rank, record.rank);
  EXPECT_EQ(read.step, record.step);
  EXPECT_EQ(read.body, record.body);
}

INSTANTIATE_TEST_SUITE_P(EveryKind, RecordRoundTrip,
                         testing::Values(RecordKind::start, RecordKind::epoch, RecordKind::progress,
                                         RecordKind::fault, RecordKind::notice, RecordKind::end),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(RecordJson, OutsideTheStepsTheStepIsNull) {
  const Json json = to_json(Record{});
  EXPECT_TRUE(json["step"].is_null());
  Record read;
  read.step = 5;
  ASSERT_TRUE(from_json(json, read));
  EXPECT_EQ(read.step, -1);
}

TEST(RecordJson, WhatIsNoRecordIsRefusedAndLeavesTheTargetAlone) {
  const Json good = to_json(Record{});
  Record read;
  read.rank = 7;
  for (const char* name : {"kind", "time", "rank", "step", "body"}) {
    Json lacking = good;
    lacking.erase(name);
    EXPECT_FALSE(from_json(lacking, read)) << "without " << name;
  }
  for (const char* name : {"kind", "time", "rank", "step"}) {
    Json wrong = good;
    wrong[name] = Json::array();
    EXPECT_FALSE(from_json(wrong, read)) << "with a list as " << name;
  }
  Json unknown = good;
  unknown["kind"] = "surprise";
  EXPECT_FALSE(from_json(unknown, read));
  for (const Json& json : {Json(), Json(1), Json::array(), Json::object()})
    EXPECT_FALSE(from_json(json, read));
  EXPECT_EQ(read.rank, 7);
}

TEST(Clock, TimesHaveTheirForms) {
  const std::string now = utc_now(), stamp = utc_stamp();
  ASSERT_EQ(now.size(), 24u) << now;
  EXPECT_EQ(now[10], 'T');
  EXPECT_EQ(now[19], '.');
  EXPECT_EQ(now.back(), 'Z');
  ASSERT_EQ(stamp.size(), 16u) << stamp;
  EXPECT_EQ(stamp[8], 'T');
  EXPECT_EQ(stamp.substr(0, 4), now.substr(0, 4));
  EXPECT_GT(unix_now(), 1.6e9);
}

}  // namespace
}  // namespace egt
