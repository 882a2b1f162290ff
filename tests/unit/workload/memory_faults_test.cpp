#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/changed_device.hpp"
#include "tests/support/memory_fixture.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/common/findings.hpp"
#include "workload/memory/memory_workload.hpp"

namespace egt {
namespace {

using test::bodies;
using test::changed;
using test::Enqueue;
using test::eventually;
using test::figure;
using test::fill_of;
using test::ForwardingDevice;
using test::injections_of;
using test::small_host_device;
using test::World;
using ::testing::HasSubstr;

/// One bit that is stuck at `value` once `cell` is set: set in stream order after each write operation.
class StuckDevice : public ForwardingDevice {
 public:
  StuckDevice(std::uint32_t mask, bool value) : ForwardingDevice(small_host_device()) {
    stick_.keep = ~mask;
    stick_.mask = value ? mask : 0;
  }
  std::atomic<std::uint32_t*> cell = nullptr;

 protected:
  Status enqueue_checked(const Operation& operation, Stream& s) override {
    EGT_TRY(ForwardingDevice::enqueue_checked(operation, s));
    if (const auto* fill = std::get_if<Fill>(&operation)) return stick(fill->words, s);
    if (const auto* refill = std::get_if<VerifyAndFill>(&operation)) return stick(refill->words, s);
    return {};
  }

 private:
  Status stick(WordsView words, Stream& s) {
    if (!cell || cell < words.data || cell >= words.data + words.count) return {};
    return flip({cell, 1}, stick_, s);
  }
  Flip stick_;
};

void tells_a_stuck_cell_once(bool value, double duty) {
  auto device = std::make_unique<StuckDevice>(1u << 5, value);
  StuckDevice& stuck = *device;
  World world(std::move(device));
  world.load.set_duty(duty);
  MemoryWorkload memory(world.environment, fill_of(4 << 20, 1));
  ASSERT_TRUE(memory.prepare().ok());
  const std::vector<WordsView> blocks = memory.blocks();
  stuck.cell = blocks[1].data + 777;
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(memory, "rounds") >= 1; }));
  ASSERT_TRUE(memory.finish(false).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_EQ(faults.size(), 1u) << "every pass sees it, one record tells it";
  EXPECT_EQ(faults[0]["offset"], blocks[0].bytes() + 777 * 4);
  EXPECT_EQ(faults[0]["xor"], "0x00000020");
  EXPECT_THAT(faults[0]["where"].get<std::string>(), HasSubstr("single bit 5, "));
  EXPECT_THAT(faults[0]["where"].get<std::string>(),
              HasSubstr(value ? "stuck at 1 in 0x00000020" : "stuck at 0 in 0x00000020"));
  EXPECT_GE(figure(memory, "mismatches"), 10u) << "the others are counted";
  EXPECT_TRUE(world.records.repeats().empty()) << "none was held back for being too many";
}

TEST(MemoryWorkload, TellsACellStuckAtOneOnce) {
  for (const double duty : {1.0, 0.5}) tells_a_stuck_cell_once(true, duty);
}

TEST(MemoryWorkload, TellsACellStuckAtZeroOnce) {
  for (const double duty : {1.0, 0.5}) tells_a_stuck_cell_once(false, duty);
}

/// Misreads a word once in the requested operation; the stored data stay correct.
class MisreadingDevice : public ForwardingDevice {
 public:
  MisreadingDevice() : ForwardingDevice(small_host_device()) {}
  std::atomic<bool> in_verify = false, in_refill = false;

 protected:
  Status enqueue_checked(const Operation& operation, Stream& s) override {
    constexpr Flip misread{.first = 50, .count = 3, .stride = 10, .mask = 0x11};
    const auto* const refill = std::get_if<VerifyAndFill>(&operation);
    if (refill && in_refill.exchange(false)) EGT_TRY(flip(refill->words, misread, s));
    const auto* const read = std::get_if<Verify>(&operation);
    if (!read || !in_verify.exchange(false)) return ForwardingDevice::enqueue_checked(operation, s);
    EGT_TRY(flip(read->words, misread, s));
    EGT_TRY(ForwardingDevice::enqueue_checked(operation, s));
    return flip(read->words, misread, s);
  }
};

/// The only fault that the memory test reports on a device that misreads once.
Json fault_of_misreading(std::atomic<bool> MisreadingDevice::*where, double duty = 1) {
  auto device = std::make_unique<MisreadingDevice>();
  (*device).*where = true;
  World world(std::move(device));
  world.load.set_duty(duty);
  MemoryWorkload memory(world.environment, fill_of(2 << 20));
  EXPECT_TRUE(memory.prepare().ok());
  EXPECT_TRUE(memory.start().ok());
  EXPECT_TRUE(eventually([&] { return figure(memory, "sweeps") >= 2; }));
  EXPECT_TRUE(memory.finish(false).ok());
  EXPECT_EQ(figure(memory, "mismatches"), 3u);
  const std::vector<Json> faults = world.faults();
  EXPECT_EQ(faults.size(), 1u);
  return faults.empty() ? Json() : faults[0];
}

