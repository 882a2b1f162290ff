#include "egt/session/record_route.hpp"

#include <gmock/gmock.h>

#include <deque>

#include "record_fixtures.hpp"

namespace egt {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

/// Rank 0 of two; what the other rank sends is put in `sent`.
class FakeControl : public Control {
 public:
  const RankPlace& place() const override { return place_; }
  Result<std::vector<std::string>> gather(const std::string& text) override {
    return std::vector{text, text};
  }
  Result<std::string> broadcast(const std::string& text) override { return text; }
  Status barrier() override { return {}; }
  Status send_to_root(std::string text) override {
    sent.push_back(std::move(text));
    return {};
  }
  Result<std::optional<std::string>> receive() override {
    if (sent.empty()) return std::optional<std::string>();
    std::optional<std::string> text = std::move(sent.front());
    sent.pop_front();
    return text;
  }

  std::deque<std::string> sent;

 private:
  RankPlace place_ = {.rank = 0, .size = 2, .local_rank = 0, .local_size = 2, .hostname = "node1"};
};

class FakeSink : public Sink {
 public:
  Status write(const Record& record) override {
    records.push_back(record);
    return failure;
  }
  Status flush() override { return failure; }
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    for (const Record& record : records)
      if (record.kind == RecordKind::notice) all.push_back(record.body.at("text"));
    return all;
  }

  std::vector<Record> records;
  Status failure;
};

class RouteTest : public testing::Test {
 protected:
  FakeControl control_;
  RecordQueue queue_{0};
  FakeSink journal_, console_, log_;
  RecordRoute route_{control_, queue_, journal_, {&console_, &log_}};
};

TEST_F(RouteTest, EverySinkOfRankZeroTakesAllRanksRecordsTheJournalItsOwn) {
  queue_.notice("mine");
  control_.sent.push_back(to_json(fixtures::fault(1)).dump());
  ASSERT_TRUE(route_.pump().ok());
  EXPECT_THAT(console_.records, SizeIs(2));
  EXPECT_THAT(log_.records, SizeIs(2));
  EXPECT_THAT(journal_.texts(), ElementsAre("mine"));
  EXPECT_THAT(journal_.records, SizeIs(1));
}

TEST_F(RouteTest, KeepsWhatTheResultIsMadeOf) {
  queue_.notice("passing");
  queue_.emit(RecordKind::epoch, 9, {});
  for (const Record& record : {fixtures::start(1, 2), fixtures::injection("weight:rank=1,step=20"),
                               fixtures::fault(1), fixtures::progress(1), fixtures::end(1)})
    control_.sent.push_back(to_json(record).dump());
  ASSERT_TRUE(route_.pump().ok());
  std::vector<RecordKind> kinds;
  for (const Record& record : route_.kept()) kinds.push_back(record.kind);
  EXPECT_THAT(kinds,
              ElementsAre(RecordKind::start, RecordKind::injection, RecordKind::fault, RecordKind::end));
}

TEST_F(RouteTest, ASinkThatFailsIsToldOnceAndTheRunGoesOn) {
  log_.failure = Status(StatusCode::io_error, "the log is lost");
  for (int pump = 0; pump < 3; ++pump) {
    queue_.notice("more");
    ASSERT_TRUE(route_.pump().ok());
  }
  const auto told = ElementsAre("more", "the log is lost", "more", "more");
  EXPECT_THAT(console_.texts(), told);
  EXPECT_THAT(journal_.texts(), told);
  EXPECT_TRUE(route_.journal_failure().ok());
}

TEST_F(RouteTest, AJournalThatFailsIsToldOnceKeptAndTriedAgain) {
  journal_.failure = Status(StatusCode::no_space, "the disk is full");
  for (int pump = 0; pump < 3; ++pump) {
    queue_.notice("more");
    ASSERT_TRUE(route_.pump().ok());
    if (pump == 1) journal_.failure = {};
  }
  EXPECT_THAT(console_.texts(), ElementsAre("more", "the disk is full", "more", "more"));
  EXPECT_THAT(journal_.texts(), ElementsAre("more", "the disk is full", "more", "more"));
  EXPECT_EQ(route_.journal_failure().what(), "the disk is full");
}

TEST_F(RouteTest, AJournalThatCannotBeBroughtToTheDiskIsTold) {
  ASSERT_TRUE(route_.pump().ok());
  journal_.failure = Status(StatusCode::unavailable, "somebody deleted it");
  for (int pump = 0; pump < 3; ++pump) ASSERT_TRUE(route_.pump().ok());
  EXPECT_THAT(console_.texts(), ElementsAre("somebody deleted it"));
}

TEST_F(RouteTest, AFailureAtTheLastRecordIsTold) {
  for (int rank = 0; rank < 2; ++rank) control_.sent.push_back(to_json(fixtures::end(rank)).dump());
  log_.failure = Status(StatusCode::io_error, "the log is lost");
  ASSERT_TRUE(route_.pump_to_the_end(1.0).ok());
  EXPECT_THAT(console_.texts(), ElementsAre("the log is lost"));
}

}  // namespace
}  // namespace egt
