#include "egt/core/record_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "egt/core/clock.hpp"

namespace egt {
namespace {

TEST(RecordQueue, KeepsOrderAndStampsTimeAndRank) {
  RecordQueue queue(3);
  const double before = unix_now();
  queue.notice("first");
  queue.emit(RecordKind::epoch, 9, {{"loss", 0.5}});
  queue.warning("third");
  const std::vector<Record> records = queue.drain();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].body["text"], "first");
  EXPECT_EQ(records[0].body["level"], "info");
  EXPECT_EQ(records[1].step, 9);
  EXPECT_EQ(records[1].body["loss"], 0.5);
  EXPECT_EQ(records[2].body["level"], "warning");
  for (const Record& record : records) {
    EXPECT_EQ(record.rank, 3);
    EXPECT_GE(record.time, before);
    EXPECT_LE(record.time, unix_now());
  }
  EXPECT_TRUE(queue.drain().empty());
}

TEST(RecordQueue, AFaultBecomesAFaultRecordOfItsStep) {
  RecordQueue queue(0);
  Fault fault;
  fault.kind = "file";
  fault.step = 12;
  queue.emit(fault);
  const std::vector<Record> records = queue.drain();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].kind, RecordKind::fault);
  EXPECT_EQ(records[0].step, 12);
  EXPECT_EQ(records[0].body["kind"], "file");
}

TEST(RecordQueue, WhenFullDropsAndCountsOnlyNoticesProgressAndEpochs) {
  RecordQueue queue(0, 4, FaultLimit::none);
  for (int i = 0; i < 10; ++i) queue.notice("talk");
  for (int i = 0; i < 5; ++i) queue.emit(RecordKind::progress, i, {});
  EXPECT_EQ(queue.dropped(), 11u);
  for (int i = 0; i < 20; ++i) queue.emit(Fault{});
  queue.emit(RecordKind::start, -1, {});
  queue.emit(RecordKind::epoch, 1, {});
  queue.emit(RecordKind::end, -1, {});
  EXPECT_EQ(queue.dropped(), 12u);
  EXPECT_EQ(queue.drain().size(), 4u + 20u + 2u);
}

TEST(RecordQueue, TakesRecordsAgainAfterADrain) {
  RecordQueue queue(0, 1);
  queue.notice("one");
  queue.notice("lost");
  EXPECT_EQ(queue.drain().size(), 1u);
  queue.notice("two");
  EXPECT_EQ(queue.drain().size(), 1u);
  EXPECT_EQ(queue.dropped(), 1u);
}

Fault fault_at(const std::string& where, std::uint64_t offset, int rank = 0) {
  Fault fault;
  fault.kind = "memory";
  fault.detector = "patrol";
  fault.part = "memory";
  fault.rank = rank;
  fault.where = where;
  fault.offset = offset;
  return fault;
}

TEST(RecordQueue, TheSameFaultIsToldOnceAndThenCounted) {
  RecordQueue queue(0);
  for (int i = 0; i < 5; ++i) queue.emit(fault_at("block 3", 64));
  queue.emit(fault_at("block 3", 68));
  queue.emit(fault_at("block 4", 64));
  queue.emit(fault_at("block 3", 64, 1));
  EXPECT_EQ(queue.drain().size(), 4u);
  queue.emit(fault_at("block 3", 64));
  EXPECT_TRUE(queue.drain().empty()) << "a drain must not make it new";
  const Json repeats = queue.repeats();
  ASSERT_EQ(repeats.size(), 1u);
  EXPECT_EQ(repeats[0]["kind"], "memory");
  EXPECT_EQ(repeats[0]["detector"], "patrol");
  EXPECT_EQ(repeats[0]["part"], "memory");
  EXPECT_EQ(repeats[0]["rank"], 0);
  EXPECT_EQ(repeats[0]["count"], 5);
  EXPECT_LE(repeats[0]["last_time"].get<double>(), unix_now());
  EXPECT_GE(repeats[0]["last_time"].get<double>(), unix_now() - 60);
}

TEST(RecordQueue, SixteenPlacesOfOneKindDetectorAndRankAreTold) {
  RecordQueue queue(0);
  for (std::uint64_t i = 0; i < 1000; ++i) queue.emit(fault_at("block 3", 4 * i));
  Fault other = fault_at("block 3", 0);
  other.detector = "hold";
  queue.emit(other);
  other.kind = "file-bit";
  queue.emit(other);
  EXPECT_EQ(queue.drain().size(), 16u + 2u);
  ASSERT_EQ(queue.repeats().size(), 1u);
  EXPECT_EQ(queue.repeats()[0]["count"], 1000 - 16);
}

TEST(RecordQueue, WhatIsToldProvisionallyAndThenInFullIsTwoRecords) {
  RecordQueue queue(0);
  Fault fault = fault_at("weights of layer 2", 0);
  for (const bool provisional : {true, false}) {
    fault.provisional = provisional;
    queue.emit(fault);
  }
  EXPECT_EQ(queue.drain().size(), 2u);
  EXPECT_EQ(queue.repeats(), Json::array());
}

TEST(RecordQueue, WhatSettlesAProvisionalRecordIsNeverHeldBack) {
  RecordQueue queue(0);
  Fault fault = fault_at("block 3", 64);
  queue.emit(fault);
  fault.settles = true;
  queue.emit(fault);
  EXPECT_EQ(queue.drain().size(), 2u);
  EXPECT_EQ(queue.repeats(), Json::array());
  fault.settles = false;
  queue.emit(fault);
  EXPECT_EQ(queue.drain().size(), 0u);
}

TEST(RecordQueue, FaultsOfNobodyKnownAreCountedForNull) {
  RecordQueue queue(0);
  for (int i = 0; i < 2; ++i) queue.emit(fault_at("weights", 0, -1));
  EXPECT_TRUE(queue.repeats().at(0)["rank"].is_null());
}

TEST(RecordQueue, WithoutALimitNothingIsHeldBack) {
  RecordQueue queue(0, 4096, FaultLimit::none);
  for (int i = 0; i < 100; ++i) queue.emit(fault_at("block 3", 64));
  EXPECT_EQ(queue.drain().size(), 100u);
  EXPECT_EQ(queue.repeats(), Json::array());
}

TEST(RecordQueue, LosesNoFaultOfManyThreadsWhileBeingDrained) {
  constexpr std::size_t threads = 4, faults = 500;
  RecordQueue queue(0, 16, FaultLimit::none);
  std::atomic<std::size_t> running = threads;
  std::size_t fault_records = 0, notices = 0;
  const auto take = [&] {
    for (const Record& record : queue.drain())
      (record.kind == RecordKind::fault ? fault_records : notices) += 1;
  };
  {
    std::vector<std::jthread> producers;
    for (std::size_t t = 0; t < threads; ++t)
      producers.emplace_back([&] {
        for (std::size_t i = 0; i < faults; ++i) {
          queue.emit(Fault{});
          queue.notice("beside it");
        }
        --running;
      });
    while (running > 0) {
      take();
      std::this_thread::yield();
    }
  }
  take();
  EXPECT_EQ(fault_records, threads * faults);
  EXPECT_EQ(notices + queue.dropped(), threads * faults) << "every notice is delivered or counted";
}

}  // namespace
}  // namespace egt