TEST(MemoryWorkload, ASecondReadTellsWhatWasOnlyReadWrong) {
  const Json fault = fault_of_misreading(&MisreadingDevice::in_verify);
  EXPECT_EQ(fault["offset"], 200);
  EXPECT_EQ(fault["count"], 3);
  EXPECT_EQ(fault["xor"], "0x00000011");
  EXPECT_THAT(fault["where"].get<std::string>(), HasSubstr("bits 0x00000011 in each"));
  EXPECT_THAT(fault["where"].get<std::string>(), HasSubstr("as expected): stored right, read wrong"));
  EXPECT_THAT(fault["where"].get<std::string>(), HasSubstr("not stuck"));
  EXPECT_EQ(fault["map"]["offsets"], (Json{200, 240, 280}));
  EXPECT_EQ(fault["map"]["readers"], 1);
}

TEST(MemoryWorkload, AWrongWordIsReportedAlsoIfItsDiagnosisFails) {
  auto misreading = std::make_unique<MisreadingDevice>();
  MisreadingDevice& device = *misreading;
  device.in_verify = true;
  World world(changed<Copy>(std::move(misreading), [&](const Copy& call, const Enqueue& enqueue) {
    const bool is_second_read = !device.in_verify && call.bytes == sizeof(std::uint32_t);
    return is_second_read ? Status(StatusCode::internal, "a copy fails") : enqueue(call);
  }));
  MemoryWorkload memory(world.environment, fill_of(4 << 20, 1));
  const Status prepared = memory.prepare();  // which verifies the first block
  EXPECT_EQ(prepared.code(), StatusCode::internal);
  const std::vector<Json> faults = world.faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_THAT(faults[0]["where"].get<std::string>(), HasSubstr("not diagnosed: a copy fails"));
}

TEST(MemoryWorkload, AWrongWordInAPassSaysWhichPassAndThatItIsRewritten) {
  const Json fault = fault_of_misreading(&MisreadingDevice::in_refill);
  EXPECT_EQ(fault["offset"], 200);
  EXPECT_THAT(fault["where"].get<std::string>(), HasSubstr("in pass 1 of test finite inverse"));
  EXPECT_THAT(fault["where"].get<std::string>(), HasSubstr("right when it was rewritten"));
}

TEST(MemoryWorkload, TellsTheSameUnderALoweredDuty) {
  for (auto where : {&MisreadingDevice::in_verify, &MisreadingDevice::in_refill}) {
    Json lowered = fault_of_misreading(where, 0.5), full = fault_of_misreading(where, 1);
    for (Json* fault : {&lowered, &full}) fault->erase("time");
    EXPECT_EQ(lowered, full);
  }
}

/// The map of words whose indices and XOR masks are these.
Json map_of(const std::vector<std::pair<std::uint64_t, std::uint32_t>>& wrong) {
  WrongWords words;
  for (const auto& [index, mask] : wrong)
    words[index] = {.index = index, .expected = 0xFF, .actual = 0xFF ^ mask, .reader = no_reader};
  return error_map(words, 1000);
}

TEST(ErrorMap, SummarizesItsPositions) {
  EXPECT_TRUE(map_of({}).is_null());
  EXPECT_TRUE(map_of({{7, 1}}).is_null());
  EXPECT_EQ(map_of({{7, 1}, {9, 3}}), (Json{{"first", 1028},
                                            {"last", 1036},
                                            {"stride", nullptr},
                                            {"period", nullptr},
                                            {"xor_or", "0x00000003"},
                                            {"xor_and", "0x00000001"},
                                            {"readers", nullptr},
                                            {"offsets", {1028, 1036}},
                                            {"xors", {"0x00000001", "0x00000003"}}}));
  EXPECT_EQ(map_of({{0, 1}, {1, 1}, {2, 1}})["stride"], 4) << "words in a row";
  const Json some = map_of({{0, 1}, {256, 1}, {1024, 1}, {1280, 1}});
  EXPECT_EQ(some["stride"], nullptr);
  EXPECT_EQ(some["period"], 1024);
  EXPECT_EQ(map_of({{0, 1}, {256, 1}, {1024, 1}})["period"], nullptr) << "too few";
  EXPECT_EQ(map_of({{0, 1}, {8, 1}, {24, 1}, {32, 1}})["period"], nullptr) << "too close";
}

TEST(ErrorMap, CountsReaders) {
  WrongWords words;
  for (std::uint32_t i = 0; i < 6; ++i) words[i] = {.index = i, .actual = 1, .reader = i % 3};
  words[9] = {.index = 9, .actual = 1, .reader = no_reader};
  EXPECT_EQ(error_map(words, 0)["readers"], 3);
}

GemmMismatches wrong_elements(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& positions) {
  GemmMismatches found{};
  for (const auto& [row, column] : positions) {
    found.sample[found.wrong++] = {.row = row, .column = column, .expected = 0.1, .actual = -1, .bound = 0};
    const auto extend = [](GemmMismatches::Range& range, std::uint32_t line) {
      const auto by = GemmMismatches::Range::of(line);
      range = {std::max(range.last, by.last), std::max(range.complement_of_first, by.complement_of_first)};
    };
    extend(found.rows, row), extend(found.columns, column);
  }
  return found;
}

