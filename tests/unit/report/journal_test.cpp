#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "report/journal/journal.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Record record_of(RecordKind kind, double time, int rank = 3) {
  return {.kind = kind, .time = time, .rank = rank, .step = 1, .body = {{"text", std::string(500, 'x')}}};
}

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class ReportJournal : public testing::Test {
 protected:
  ReportJournal() {
    std::string name = fs::temp_directory_path() / "egt_journal_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~ReportJournal() override { fs::remove_all(folder_); }

  std::unique_ptr<Journal> open(Journal::Mode mode = Journal::Mode::create) {
    auto journal = Journal::open(folder_, 3, mode);
    EXPECT_TRUE(journal.ok()) << journal.status().what();
    return journal.ok() ? std::move(journal.value()) : nullptr;
  }
  fs::path path() const { return folder_ / journal_name(3); }
  Journals read() const {
    auto journals = read_journals(folder_);
    EXPECT_TRUE(journals.ok()) << journals.status().what();
    return journals.ok() ? std::move(journals.value()) : Journals{};
  }

  fs::path folder_;
};

TEST(RecordSpacing, IsBoundedOverAMonthAndKeepsWhatIsEvidence) {
  RecordSpacing spacing;
  int progress = 0;
  double last = 0, widest_share = 0;
  for (int second = 0; second < 30 * 86'400; ++second) {
    if (second % 1000 == 0) {
      for (const RecordKind kind : {RecordKind::fault, RecordKind::notice, RecordKind::end})
        EXPECT_TRUE(spacing.admits(kind, second));
    }
    if (!spacing.admits(RecordKind::progress, second)) continue;
    ++progress;
    if (second > 1000) widest_share = std::max(widest_share, (second - last) / second);
    last = second;
  }
  EXPECT_GT(progress, 8'000);
  EXPECT_LT(progress, 9'000);
  EXPECT_LT(widest_share, 0.002);
  EXPECT_TRUE(spacing.admits(RecordKind::epoch, 30 * 86'400)) << "each kind has its own distance";
}

TEST_F(ReportJournal, WritesProgressAtADistance) {
  const auto journal = open();
  constexpr std::size_t written = 4000;  // of equal duration: at the end four are within the distance
  for (std::size_t i = 0; i < written; ++i)
    ASSERT_TRUE(journal->write(record_of(RecordKind::progress, 1)).ok());
  ASSERT_TRUE(journal->write(record_of(RecordKind::fault, 2)).ok());
  const Journals journals = read();
  EXPECT_LT(journals.records.size(), written);
  EXPECT_EQ(journals.records.back().kind, RecordKind::fault);
}

TEST_F(ReportJournal, AnEndThatTheFileLacksIsFound) {
  const auto ends = [&] { return check_ends(folder_, {3}, 0); };
  {
    const auto journal = open();
    ASSERT_TRUE(journal->write(record_of(RecordKind::start, 1)).ok());
    EXPECT_FALSE(ends().ok());
    const auto before = fs::file_size(path());
    ASSERT_TRUE(journal->write(record_of(RecordKind::end, 2)).ok());
    EXPECT_TRUE(ends().ok()) << ends().what();
    EXPECT_TRUE(journal->write(record_of(RecordKind::notice, 3)).ok());
    EXPECT_TRUE(ends().ok()) << "a notice may follow";
    EXPECT_THAT(check_ends(folder_, {3, 4}, 0).what(),
                HasSubstr("journal.rank4.jsonl: the record of the rank's end"));
    fs::resize_file(path(), before);
    EXPECT_FALSE(ends().ok());
    ASSERT_TRUE(journal->write(record_of(RecordKind::end, 4)).ok());
  }
  const auto resumed = open(Journal::Mode::resume);
  ASSERT_TRUE(resumed->write(record_of(RecordKind::start, 5)).ok());
  EXPECT_FALSE(ends().ok()) << "the earlier part's end";
}

TEST_F(ReportJournal, NamesThatNoJournalHasAreNotRead) {
  const std::string line = one_line(to_json(record_of(RecordKind::fault, 1))) + "\n";
  for (const char* name : {"journal.rank3.9-3.jsonl", "journal.rank3.1.jsonl", "journal.rank-3.jsonl",
                           "journal.rank.jsonl", "journal.rank3.jsonl.tmp.7"})
    std::ofstream(folder_ / name) << line;
  EXPECT_FALSE(read_journals(folder_).ok());
  std::ofstream(folder_ / "journal.rank3.jsonl") << line;
  EXPECT_EQ(read().records.size(), 1u);
}

TEST_F(ReportJournal, ReadsAllRanksThatLeftOne) {
  for (const int rank : {0, 2, 11}) {
    auto journal = Journal::open(folder_, rank);
    ASSERT_TRUE(journal.value()->write(fixtures::start(rank, 12)).ok());
  }
  const Journals journals = read();
  EXPECT_THAT(journals.ranks, ElementsAre(0, 2, 11));
  EXPECT_EQ(journals.records.size(), 3u);
}

TEST_F(ReportJournal, ABadLineCostsThatLineOnlyAndIsTold) {
  const std::string line = one_line(to_json(record_of(RecordKind::fault, 1)));
  std::ofstream(path()) << line << "\n" << line.substr(7) << "\n" << line << "\n" << line.substr(0, 9);
  const Journals journals = read();
  EXPECT_EQ(journals.records.size(), 2u);
  ASSERT_EQ(journals.problems.size(), 1u) << "the torn end is none";
  EXPECT_THAT(journals.problems[0], HasSubstr("journal.rank3.jsonl: line 2 is no record"));
}

TEST_F(ReportJournal, ADirectoryWithoutAJournalIsAnError) {
  const auto empty = read_journals(folder_);
  ASSERT_FALSE(empty.ok());
  EXPECT_THAT(empty.status().what(), HasSubstr("holds no journal of a run"));
  EXPECT_FALSE(read_journals(folder_ / "none").ok());
}

TEST_F(ReportJournal, ResumesBehindWhatIsThereAndCutsATornLine) {
  ASSERT_TRUE(open()->write(record_of(RecordKind::start, 1)).ok());
  std::ofstream(path(), std::ios::app) << "{\"body\": {\"torn" << std::string(5, '\0');
  {
    const auto journal = open(Journal::Mode::resume);
    ASSERT_TRUE(journal->write(record_of(RecordKind::end, 2)).ok());
  }
  const Journals journals = read();
  EXPECT_TRUE(journals.problems.empty());
  ASSERT_EQ(journals.records.size(), 2u);
  EXPECT_EQ(journals.records[1].kind, RecordKind::end);
}

TEST_F(ReportJournal, ResumesWhereOnlyATornLineOrNothingIs) {
  std::ofstream(path()) << "{\"torn";
  ASSERT_TRUE(open(Journal::Mode::resume)->write(record_of(RecordKind::end, 2)).ok());
  EXPECT_EQ(read().records.size(), 1u);
  fs::remove(path());
  ASSERT_TRUE(open(Journal::Mode::resume)->write(record_of(RecordKind::end, 2)).ok());
  EXPECT_EQ(read().records.size(), 1u);
}

Status append(const fs::path& folder, const Record& record, double seconds = 2.0,
              const std::shared_ptr<RecordCount>& count = std::make_shared<RecordCount>(0)) {
  std::vector<Record> one = {record};
  return append_records(folder, one, count, seconds);
}

TEST_F(ReportJournal, AnotherThreadAppendsItsLastWords) {
  const auto journal = open();
  ASSERT_TRUE(journal->write(record_of(RecordKind::start, 1)).ok());
  ASSERT_TRUE(append(folder_, record_of(RecordKind::loss, 2)).ok());
  ASSERT_TRUE(journal->write(record_of(RecordKind::end, 3)).ok());
  std::vector<double> times;
  for (const Record& record : read().records) times.push_back(record.time);
  EXPECT_THAT(times, ElementsAre(1, 2, 3));
  EXPECT_FALSE(append(folder_ / "none", record_of(RecordKind::loss, 2)).ok());
}

TEST_F(ReportJournal, LastWordsThatCannotBeWrittenAreKept) {
  std::vector<Record> words = {record_of(RecordKind::fault, 1), record_of(RecordKind::loss, 2)};
  fs::create_directory(path());  // takes the journal's path
  const auto count = std::make_shared<RecordCount>(0);
  EXPECT_FALSE(append_records(folder_, words, count).ok());
  EXPECT_EQ(words.size(), 2u);
  fs::remove(path());
  EXPECT_TRUE(append_records(folder_, words, count).ok());
  EXPECT_TRUE(words.empty());
  EXPECT_EQ(read().records.size(), 2u);
}

TEST_F(ReportJournal, LastWordsBehindATornLineAreALineOfTheirOwn) {
  std::ofstream(path()) << "{\"torn";
  ASSERT_TRUE(append(folder_, record_of(RecordKind::loss, 2)).ok());
  EXPECT_EQ(read().records.size(), 1u);
  EXPECT_EQ(read().problems.size(), 1u);
}

TEST_F(ReportJournal, ManyWritersTearNoLine) {
  const auto journal = open();
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i)
    others.emplace_back([&] {
      for (int n = 0; n < 20; ++n) EXPECT_TRUE(append(folder_, record_of(RecordKind::loss, n), 20).ok());
    });
  for (int n = 0; n < 200; ++n) ASSERT_TRUE(journal->write(record_of(RecordKind::notice, n)).ok());
  for (std::thread& other : others) other.join();
  EXPECT_EQ(read().records.size(), 280u);
  EXPECT_TRUE(read().problems.empty());
}

TEST_F(ReportJournal, ADiskThatHangsCostsNoMoreThanItsTime) {
  fs::create_directory(folder_ / "stuck");
  const fs::path pipe = folder_ / "stuck" / journal_name(3);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto keep_open = std::fopen(pipe.c_str(), "r+");
  ASSERT_NE(keep_open, nullptr);
  Record large = record_of(RecordKind::loss, 1);
  large.body["text"] = std::string(1 << 20, 'x');  // more than the pipe's capacity
  const Status status = append(folder_ / "stuck", large, 0.2);
  EXPECT_EQ(status.code(), StatusCode::timeout) << status.what();
  std::string drain(1 << 16, '\0');  // so that the thread ends before the test does
  for (std::size_t got = 0; got < (1 << 20); got += drain.size())
    ASSERT_GT(std::fread(drain.data(), 1, drain.size(), keep_open), 0u);
  std::fclose(keep_open);
}

TEST_F(ReportJournal, ADeletedFileIsTold) {
  const auto journal = open();
  ASSERT_TRUE(journal->write(record_of(RecordKind::start, 1)).ok());
  ASSERT_TRUE(journal->flush().ok());
  fs::remove_all(folder_);
  Status status;
  ASSERT_TRUE(eventually([&] { return !(status = journal->flush()).ok(); }));
  EXPECT_THAT(status.what(), HasSubstr("journal.rank3.jsonl: deleted or replaced during the run"));
  EXPECT_TRUE(journal->write(record_of(RecordKind::end, 1)).ok()) << "and is no reason to stop";
}

TEST_F(ReportJournal, AFileOfThatNameInItsPlaceIsTold) {
  const auto journal = open();
  ASSERT_TRUE(journal->write(record_of(RecordKind::start, 1)).ok());
  fs::rename(path(), folder_ / "old");
  std::ofstream(path()) << "";
  Status status;
  ASSERT_TRUE(eventually([&] { return !(status = journal->flush()).ok(); }));
  EXPECT_THAT(status.what(), HasSubstr("deleted or replaced"));
}

TEST_F(ReportJournal, ATruncatedFileIsToldAndReadWithAGap) {
  const auto journal = open();
  for (const auto kind : {RecordKind::start, RecordKind::fault})
    ASSERT_TRUE(journal->write(record_of(kind, 1)).ok());
  ASSERT_TRUE(journal->flush().ok());
  fs::resize_file(path(), 0);
  ASSERT_TRUE(journal->write(record_of(RecordKind::end, 2)).ok());
  EXPECT_THAT(journal->flush().what(), HasSubstr("journal.rank3.jsonl: truncated during the run"));
  EXPECT_THAT(read().problems,
              ElementsAre("journal.rank3.jsonl: 2 of 3 records are missing, the first is number 1"));
}

/// Removes line `gone` of the journal, counted from 0.
void remove_line(const fs::path& path, int gone) {
  std::ifstream file(path);
  std::string text, line;
  for (int number = 0; std::getline(file, line); ++number)
    if (number != gone) text += line + "\n";
  file.close();
  std::ofstream(path) << text;
}

TEST_F(ReportJournal, ARemovedRecordIsAGapInEachPartOfARun) {
  for (const auto mode : {Journal::Mode::create, Journal::Mode::resume}) {
    const auto journal = open(mode);
    for (const auto kind : {RecordKind::start, RecordKind::progress, RecordKind::fault, RecordKind::end})
      ASSERT_TRUE(journal->write(record_of(kind, 1)).ok());
  }
  EXPECT_THAT(read().problems, IsEmpty());
  remove_line(path(), 1);
  EXPECT_THAT(read().problems, IsEmpty()) << "a progress record may be dropped";
  remove_line(path(), 5);  // the fault of the second part
  EXPECT_THAT(read().problems,
              ElementsAre("journal.rank3.jsonl: 1 of 3 records are missing, the first is number 2"));
  remove_line(path(), 0);  // the start of the first one
  EXPECT_THAT(read().problems,
              ElementsAre("journal.rank3.jsonl: 1 of 3 records are missing, the first is number 1",
                          "journal.rank3.jsonl: 1 of 3 records are missing, the first is number 2"));
}

TEST_F(ReportJournal, LastWordsAreNumberedWithTheJournal) {
  const auto journal = open();
  std::vector<Record> words = {record_of(RecordKind::loss, 2)};
  ASSERT_TRUE(journal->write(record_of(RecordKind::start, 1)).ok());
  EXPECT_FALSE(append_records(folder_ / "none", words, journal->count()).ok());
  ASSERT_TRUE(append_records(folder_, words, journal->count()).ok()) << "with the number of the first try";
  ASSERT_TRUE(journal->write(record_of(RecordKind::end, 3)).ok());
  EXPECT_THAT(read().problems, IsEmpty());
}

TEST_F(ReportJournal, RecordsOfAnotherRankAreNone) {
  ASSERT_TRUE(open()->write(record_of(RecordKind::start, 1)).ok());
  fs::copy_file(path(), folder_ / journal_name(7));
  EXPECT_EQ(read().records.size(), 1u);
  EXPECT_THAT(read().problems, ElementsAre(HasSubstr("journal.rank7.jsonl: line 1 is a record of rank 3")));
}

TEST_F(ReportJournal, JournalsOfEarlierVersionsHaveNoNumbers) {
  std::ofstream(path()) << R"({"kind":"start","time":1,"rank":3,"step":null,"body":{}})" << '\n'
                        << R"({"kind":"end","time":2,"rank":3,"step":9,"body":{}})" << '\n';
  EXPECT_EQ(read().records.size(), 2u);
  EXPECT_THAT(read().problems, IsEmpty());
}

TEST_F(ReportJournal, OneProcessAloneWritesIt) {
  auto journal = open();
  Record start = record_of(RecordKind::start, 1);
  start.body = {{"process", 77}, {"identity", {{"hostname", "node7"}}}};
  ASSERT_TRUE(journal->write(start).ok());
  const auto is_refused = [&] {
    const auto second = Journal::open(folder_, 3, Journal::Mode::resume);
    EXPECT_EQ(second.status().code(), StatusCode::unavailable);
    EXPECT_EQ(await_writers(folder_, 0).code(), StatusCode::unavailable);
    return second.status().what();
  };
  EXPECT_THAT(is_refused(),
              HasSubstr("journal.rank3.jsonl: a run that is still going writes it (process 77 on node7)"));
  EXPECT_TRUE(journal->unlocked().empty());
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    journal.reset();
  });
  EXPECT_TRUE(await_writers(folder_, 20).ok()) << "of a run that ends meanwhile";
  ends.join();
  EXPECT_TRUE(open(Journal::Mode::resume));
}

TEST_F(ReportJournal, ALockEndsWithItsProcess) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto journal = Journal::open(folder_, 3);
    static_cast<void>(::write(ready[1], "x", 1));
    ::pause();
    ::_exit(0);
  }
  char one;
  ASSERT_EQ(::read(ready[0], &one, 1), 1);
  EXPECT_EQ(await_writers(folder_, 0).code(), StatusCode::unavailable);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(await_writers(folder_, 0).ok());
  for (const int end : ready) ::close(end);
}

TEST_F(ReportJournal, ForeignLinesAreCountedAndNotKept) {
  {
    std::ofstream file(path());
    for (int i = 0; i < 10'000; ++i) file << "foreign\n";
    file << std::string(40 << 20, 'x') << '\n' << one_line(to_json(record_of(RecordKind::end, 1))) << '\n';
  }
  const Journals journals = read();
  EXPECT_EQ(journals.records.size(), 1u) << "what comes behind them is read";
  ASSERT_EQ(journals.problems.size(), 4u);
  EXPECT_THAT(journals.problems[0], HasSubstr("line 1 is no record"));
  EXPECT_THAT(journals.problems[3], HasSubstr("and 9998 more lines without a record"));
}

TEST_F(ReportJournal, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder_ / journal_name(4));
  EXPECT_THAT(read().problems, ElementsAre(HasSubstr("rank3.jsonl: is no regular file"),
                                           HasSubstr("rank4.jsonl: is no regular file")));
  EXPECT_TRUE(await_writers(folder_, 0).ok());
}

}  // namespace
}  // namespace egt
