#include "report/queued_sink.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "egt/core/wait.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr double patience_s = 30;

/// A sink that blocks its writer until released, as a stopped terminal does.
class BlockingSink : public Sink {
 public:
  Status write(const Record& record) override {
    std::unique_lock lock(mutex_);
    ++waiting;
    changed_.wait(lock, [this] { return open_; });
    --waiting;
    records_.push_back(record);
    return failure;
  }
  Status flush() override { return {}; }
  void block() { set(false); }
  void let_go() { set(true); }
  std::vector<Record> records() const {
    const std::lock_guard lock(mutex_);
    return records_;
  }

  std::atomic<int> waiting{0};
  Status failure;  ///< returned by each write

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Record> records_;
  bool open_ = true;
};

Record numbered(RecordKind kind, int number) {
  return {.kind = kind, .step = number, .body = Json::object()};
}

class QueuedSinkTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = QueuedSink::open("the sink", sink_);
    ASSERT_TRUE(opened.ok());
    queue_ = std::move(opened.value());
  }
  void TearDown() override { sink_->let_go(); }

  bool comes(const std::function<bool()>& condition) {
    return wait_until([&] { return Result<bool>(condition()); }, {.seconds = patience_s, .what = "it"}).ok();
  }
  /// Blocks the sink's thread and then queues `records` more.
  void block_and_write(std::size_t records, RecordKind kind) {
    sink_->block();
    (void)queue_->write(numbered(RecordKind::notice, -7));
    ASSERT_TRUE(comes([&] { return sink_->waiting == 1; }));
    for (std::size_t i = 0; i < records; ++i) (void)queue_->write(numbered(kind, static_cast<int>(i)));
  }

  std::shared_ptr<BlockingSink> sink_ = std::make_shared<BlockingSink>();
  std::unique_ptr<QueuedSink> queue_;
};

TEST_F(QueuedSinkTest, WritesInOrderWithWhatIsPostedBetween) {
  std::vector<std::size_t> seen;
  (void)queue_->write(numbered(RecordKind::notice, 0));
  queue_->post([&] { seen.push_back(sink_->records().size()); });
  (void)queue_->write(numbered(RecordKind::fault, 1));
  queue_->post([&] { seen.push_back(sink_->records().size()); });
  queue_->close();
  ASSERT_TRUE(comes([&] { return queue_->ended(); }));
  EXPECT_THAT(seen, ElementsAre(1, 2));
}

TEST_F(QueuedSinkTest, NobodyWaitsForASinkThatBlocksAndNoFaultIsLost) {
  block_and_write(3 * QueuedSink::capacity, RecordKind::epoch);  // returns at once
  (void)queue_->write(numbered(RecordKind::fault, 1));
  (void)queue_->write(numbered(RecordKind::end, 2));
  queue_->close();
  EXPECT_FALSE(queue_->ended());
  sink_->let_go();
  ASSERT_TRUE(comes([&] { return queue_->ended(); }));
  const auto records = sink_->records();
  ASSERT_THAT(records, SizeIs(QueuedSink::capacity + 4))
      << "what fits, both that matter, and a line on the rest";
  EXPECT_EQ(records[QueuedSink::capacity + 1].kind, RecordKind::fault);
  EXPECT_EQ(records[QueuedSink::capacity + 2].kind, RecordKind::end);
  EXPECT_THAT(std::string(records.back().body.at("text")),
              HasSubstr(std::to_string(2 * QueuedSink::capacity) + " records dropped here"));
}

TEST_F(QueuedSinkTest, WhatIsLeftOutIsToldWhereItIsMissing) {
  block_and_write(QueuedSink::capacity + 5, RecordKind::progress);
  sink_->let_go();
  ASSERT_TRUE(comes([&] { return sink_->records().size() == QueuedSink::capacity + 1; }));
  (void)queue_->write(numbered(RecordKind::epoch, 99));
  ASSERT_TRUE(comes([&] { return sink_->records().size() == QueuedSink::capacity + 3; }));
  const auto records = sink_->records();
  EXPECT_THAT(std::string(records[QueuedSink::capacity + 1].body.at("text")), HasSubstr("5 records"));
  EXPECT_EQ(records.back().step, 99);
}

TEST_F(QueuedSinkTest, AFailureOfTheSinkIsToldToWhoeverWrites) {
  sink_->failure = Status(StatusCode::io_error, "the pipe is closed");
  (void)queue_->write(numbered(RecordKind::notice, 0));
  EXPECT_TRUE(comes([&] { return queue_->flush().what() == "the pipe is closed"; }));
}

TEST_F(QueuedSinkTest, ASinkThatBlocksForEverIsLeftBehind) {
  block_and_write(10, RecordKind::fault);
  queue_.reset();  // returns, although the thread is blocked
  EXPECT_EQ(sink_->waiting, 1);
}

}  // namespace
}  // namespace egt