TEST(ErrorMap, SummarizesElementsOfAGemm) {
  EXPECT_TRUE(error_map(wrong_elements({{3, 4}}), 0, ElementType::f32).is_null());
  EXPECT_EQ(error_map(wrong_elements({{9, 66}, {1, 70}, {1, 67}}), 64, ElementType::f32),
            (Json{{"wrong", 3},
                  {"rows", {65, 65, 73}},
                  {"columns", {67, 70, 66}},
                  {"expected", {"0.1", "0.1", "0.1"}},
                  {"actual", {"-1", "-1", "-1"}},
                  {"row", {{"first", 65}, {"last", 73}, {"stride", nullptr}, {"period", nullptr}}},
                  {"column", {{"first", 66}, {"last", 70}, {"stride", nullptr}, {"period", nullptr}}},
                  {"tile", {{"row", 64}, {"rows", 16}, {"column", 64}, {"columns", 8}}}}));
  const Json fragments =
      error_map(wrong_elements({{0, 5}, {8, 5}, {24, 5}, {32, 6}, {0, 7}}), 0, ElementType::f64);
  EXPECT_EQ(fragments["row"]["period"], 8);
  EXPECT_EQ(fragments["row"]["stride"], nullptr);
  EXPECT_EQ(fragments["column"]["stride"], 1) << "columns in a row";
  EXPECT_EQ(fragments["expected"][0], "0.10000000000000001");
  EXPECT_EQ(error_map(wrong_elements({{127, 0}, {128, 0}}), 0, ElementType::f32)["tile"]["rows"], 256);
  EXPECT_EQ(error_map(wrong_elements({{255, 0}, {256, 0}}), 0, ElementType::f32)["tile"], nullptr)
      << "in two of the largest tiles";
}

/// More elements than are recorded: their number and area count those that are not.
TEST(ErrorMap, OfAGemmCountsElementsThatAreNotRecorded) {
  GemmMismatches found = wrong_elements({{1, 0}, {2, 1}});
  found.wrong = 5000;
  found.rows.last = 63;
  const Json map = error_map(found, 0, ElementType::f32);
  EXPECT_EQ(map["wrong"], 5000);
  EXPECT_EQ(map["rows"].size(), 64u);
  EXPECT_EQ(map["row"]["last"], 63);
  EXPECT_EQ(map["tile"], (Json{{"row", 0}, {"rows", 64}, {"column", 0}, {"columns", 2}}));
}

