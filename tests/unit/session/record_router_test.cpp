#include "session/record_router.hpp"

#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <string>

#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

/// One rank of two. `sent` holds rank 1's texts: a test of rank 0 fills it, a test of rank 1 reads it.
class FakeControl : public Control {
 public:
  explicit FakeControl(int rank)
      : place_{.rank = rank, .size = 2, .local_rank = rank, .local_size = 2, .hostname = "node1"} {}
  const RankPlace& place() const override { return place_; }
  Result<std::vector<std::string>> gather(const std::string& text) override {
    return std::vector{text, text};
  }
  Result<std::string> broadcast(const std::string& text) override { return text; }
  Status barrier() override { return {}; }
  Status send_to_root(std::string text) override {
    if (failures > 0 && failures--) return {StatusCode::aborted, "MPI_Isend failed"};
    sent.push_back(std::move(text));
    return {};
  }
  Result<std::optional<std::string>> receive() override {
    if (!receive_failure.ok()) return receive_failure;
    if (sent.empty()) return std::optional<std::string>();
    std::optional<std::string> text = std::move(sent.front());
    sent.pop_front();
    return text;
  }

  std::vector<std::string> sent_kinds() const {
    std::vector<std::string> kinds;
    for (const std::string& text : sent) kinds.push_back(Json::parse(text).at("kind"));
    return kinds;
  }

  std::deque<std::string> sent;
  int failures = 0;  ///< number of sends that fail from now on
  Status receive_failure;

 private:
  RankPlace place_;
};

class FakeSink : public Sink {
 public:
  Status write(const Record& record) override {
    records.push_back(record);
    return failure;
  }
  Status flush() override {
    if (while_it_flushes) while_it_flushes();
    return failure;
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    for (const Record& record : records)
      if (record.kind == RecordKind::notice) all.push_back(record.body.at("text"));
    return all;
  }

  std::vector<Record> records;
  Status failure;
  std::function<void()> while_it_flushes;
};

class RouteTest : public testing::Test {
 protected:
  FakeControl control_{0};
  RecordQueue queue_{0};
  FakeSink journal_, console_, log_;
  ProgressBoard board_;
  ProgressBoard::Line& line_ = board_.line("journal");
  RecordRouter route_{control_, queue_, journal_, line_, {&console_, &log_}};
};

TEST_F(RouteTest, ThatTheJournalIsBeingWrittenIsOnTheBoard) {
  std::string during;
  journal_.while_it_flushes = [&] { during = line_.read().phase; };
  ASSERT_TRUE(route_.pump().ok());
  EXPECT_EQ(during, "write");
  EXPECT_EQ(line_.read().phase, "");
}

TEST_F(RouteTest, EverySinkOfRankZeroTakesAllRanksRecordsTheJournalItsOwn) {
  queue_.notice("mine");
  control_.sent.push_back(to_json(fixtures::fault(1)).dump());
  ASSERT_TRUE(route_.pump().ok());
  EXPECT_THAT(console_.records, SizeIs(2));
  EXPECT_THAT(log_.records, SizeIs(2));
  EXPECT_THAT(journal_.texts(), ElementsAre("mine"));
  EXPECT_THAT(journal_.records, SizeIs(1));
}

TEST_F(RouteTest, WhatAnotherThreadTakesForTheJournalIsDeliveredOnceAndNotWrittenAgain) {
  queue_.notice("taken");
  const std::vector<Record> taken = route_.take_for_journal();
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(taken.front().body.at("text"), "taken");
  EXPECT_THAT(route_.take_for_journal(), IsEmpty());
  queue_.notice("later");
  ASSERT_TRUE(route_.pump().ok());
  ASSERT_TRUE(route_.pump().ok());
  EXPECT_THAT(console_.texts(), ElementsAre("taken", "later"));
  EXPECT_THAT(journal_.texts(), ElementsAre("later"));
}

