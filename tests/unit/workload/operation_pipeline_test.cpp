#include "workload/common/operation_pipeline.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <utility>

#include "device/host/host_device.hpp"
#include "device/injection/forwarding_device.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/progress_board.hpp"
#include "model/digest_exchange.hpp"
#include "tests/support/changed_device.hpp"
#include "tests/support/single_rank_communicator.hpp"

namespace egt {
namespace {

/// An event completes 0.3 s after its first query.
class LateEvents : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Result<bool> done(const Event& event) override {
    const auto [first, is_new] = asked_.try_emplace(&event, Clock::now());
    if (is_late && seconds_since(first->second) < 0.3) return false;
    return ForwardingDevice::done(event);
  }

  bool is_late = false;

 private:
  std::map<const Event*, Clock::time_point> asked_;
};

TEST(SkippedCopy, LeavesNoValidEvidence) {
  int skipped = 0;
  const auto real = test::skips_a_copy(std::move(open_host_device({}).value()), skipped);
  Device& device = *real;
  const Buffer words = std::move(device.allocate(64).value());
  const auto pipeline = std::move(
      OperationPipeline::create(device, StreamPriority::low, StreamUse::all, "the test", 1).value());
  skipped = 2;
  for (const std::uint64_t wrong : {0, 1, 0}) {
    ASSERT_TRUE(pipeline
                    ->submit(
                        [&](Stream& stream, Evidence* evidence) -> Status {
                          EGT_TRY(device.fill(words.words(), {}, stream));
                          EGT_TRY(device.digest(words.words(), &evidence->first, stream));
                          EGT_TRY(device.digest(words.words(), &evidence->second, stream));
                          return device.verify(words.words(), {}, &evidence->mismatches, stream);
                        },
                        [&](const Evidence& evidence, double) {
                          EXPECT_EQ(evidence.mismatches.count, wrong);
                          EXPECT_EQ(evidence.runs_agree(), wrong == 0);
                          return Status();
                        },
                        {})
                    .ok());
    ASSERT_TRUE(pipeline->drain(60).ok());
  }
}

/// The all-gather of a single rank is a copy, too.
TEST(SkippedCopy, DoesNotRepeatTheDigestsOfAnEarlierExchange) {
  for (const int which : {3, 4}) {
    int skipped = 0;
    const auto real = test::skips_a_copy(std::move(open_host_device({}).value()), skipped);
    Device& device = *real;
    const auto stream = std::move(device.create_stream(StreamPriority::low, StreamUse::all).value());
    SingleRankCommunicator communicator(device);
    ProgressBoard board;
    DigestExchange exchange(device, communicator, *stream, &board.line("main"));
    ASSERT_TRUE(exchange.prepare(1).ok());
    skipped = which;
    for (const bool arrives : {true, false, true}) {
      ASSERT_TRUE(device.set_zero(exchange.own(), sizeof(Digest), *stream).ok());
      ASSERT_TRUE(exchange.enqueue(1).ok());
      EXPECT_EQ(exchange.collect(60).ok(), arrives);
    }
  }
}

/// A restart begins while a stream still waits. AddressSanitizer sees a copy from memory that was freed.
TEST(Exchanges, DigestsOfTheHostOutliveAFailedWait) {
  const auto device = std::move(open_host_device({}).value());
  const auto stream = std::move(device->create_stream(StreamPriority::low, StreamUse::all).value());
  SingleRankCommunicator communicator(*device);
  DigestExchange exchange(*device, communicator, *stream, nullptr);
  ASSERT_TRUE(exchange.prepare(2).ok());
  std::atomic<std::uint32_t> signal = 0;
  ASSERT_TRUE(device->await_signal(reinterpret_cast<std::uint32_t*>(&signal), 1, *stream).ok());
  const Answers digests = {{1, 2}, {3, 4}};
  EXPECT_EQ(exchange.exchange(digests, 0.01).status().code(), StatusCode::timeout);
  signal = 1;
  ASSERT_TRUE(device->synchronize(*stream, 60).ok());
  EXPECT_EQ(Answers(exchange.own(), exchange.own() + 2), digests);
}

/// At most three operations in flight.
class Pipelines : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = std::make_unique<LateEvents>(std::move(open_host_device({}).value()));
    words_ = std::move(device_->allocate(64).value());
    pipeline_ = std::move(
        OperationPipeline::create(*device_, StreamPriority::low, StreamUse::all, "the test", 3).value());
  }

  Status submit() {
    return pipeline_->submit(
        [this](Stream& stream, Evidence* evidence) {
          return device_->digest({words_.as<std::uint32_t>(), 16}, &evidence->first, stream);
        },
        [this, number = submitted_++](const Evidence&, double) {
          EXPECT_EQ(number, judged_++) << "in order";
          return number == bad_ ? Status(StatusCode::internal, "judged bad") : Status();
        },
        {});
  }

  std::unique_ptr<LateEvents> device_;
  Buffer words_;
  std::unique_ptr<OperationPipeline> pipeline_;
  int submitted_ = 0, judged_ = 0, bad_ = -1;
};