/// Words that thread blocks of one multiprocessor read wrong; `block` and distance are those of 132 of them.
Mismatches read_by_one() {
  Mismatches found = Mismatches::none();
  for (const auto& [index, block] : {std::pair(4000u, 1u), {4001u, 1u}, {274'500u, 133u}})
    found.sample[found.samples++] = {index, 0, 1u << block % 7, 37, block};
  found.count = found.samples;
  return found;
}

TEST(FaultyReader, IsTheOneThatReadWordsOfSeveralBlocksWrong) {
  EXPECT_EQ(faulty_reader(read_by_one(), 132), 37);
}

TEST(FaultyReader, IsNotBlamedForWhatTheMemoryMayCause) {
  EXPECT_FALSE(faulty_reader(Mismatches::none(), 132));
  EXPECT_FALSE(faulty_reader(read_by_one(), 1)) << "no other could read them";
  EXPECT_FALSE(faulty_reader(read_by_one(), 2)) << "by chance";
  Mismatches another = read_by_one();
  another.sample[1].reader = 38;
  EXPECT_FALSE(faulty_reader(another, 132));
  Mismatches one_block = read_by_one();
  one_block.samples = one_block.count = 2;
  EXPECT_FALSE(faulty_reader(one_block, 132));
  Mismatches column = read_by_one();
  column.sample[2].index = column.sample[0].index + (std::uint64_t{1} << 18);
  EXPECT_FALSE(faulty_reader(column, 132));
}

/// One multiprocessor of many reads `flip` wrong in the first block; only words of `stored` are stored wrong.
class BadReaderDevice : public ForwardingDevice {
 public:
  BadReaderDevice(Flip read, Flip stored)
      : ForwardingDevice(small_host_device()), info_(ForwardingDevice::info()), read_(read), stored_(stored) {
    info_.backend = "cuda";
    info_.multiprocessors = 132;
  }
  const DeviceInfo& info() const override { return info_; }
  std::atomic<bool> is_next = false;

 protected:
  Status enqueue_checked(const Operation& operation, Stream& s) override {
    const auto* const read = std::get_if<Verify>(&operation);
    if (!read || !is_next.exchange(false)) return ForwardingDevice::enqueue_checked(operation, s);
    EGT_TRY(flip(read->words, stored_, s));
    EGT_TRY(flip(read->words, read_, s));
    EGT_TRY(ForwardingDevice::enqueue_checked(operation, s));
    EGT_TRY(flip(read->words, read_, s));
    EGT_TRY(synchronize(s, 60));
    for (std::uint32_t i = 0; Mismatches::Sample & sample : read->report->sample)
      sample.reader = 37, sample.block = i++;
    return {};
  }

 private:
  DeviceInfo info_;
  const Flip read_, stored_;
};

/// Offsets of the faults, by kind.
std::map<std::string, std::vector<std::uint64_t>> faults_of_reader(Flip read, Flip stored) {
  auto device = std::make_unique<BadReaderDevice>(read, stored);
  BadReaderDevice& bad = *device;
  World world(std::move(device));
  MemoryWorkload memory(world.environment, fill_of(2 << 20));
  EXPECT_TRUE(memory.prepare().ok());
  bad.is_next = true;
  EXPECT_TRUE(memory.finish(false).ok());
  EXPECT_EQ(figure(memory, "mismatches"), read.count + stored.count);
  std::map<std::string, std::vector<std::uint64_t>> offsets;
  for (const Json& fault : world.faults()) {
    const std::string kind = fault["kind"], where = fault["where"];
    offsets[kind].push_back(fault["offset"]);
    const bool is_reader = kind == "multiprocessor";
    EXPECT_EQ(fault["count"], is_reader ? read.count : stored.count);
    EXPECT_THAT(where,
                HasSubstr(is_reader ? "SM 37: stored right, read wrong (SM 36 shares its TPC), block 1 of"
                                    : "(same): stored wrong, not stuck"));
    EXPECT_EQ(fault["blame"], "certain");
  }
  return offsets;
}

TEST(MemoryWorkload, WordsThatOneMultiprocessorReadsWrongAreNoMemoryFault) {
  const Flip read{.first = 50, .count = 3, .stride = 10, .mask = 0x11}, none{.count = 0};
  const Flip stored{.first = 7, .count = 2, .stride = 1, .mask = 0x20};
  using Offsets = std::map<std::string, std::vector<std::uint64_t>>;
  EXPECT_EQ(faults_of_reader(read, none), (Offsets{{"multiprocessor", {200}}}));
  EXPECT_EQ(faults_of_reader(none, stored), (Offsets{{"memory", {28}}})) << "read by one, but stored wrong";
  EXPECT_EQ(faults_of_reader(read, stored), (Offsets{{"memory", {28}}, {"multiprocessor", {200}}}));
}

/// The second injection is for a unit of the vote.
TEST(MemoryInjection, APatternComputedWrongIsTheMultiprocessors) {
  World world(small_host_device(), injections_of({"multiprocessor:rank=3,step=0,bit=9,layer=16",
                                                  "multiprocessor:rank=3,step=0,layer=15"}));
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.enqueue({.index = 0}).ok());
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_EQ(figure(memory, "mismatches"), 1);
  const std::vector<Json> faults = world.faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "multiprocessor");
  EXPECT_EQ(faults[0]["blame"], "certain");
  EXPECT_EQ(faults[0]["xor"], "0x00000200");
  EXPECT_THAT(faults[0]["where"].get<std::string>(),
              ::testing::AllOf(HasSubstr("CPU "), HasSubstr(": pattern computed wrong, block ")));
}

/// Of ten wrong words, eight have a sample.
Mismatches found_by(std::initializer_list<Mismatches::Sample> samples) {
  Mismatches found = Mismatches::none();
  for (const Mismatches::Sample& one : samples) add_sample(found, one);
  found.count = 10;
  found.first_index = 1;
  return found;
}

TEST(TakeMiscomputed, SeparatesWrongPatternsByTheirReader) {
  constexpr Pattern pattern{PatternKind::random, 0, 7};
  const auto right = [&](std::uint64_t index) { return PatternFunction(pattern)(index); };
  Mismatches found = found_by({{1, right(1) ^ 1, right(1), 5},
                               {2, right(2), right(2) ^ 2, 5},
                               {3, right(3) ^ 4, right(3), 6},
                               {4, right(4) ^ 8, right(4) ^ 16, 5}});
  const auto miscomputed = take_miscomputed(found, pattern);
  ASSERT_EQ(miscomputed.size(), 2u);
  EXPECT_EQ(miscomputed.at(5).count, 2u);
  EXPECT_EQ(miscomputed.at(6).count, 1u);
  EXPECT_EQ(miscomputed.at(6).xor_or, 4u);
  EXPECT_EQ(found.count, 7u);
  ASSERT_EQ(found.samples, 1u);
  EXPECT_EQ(found.sample[0].index, 2u);
  EXPECT_EQ(found.xor_and, 2u);
  Mismatches of_memory = found;
  EXPECT_TRUE(take_miscomputed(of_memory, pattern).empty());
  EXPECT_EQ(of_memory.count, 7u);
}

TEST(MemoryInjection, EachGivesOneFaultWithItsMask) {
  World world(small_host_device(),
              injections_of({"memory:rank=3,step=5,bit=9", "memory:rank=3,step=6,bit=0+31",
                             "memory:rank=3,step=7", "memory:rank=3,step=7", "memory:rank=2,step=5"}));
  MemoryWorkload memory(world.environment, fill_of(8 << 20, 1));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  for (const auto& [step, found] : {std::pair<std::int64_t, std::uint64_t>{4, 0}, {5, 1}, {6, 2}, {7, 4}}) {
    ASSERT_TRUE(memory.enqueue({.index = step}).ok());
    ASSERT_TRUE(eventually([&, found = found] { return figure(memory, "mismatches") == found; }));
  }
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_EQ(figure(memory, "mismatches"), 4u);
  const std::vector<Record> records = world.records.drain();
  std::vector<Json> struck;
  for (const Record& record : records) {
    if (record.kind == RecordKind::injection) struck.push_back(record.body);
    if (record.kind != RecordKind::fault) continue;
    const std::string offset = " offset " + std::to_string(record.body["offset"].get<std::uint64_t>());
    const auto injection = std::find_if(struck.begin(), struck.end(), [&](const Json& one) {
      return one["where"].get<std::string>().ends_with(offset);
    });
    ASSERT_NE(injection, struck.end()) << "what is found was put in before, there";
    EXPECT_EQ(record.body["xor"], (*injection)["mask"]);
    EXPECT_GE(record.body["step"], (*injection)["struck_step"]) << "training may be ahead";
    EXPECT_EQ(record.body["count"], 1);
    EXPECT_FALSE(record.body.contains("map"));
    EXPECT_THAT(record.body["where"].get<std::string>(), HasSubstr("(same): stored wrong, not stuck"));
  }
  EXPECT_EQ(struck.size(), 4u);
  EXPECT_EQ(records.size(), 8u);
}

TEST(MemoryInjection, ManyWordsAreOneIncident) {
  World world(small_host_device(), injections_of({"memory:rank=3,step=0,bit=3+7,count=5000,stride=4096"}));
  MemoryWorkload memory(world.environment, fill_of(8 << 20, 1));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.enqueue({.index = 0}).ok());
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(memory, "sweeps") >= 3; }));
  ASSERT_TRUE(memory.finish(false).ok());
  const std::vector<Json> faults = bodies(world, RecordKind::fault);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["xor"], "0x00000088");
  std::uint64_t words = 0;
  for (std::uint64_t end = 0; const WordsView& block : memory.blocks())
    if (words = block.count, end += block.bytes(); faults[0]["offset"] < end) break;
  const std::uint64_t hit = words / std::gcd(words, 4096u);
  EXPECT_GE(hit, 64u);
  EXPECT_EQ(faults[0]["count"], hit) << "each of such words of a block is hit once";
  const Json& map = faults[0]["map"];
  EXPECT_GE(map["offsets"].size(), 64u);
  EXPECT_LE(map["offsets"].size(), 64u + Mismatches::max_samples);
  EXPECT_EQ(map["first"], faults[0]["offset"]);
  EXPECT_EQ(map["period"], 4 * std::gcd(words, 4096u));
  EXPECT_EQ(figure(memory, "mismatches"), hit);
}