TEST_F(RouteTest, WhatWasTakenAndCouldNotBeWrittenIsAFailureOfTheJournal) {
  queue_.notice("taken");
  static_cast<void>(route_.take_for_journal());
  route_.fail_journal({StatusCode::no_space, "the disk is full"});
  ASSERT_TRUE(route_.pump().ok());
  EXPECT_EQ(route_.journal_failure().code(), StatusCode::no_space);
  EXPECT_THAT(console_.texts(), ElementsAre("taken", "the disk is full"));
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

/// The history's findings follow the last records of all ranks.
TEST_F(RouteTest, AFindingIsKeptThoughThePumpFails) {
  control_.receive_failure = Status(StatusCode::aborted, "MPI_Irecv failed");
  journal_.failure = Status(StatusCode::no_space, "the disk is full");
  Finding slower;
  slower.kind = "history";
  queue_.emit(slower);
  EXPECT_FALSE(route_.pump().ok());
  ASSERT_THAT(route_.kept(), SizeIs(1));
  EXPECT_EQ(route_.kept()[0].body.at("kind"), "history");
  EXPECT_EQ(route_.journal_failure().code(), StatusCode::no_space);
}

TEST_F(RouteTest, ASinkThatFailsIsToldOnceAndTheRunGoesOn) {
  log_.failure = Status(StatusCode::io_error, "the log is lost");
  for (int pump = 0; pump < 3; ++pump) {
    queue_.notice("more");
    ASSERT_TRUE(route_.pump().ok());
  }
  const auto reported = ElementsAre("more", "the log is lost", "more", "more");
  EXPECT_THAT(console_.texts(), reported);
  EXPECT_THAT(journal_.texts(), reported);
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

TEST_F(RouteTest, AFailureIsToldInTheCallThatMeetsIt) {
  log_.failure = Status(StatusCode::io_error, "the log is lost");
  ASSERT_TRUE(route_.pump().ok());
  EXPECT_THAT(console_.texts(), ElementsAre("the log is lost")) << "there may be no later call";
}

TEST_F(RouteTest, AFailureAtTheLastRecordIsTold) {
  for (int rank = 0; rank < 2; ++rank) control_.sent.push_back(to_json(fixtures::end(rank)).dump());
  log_.failure = Status(StatusCode::io_error, "the log is lost");
  ASSERT_TRUE(route_.pump_to_the_end(1.0).ok());
  EXPECT_THAT(console_.texts(), ElementsAre("the log is lost"));
}

TEST_F(RouteTest, ARecordThatCannotBeReadIsAnErrorAndThoseBehindItArrive) {
  for (const std::string& text : {std::string("{\"kind\": \"fau"), to_json(fixtures::fault(1)).dump()})
    control_.sent.push_back(text);
  EXPECT_EQ(route_.pump().code(), StatusCode::internal);
  EXPECT_THAT(console_.records, SizeIs(1));
  for (int rank = 0; rank < 2; ++rank) control_.sent.push_back(to_json(fixtures::end(rank)).dump());
  EXPECT_EQ(route_.pump_to_the_end(5.0).code(), StatusCode::internal) << "it may have been a fault";
  EXPECT_THAT(route_.kept(), SizeIs(3)) << "the fault and both ends";
}

/// Rank 1, which sends its records to rank 0.
class OtherRankTest : public testing::Test {
 protected:
  void emit_batch() {
    queue_.notice("one");
    queue_.emit(fault_);
    queue_.notice("two");
  }

  FakeControl control_{1};
  RecordQueue queue_{1};
  FakeSink journal_;
  ProgressBoard board_;
  RecordRouter route_{control_, queue_, journal_, board_.line("journal"), {}};
  Fault fault_ = [] {
    Fault fault;
    fault.kind = "memory";
    fault.rank = 1;
    return fault;
  }();
};

TEST_F(OtherRankTest, JournalsAndSendsAllButEpochs) {
  emit_batch();
  queue_.emit(RecordKind::epoch, 9, {});
  ASSERT_TRUE(route_.pump().ok());
  EXPECT_THAT(journal_.records, SizeIs(4));
  EXPECT_THAT(control_.sent_kinds(), ElementsAre("notice", "fault", "notice"));
}

TEST_F(OtherRankTest, AFirstSendThatFailsLosesNothing) {
  emit_batch();
  control_.failures = 1;
  EXPECT_EQ(route_.pump().code(), StatusCode::aborted);
  EXPECT_THAT(journal_.records, SizeIs(3)) << "all are in the journal before the first is sent";
  EXPECT_THAT(control_.sent, IsEmpty());
  queue_.emit(RecordKind::end, 9, {});
  ASSERT_TRUE(route_.pump().ok());
  EXPECT_THAT(control_.sent_kinds(), ElementsAre("notice", "fault", "notice", "end"))
      << "in order, each once";
  EXPECT_THAT(journal_.records, SizeIs(4)) << "none is journalled twice";
}

TEST_F(OtherRankTest, TheLastWordsAreSentAgainWhereThatFails) {
  emit_batch();
  control_.failures = 5;
  EXPECT_TRUE(route_.pump_to_the_end(60.0).ok());
  EXPECT_THAT(control_.sent_kinds(), ElementsAre("notice", "fault", "notice"));
}

TEST_F(OtherRankTest, AJournalThatFailsKeepsNothingFromRankZero) {
  journal_.failure = Status(StatusCode::no_space, "the disk is full");
  emit_batch();
  ASSERT_TRUE(route_.pump().ok());
  ASSERT_TRUE(route_.pump().ok());
  EXPECT_THAT(control_.sent_kinds(), ElementsAre("notice", "fault", "notice", "notice")) << "and the failure";
  EXPECT_EQ(route_.journal_failure().what(), "the disk is full");
}

TEST_F(OtherRankTest, WhatCannotBeSentForLongIsBoundedAndNoFaultIsLost) {
  control_.failures = 1 << 20;
  fault_.where = "first";
  queue_.emit(fault_);
  for (std::size_t i = 0; i < RecordRouter::max_unsent + 100; ++i) {
    queue_.emit(RecordKind::progress, static_cast<std::int64_t>(i), {});
    EXPECT_FALSE(route_.pump().ok());
  }
  fault_.where = "second";
  queue_.emit(fault_);
  control_.failures = 0;
  ASSERT_TRUE(route_.pump().ok());
  const auto kinds = control_.sent_kinds();
  ASSERT_THAT(kinds, SizeIs(RecordRouter::max_unsent));
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "fault"), 2);
  EXPECT_EQ(kinds.front(), "fault");
  EXPECT_EQ(kinds.back(), "fault");
  EXPECT_EQ(Json::parse(control_.sent[1]).at("step"), 102) << "the oldest progress goes first";
}

}  // namespace
}  // namespace egt