TEST_F(Pipelines, HoldsAsManyAsItsDepthAndJudgesTheFirstForOneMore) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit().ok());
  EXPECT_EQ(judged_, 0);
  ASSERT_TRUE(submit().ok());
  EXPECT_GE(judged_, 1);
  EXPECT_EQ(pipeline_->submitted(), 4u);
  EXPECT_EQ(pipeline_->judged(), static_cast<std::uint64_t>(judged_));
  ASSERT_TRUE(pipeline_->drain(10).ok());
  EXPECT_EQ(judged_, 4);
}

/// AddressSanitizer sees evidence that was freed.
TEST_F(Pipelines, ARunThatIsStoppedIsJudgedLater) {
  std::stop_source stop;
  const auto run = [&] {
    return pipeline_->run(
        [this](Stream& stream, Evidence* evidence) {
          return device_->digest(words_.words(), &evidence->first, stream);
        },
        stop.get_token());
  };
  const auto found = run();
  ASSERT_TRUE(found.ok());
  EXPECT_NE(found.value().first, Digest());
  device_->hold(true);
  stop.request_stop();
  EXPECT_EQ(run().status().code(), StatusCode::stopped);
  device_->hold(false);
  EXPECT_EQ(pipeline_->judged(), 1u);
  ASSERT_TRUE(pipeline_->drain(10).ok());
  EXPECT_EQ(pipeline_->judged(), 2u);
}

TEST_F(Pipelines, IsFullTellsWhetherSubmitWouldWait) {
  EXPECT_FALSE(pipeline_->is_full().value());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit().ok());
  ASSERT_TRUE(device_->synchronize(pipeline_->stream(), 10).ok());
  EXPECT_FALSE(pipeline_->is_full().value()) << "all three are over";
  EXPECT_EQ(judged_, 3);
}

TEST_F(Pipelines, JudgesTheFirstAndLeavesTheRest) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit().ok());
  ASSERT_TRUE(pipeline_->judge_first(2, {}).ok());
  EXPECT_EQ(judged_, 2);
  ASSERT_TRUE(pipeline_->judge_first(1, {}).ok());
  EXPECT_EQ(judged_, 2) << "they are judged already";
  ASSERT_TRUE(pipeline_->judge_first(9, {}).ok());
  EXPECT_EQ(judged_, 3) << "more were not submitted";
}

TEST_F(Pipelines, WhatAJudgeSaysReachesWhoWaits) {
  bad_ = 1;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit().ok());
  EXPECT_EQ(pipeline_->drain(10).what(), "judged bad");
  ASSERT_TRUE(pipeline_->drain(10).ok());
  EXPECT_EQ(judged_, 3);
}

TEST_F(Pipelines, SecondsAreThoseOfAllThatIsEnqueued) {
  device_->is_late = true;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit().ok());
  EXPECT_EQ(pipeline_->drain(0.45).code(), StatusCode::timeout);
  EXPECT_LT(judged_, 3);
}

TEST_F(Pipelines, WhatIsOverIsJudgedWithNoSecondsLeft) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit().ok());
  ASSERT_TRUE(device_->synchronize(pipeline_->stream(), 10).ok());
  EXPECT_TRUE(pipeline_->drain(0).ok());
  EXPECT_EQ(judged_, 3);
}

TEST_F(Pipelines, WhatIsDiscardedIsNotJudged) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(submit().ok());
  ASSERT_TRUE(pipeline_->discard(10).ok());
  EXPECT_EQ(judged_, 0);
  EXPECT_EQ(pipeline_->judged(), 3u);
}

}  // namespace
}  // namespace egt