TEST(MemoryInjection, WhatWaitsAtTheEndIsStillPutInAndFound) {
  World world(small_host_device(), injections_of({"memory:rank=3,step=2", "memory:rank=3,step=9"}));
  MemoryWorkload memory(world.environment, fill_of(8 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.enqueue({.index = 3}).ok());
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_EQ(world.faults().size(), 1u) << "one was due, the other was not";
  EXPECT_FALSE(memory.report().success);
}

TEST(MemoryLedger, TellsEachWordOnceAndABadBlockOnce) {
  const auto found = [](std::uint64_t count, std::vector<std::uint64_t> indices) {
    Mismatches m = Mismatches::none();
    m.count = count;
    for (const std::uint64_t index : indices) m.sample[m.samples++] = {index, 0, 1};
    return m;
  };
  MemoryLedger ledger;
  EXPECT_FALSE(ledger.news(0, found(0, {})));
  EXPECT_EQ(ledger.news(0, found(2, {9, 4}))->index, 4u);
  EXPECT_FALSE(ledger.news(0, found(1, {9})));
  EXPECT_EQ(ledger.news(0, found(2, {4, 11}))->index, 11u);
  EXPECT_EQ(ledger.news(1024, found(1, {9}))->index, 9u) << "of another block";
  EXPECT_EQ(ledger.news(0, found(1000, {20, 21, 22, 23, 24, 25, 26, 27}))->index, 20u);
  EXPECT_FALSE(ledger.news(0, found(1000, {30, 31, 32, 33, 34, 35, 36, 37}))) << "the same bad block";
  ledger.was_right(0);
  EXPECT_EQ(ledger.news(0, found(1, {40}))->index, 40u);
}

/// The workload's faults on that device until each block was an operand about once and `is_struck`, or one
/// was wrong. `begin` is called after preparation.
std::vector<Json> faults_of_operands(
    std::unique_ptr<Device> device, const std::function<void()>& begin = [] {},
    const std::function<bool()>& is_struck = [] { return true; }) {
  World world(std::move(device));
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  EXPECT_TRUE(memory.prepare().ok());
  begin();
  EXPECT_TRUE(memory.start().ok());
  EXPECT_TRUE(eventually([&] {
    return figure(memory, "sweeps") >= 10 && is_struck() &&
           (figure(memory, "products_verified") >= 12 || figure(memory, "disagreements") > 0);
  }));
  EXPECT_TRUE(memory.finish(false).ok());
  std::vector<Json> faults = world.faults();
  EXPECT_EQ(memory.report().success, faults.empty());
  return faults;
}

TEST(MemoryWorkload, AProductThatDiffersWhenRepeatedIsAFault) {
  std::map<const void*, int> calls;  // by operand; the first one is also verified, so a later one is changed
  std::atomic<int> changed_calls = 1;
  const auto change = [&](Gemm call, const Enqueue& enqueue) {
    if (++calls[call.a.data] >= 2 && ++changed_calls == 1) call.alpha = 2;
    return enqueue(call);
  };
  const auto begin = [&] { calls.clear(), changed_calls = 0; };
  const std::vector<Json> faults = faults_of_operands(changed<Gemm>(small_host_device(), change), begin,
                                                      [&] { return changed_calls > 0; });
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "gemm");
  EXPECT_EQ(faults[0]["detector"], "repetition");
  EXPECT_NE(faults[0]["expected"], faults[0]["actual"]);
}

TEST(MemoryWorkload, SinesThatDifferWhenRepeatedAreAFault) {
  int calls = 0;
  const std::vector<Json> faults = faults_of_operands(
      changed<SineExponential>(small_host_device(), [&](SineExponential call, const Enqueue& enqueue) {
        if (++calls == 4) ++call.iterations;
        return enqueue(call);
      }));
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "extreme");
}

TEST(MemoryWorkload, SinesThatAreWrongEachTimeAreAFault) {  // one iteration too many, in both runs
  const std::vector<Json> faults = faults_of_operands(
      changed<SineExponential>(small_host_device(), [](SineExponential call, const Enqueue& enqueue) {
        ++call.iterations;
        return enqueue(call);
      }));
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults[0]["kind"], "extreme");
  EXPECT_EQ(faults[0]["detector"], "host sample");
  EXPECT_EQ(faults[0]["rank"], 3);
  EXPECT_NE(faults[0]["expected"], faults[0]["actual"]);
}

TEST(MemoryWorkload, SinesOfBlocksAgreeWithThoseOfOneWord) {
  const std::vector<Json> faults = faults_of_operands(
      changed<SineExponential>(small_host_device(), [](SineExponential call, const Enqueue& enqueue) {
        call.iterations += call.words.count > 1;
        return enqueue(call);
      }));
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults[0]["kind"], "extreme");
}

TEST(MemoryWorkload, TurnsThatAreNotMadeAreAFaultWithoutValues) {
  const std::vector<Json> faults = faults_of_operands(changed<SineExponential>(
      small_host_device(), [](const SineExponential&, const Enqueue&) { return Status(); }));
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults[0]["kind"], "extreme");
  EXPECT_THAT(faults[0]["where"].get<std::string>(), ::testing::EndsWith(": nothing was computed"));
  for (const char* value : {"expected", "actual", "xor"}) EXPECT_EQ(faults[0][value], "") << value;
}

TEST(MemoryWorkload, ProductsThatAreNotMadeAreAFault) {
  const std::vector<Json> faults = faults_of_operands(
      changed<Gemm>(small_host_device(), [](const Gemm&, const Enqueue&) { return Status(); }));
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults[0]["kind"], "gemm");
}

/// All its operations take equally long, so that sizes derived from rates are the same in every run.
class EvenDevice : public ForwardingDevice {
 public:
  EvenDevice() : ForwardingDevice(small_host_device()) {}
  Result<double> elapsed_ms(const Event&, const Event&) override { return 5.0; }
};

/// An fp32 block has 16 GEMMs, an int8 block 8: block after block would give 2 switches in 24.
TEST(MemoryWorkload, TwoBlocksAreMultipliedInTurn) {
  std::atomic<int> products = 0, switches = 0;
  Precision last = Precision::fp64;
  World world(changed<Gemm>(std::make_unique<EvenDevice>(), [&](const Gemm& call, const Enqueue& enqueue) {
    ++products;
    switches += std::exchange(last, call.precision) != call.precision;
    return enqueue(call);
  }));
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(32 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  EXPECT_TRUE(eventually([&] { return products >= 400; }));
  EXPECT_TRUE(memory.finish(true).ok());
  EXPECT_GE(switches, products / 3) << products;
}

/// A run that goes back to an earlier step renumbers its operands while those of the first time are in GEMMs.
TEST(MemoryWorkload, OperandsOfOneNameAreNotTakenForEachOther) {
  World world(std::make_unique<EvenDevice>());
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(32 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  for (std::int64_t i = 0; i < 400; ++i) {
    EXPECT_TRUE(memory.enqueue({.index = i % 2 == 0 ? 256 : 0}).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(memory.finish(true).ok());
  EXPECT_TRUE(world.faults().empty());
}

/// Every GEMM of a precision has a column with the same wrong bits.
std::unique_ptr<Device> miscounting_device(Precision precision, std::uint32_t mask) {
  return changed<Gemm>(
      std::make_unique<EvenDevice>(), [=](const Gemm& call, const Enqueue& enqueue) -> Status {
        EGT_TRY(enqueue(call));
        if (call.precision != precision) return {};
        return enqueue(
            FlipWords{{static_cast<std::uint32_t*>(call.d.data), static_cast<std::uint64_t>(call.d.count())},
                      {.first = 17,
                       .count = static_cast<std::uint64_t>(call.d.rows),
                       .stride = static_cast<std::uint64_t>(call.d.columns),
                       .mask = mask}});
      });
}

TEST(MemoryWorkload, AProductThatIsWrongInEveryRepetitionIsFoundByItsVerification) {
  for (const auto& [precision, mask] : {std::pair{Precision::int8, 1u}, {Precision::fp32, 1u << 20}}) {
    const std::vector<Json> faults = faults_of_operands(miscounting_device(precision, mask));
    ASSERT_FALSE(faults.empty()) << to_string(precision);
    for (const Json& fault : faults) {
      EXPECT_EQ(fault["kind"], "gemm");
      EXPECT_EQ(fault["detector"], "GEMM verification");
      EXPECT_EQ(fault["rank"], 3);
      EXPECT_GE(fault["count"], 16);
      EXPECT_THAT(fault["where"].get<std::string>(),
                  testing::AllOf(HasSubstr(std::string(to_string(precision)) + " product"),
                                 HasSubstr(", row "), testing::EndsWith(", column 17")));
      const Json& map = fault["map"];
      EXPECT_EQ(map["wrong"], fault["count"]);
      EXPECT_EQ(map["column"], (Json{{"first", 17}, {"last", 17}, {"stride", nullptr}, {"period", nullptr}}));
      EXPECT_EQ(map["row"]["stride"], 1);
      EXPECT_GE(map["rows"].size(), 16u);
      EXPECT_EQ(map["expected"][0], fault["expected"]);
      EXPECT_EQ(map["actual"][0], fault["actual"]);
    }
  }
}

/// The injected fault and the first fault record, which must agree in place and mask.
std::pair<Json, Json> fault_of_injected_gemm(const std::string& lasting) {
  World world(std::make_unique<EvenDevice>(),
              injections_of({"memory-gemm:rank=3,step=0,bit=0,lasting=" + lasting}));
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(16 << 20));
  EXPECT_TRUE(memory.prepare().ok());
  EXPECT_TRUE(memory.enqueue({.index = 0}).ok());
  EXPECT_TRUE(memory.start().ok());
  EXPECT_TRUE(eventually([&] { return figure(memory, "disagreements") > 0; }));
  EXPECT_TRUE(memory.finish(false).ok());
  std::pair<Json, Json> found;
  for (const Record& record : world.records.drain()) {
    if (record.kind == RecordKind::injection) found.first = record.body;
    if (record.kind == RecordKind::fault && found.second.is_null()) found.second = record.body;
  }
  return found;
}

/// Its lowest bit is far below what rounding explains, and all repetitions agree.
TEST(MemoryInjection, AWrongElementInEveryRepetitionIsLocated) {
  for (const char* lasting : {"check", "always"}) {
    const auto [injection, fault] = fault_of_injected_gemm(lasting);
    ASSERT_FALSE(injection.is_null() || fault.is_null());
    EXPECT_EQ(fault["detector"], "GEMM verification");
    EXPECT_EQ(fault["count"], 1);
    EXPECT_EQ(fault["where"], injection["where"]) << "row and column";
    EXPECT_THAT(fault["where"].get<std::string>(), HasSubstr(", row "));
  }
}

TEST(MemoryInjection, ALastingOneStrikesAsManyWordsInLaterBlocks) {
  World world(std::make_unique<EvenDevice>(),
              injections_of({"memory-gemm:rank=3,step=0,bit=0,count=2,stride=5,lasting=always"}));
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(16 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.enqueue({.index = 0}).ok());
  ASSERT_TRUE(memory.start().ok());
  EXPECT_TRUE(eventually([&] { return figure(memory, "disagreements") > 1; }));
  ASSERT_TRUE(memory.finish(false).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_GT(faults.size(), 1u);
  for (const Json& fault : faults) EXPECT_EQ(fault["count"], 2) << fault["where"];
}

TEST(MemoryInjection, AWrongElementInOneRepetitionIsFound) {
  const auto [injection, fault] = fault_of_injected_gemm("once");
  ASSERT_FALSE(injection.is_null() || fault.is_null());
  EXPECT_EQ(fault["kind"], "gemm");
}

/// As a library that flushes small numbers or keeps few bits. Its results repeat.
TEST(MemoryWorkload, BandsThatALibraryDoesNotMultiplyExactlyAreLeftOut) {
  World world(changed<Gemm>(std::make_unique<EvenDevice>(), [](Gemm call, const Enqueue& enqueue) {
    call.alpha = call.precision == Precision::fp32 && call.d.rows == 64 ? 1.0000001 : 1;
    return enqueue(call);
  }));
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  EXPECT_TRUE(eventually([&] { return figure(memory, "products_verified") >= 8; }));
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_TRUE(world.faults().empty());
  const PartReport report = memory.report();
  for (const auto& [name, share] : report.figures["operand_bands"]["fp32"].items())
    EXPECT_THAT(name, ::testing::AnyOf("all bits, sampled rows", "activations, sampled rows"));
  EXPECT_EQ(report.figures["not_run"][0], Json({{"check", "exact fp32 operands \"mantissa of a\""},
                                                {"reason", "this library's GEMMs are not exact with them"}}));
}

TEST(MemoryWorkload, AWrongElementInTheTrialOfABandIsAFault) {
  std::atomic<bool> is_struck = false;
  World world(
      changed<Gemm>(std::make_unique<EvenDevice>(), [&](const Gemm& call, const Enqueue& enqueue) -> Status {
        EGT_TRY(enqueue(call));
        if (call.precision != Precision::fp32 || call.d.rows != 64 || is_struck.exchange(true)) return {};
        return enqueue(FlipWords{{static_cast<std::uint32_t*>(call.d.data), 4096}, {.first = 3 * 64 + 5}});
      }));
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_THAT(faults[0]["where"].get<std::string>(), testing::StartsWith("trial, fp32 product 64 x 64 x "));
  EXPECT_THAT(faults[0]["where"].get<std::string>(), testing::EndsWith("\"mantissa of a\", row 3, column 5"));
  EXPECT_FALSE(memory.report().success);
  EXPECT_TRUE(memory.finish(true).ok());
  EXPECT_EQ(memory.report().figures.value("not_run", Json()).dump().find("not exact"), std::string::npos);
}

TEST(MemoryWorkload, SharesOfBandsAreThoseOfAllGemms) {
  World world(std::make_unique<EvenDevice>());
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  const auto bands = [&] { return memory.report().figures.at("operand_bands"); };
  EXPECT_TRUE(eventually([&] { return bands().value("fp32", Json::object()).size() == 3; })) << bands();
  const Json all = bands();
  for (const Json& shares : all) {
    double sum = 0;
    for (const Json& share : shares) sum += share.get<double>();
    EXPECT_NEAR(sum, 1, 1e-9) << all;
  }
  EXPECT_TRUE(memory.finish(false).ok());
  EXPECT_TRUE(world.faults().empty());
}

/// The step from which operands are renumbered, and their first number.
constexpr std::int64_t later_step = 256;
constexpr std::uint64_t first_later_name = 1 << 16;

/// A rank's operand answers from a step on, by name, after some earlier ones.
std::map<std::uint64_t, OperandAnswer> answers_of(std::unique_ptr<Device> device, double duty,
                                                  std::size_t before = 0) {
  World world(std::move(device));
  world.load.set_lead(LoadLead::products);
  world.load.set_duty(duty);
  MemoryWorkload memory(world.environment, fill_of(16 << 20));
  EXPECT_TRUE(memory.prepare().ok());
  EXPECT_TRUE(memory.enqueue({.index = before == 0 ? later_step : 0}).ok());
  EXPECT_TRUE(memory.start().ok());
  EXPECT_TRUE(eventually([&] { return memory.answers().size() >= before; }));
  EXPECT_TRUE(memory.enqueue({.index = later_step}).ok());
  std::map<std::uint64_t, OperandAnswer> answers;
  EXPECT_TRUE(eventually([&] {
    for (const OperandAnswer& answer : memory.answers())
      if (answer.name >= first_later_name) answers.emplace(answer.name, answer);
    return answers.size() >= 8;
  }));
  EXPECT_TRUE(memory.finish(false).ok());
  return answers;
}

TEST(MemoryWorkload, RanksMultiplyTheSameOperandsAndSoCompare) {
  const auto one = answers_of(std::make_unique<EvenDevice>(), 1),
             other = answers_of(std::make_unique<EvenDevice>(), 0.5, 3),
             wrong = answers_of(miscounting_device(Precision::fp32, 1), 1);
  int same = 0, unlike = 0;
  for (const auto& [name, answer] : one) {
    if (!other.contains(name) || !wrong.contains(name)) continue;
    for (const OperandAnswer& like : {other.at(name), wrong.at(name)}) {
      EXPECT_EQ(like.precision, answer.precision);
      EXPECT_EQ(like.rows, answer.rows);
    }
    // The last block is smaller and belongs to a different name in each run.
    if (other.at(name).pairs != answer.pairs || wrong.at(name).pairs != answer.pairs) continue;
    EXPECT_EQ(answer.digest, other.at(name).digest) << "operand " << name;
    const bool is_wrong = answer.precision == static_cast<std::uint32_t>(Precision::fp32);
    EXPECT_EQ(answer.digest != wrong.at(name).digest, is_wrong);
    (is_wrong ? unlike : same) += 1;
  }
  EXPECT_GE(same, 1);
  EXPECT_GE(unlike, 1);
  for (const auto& [name, answer] : answers_of(miscounting_device(Precision::int8, 1), 1))
    EXPECT_NE(answer.precision, static_cast<std::uint32_t>(Precision::int8)) << "this rank knows itself";
}

}  // namespace
}  // namespace egt
