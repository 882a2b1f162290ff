#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "egt/core/file_io.hpp"
#include "report/journal/journal.hpp"
#include "report/journal/run_directory.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class ReportFiles : public testing::Test {
 protected:
  ReportFiles() {
    std::string name = fs::temp_directory_path() / "egt_report_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~ReportFiles() override { fs::remove_all(folder_); }

  std::string text_of(const fs::path& path) const {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  /// Records of all journals in the folder; every line must be a record.
  std::vector<Record> records_there() const {
    auto journals = read_journals(folder_);
    EXPECT_TRUE(journals.ok()) << journals.status().what();
    if (!journals.ok()) return {};
    EXPECT_THAT(journals.value().problems, testing::IsEmpty());
    return std::move(journals.value().records);
  }
  std::size_t entries(const fs::path& path) const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }

  fs::path folder_;
};

/// During its lifetime no file may exceed `bytes`, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(ReportFiles, JournalHoldsEveryRecordAtOnce) {
  auto journal = Journal::open(folder_, 0);
  ASSERT_TRUE(journal.ok());
  const auto records = fixtures::good_run(1);
  for (const Record& record : records) ASSERT_TRUE(journal.value()->write(record).ok());
  ASSERT_TRUE(journal.value()->flush().ok());
  EXPECT_TRUE(fs::exists(folder_ / "journal.rank0.jsonl"));
  const std::vector<Record> read = records_there();
  ASSERT_EQ(read.size(), records.size());
  for (std::size_t i = 0; i < records.size(); ++i) EXPECT_EQ(to_json(read[i]), to_json(records[i]));
}

TEST_F(ReportFiles, TwoRunsDoNotShareAJournal) {
  ASSERT_TRUE(Journal::open(folder_, 0).ok());
  const auto second = Journal::open(folder_, 0);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(second.status().what(), HasSubstr("two runs in one directory"));
}

TEST_F(ReportFiles, AFullDiskIsNoSpaceAndLeavesWholeLines) {
  auto journal = Journal::open(folder_, 0);
  ASSERT_TRUE(journal.ok());
  ASSERT_TRUE(journal.value()->write(fixtures::start(0, 1)).ok());
  const auto length = fs::file_size(folder_ / journal_name(0));
  {
    const FullDisk disk(length + 20);
    const Status status = journal.value()->write(fixtures::end(0));
    EXPECT_EQ(status.code(), StatusCode::no_space) << status.what();
  }
  EXPECT_EQ(fs::file_size(folder_ / journal_name(0)), length);
  ASSERT_TRUE(journal.value()->write(fixtures::fault(0)).ok());
  const auto read = read_journals(folder_);
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read.value().records, SizeIs(2));
  EXPECT_THAT(read.value().problems, ElementsAre(HasSubstr("1 of 3 records are missing")))
      << "the end record";
}

TEST_F(ReportFiles, ADiskThatIsFullFromTheStartTakesNoJournal) {
  const FullDisk disk(1000);
  EXPECT_EQ(Journal::open(folder_, 0).status().code(), StatusCode::no_space);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(ReportFiles, ReaderLeavesOutATornLastLineOnly) {
  const std::string line = one_line(to_json(fixtures::end(0)));
  const fs::path path = folder_ / journal_name(0);
  std::ofstream(path) << line << '\n' << line.substr(0, 50);
  EXPECT_THAT(records_there(), SizeIs(1));
  std::ofstream(path) << line << '\n' << line;  // complete except for its newline
  EXPECT_THAT(records_there(), SizeIs(2));
  std::ofstream(path) << line.substr(0, 50) << '\n' << line << '\n';
  const auto broken = read_journals(folder_);
  ASSERT_TRUE(broken.ok());
  EXPECT_THAT(broken.value().problems, ElementsAre(HasSubstr("line 1 is no record")));
  EXPECT_THAT(broken.value().records, SizeIs(1));
  EXPECT_FALSE(read_journals(folder_ / "none").ok());
}

TEST_F(ReportFiles, TextThatIsNoUtf8IsWrittenAllTheSame) {
  auto journal = Journal::open(folder_, 0);
  ASSERT_TRUE(journal.value()->write({.kind = RecordKind::notice, .body = {{"text", "\xff"}}}).ok());
  EXPECT_THAT(records_there(), SizeIs(1));
}

TEST_F(ReportFiles, RunDirectoryIsMadeWithItsParents) {
  const std::string path = folder_ / "a/b/c";
  auto directory = RunDirectory::create(path);
  ASSERT_TRUE(directory.ok()) << directory.status().what();
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_EQ(directory.value().file("x"), path + "/x");
  directory.value().discard();
  EXPECT_EQ(entries(folder_), 0u);
}

TEST_F(ReportFiles, DiscardKeepsWhatWasThere) {
  auto directory = RunDirectory::create(folder_);
  ASSERT_TRUE(directory.ok());
  directory.value().discard();
  EXPECT_TRUE(fs::is_directory(folder_));
  auto filled = RunDirectory::create(folder_ / "a");
  std::ofstream(folder_ / "a/file") << "x";
  filled.value().discard();
  EXPECT_TRUE(fs::exists(folder_ / "a/file"));
}

TEST_F(ReportFiles, AFileIsNoRunDirectory) {
  std::ofstream(folder_ / "file") << "x";
  for (const char* name : {"file", "file/below"}) {
    const auto directory = RunDirectory::create(folder_ / name);
    ASSERT_FALSE(directory.ok());
    EXPECT_EQ(directory.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(directory.status().what(), HasSubstr("is a file; name a folder"));
  }
  EXPECT_EQ(entries(folder_), 1u);
}

TEST_F(ReportFiles, ARunIsNotWrittenOver) {
  for (const char* name : {"result.json", "journal.rank7.jsonl"}) {
    std::ofstream(folder_ / name) << "x";
    const auto directory = RunDirectory::create(folder_);
    ASSERT_FALSE(directory.ok());
    EXPECT_THAT(directory.status().what(), HasSubstr("holds a run already"));
    fs::remove(folder_ / name);
  }
}

TEST_F(ReportFiles, AFolderThatCannotBeMadeLeavesNothing) {
  const auto directory = RunDirectory::create("/proc/nowhere/run");
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.status().code(), StatusCode::unavailable);
}

TEST_F(ReportFiles, DefaultRunDirectoriesAreUnlike) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  auto first = RunDirectory::create(""), second = RunDirectory::create("");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first.value().path(), second.value().path());
  EXPECT_THAT(first.value().path(), testing::StartsWith("extreme_gpu_trainer_runs/"));
  second.value().discard();
  first.value().discard();
  EXPECT_EQ(entries(folder_), 0u);
  fs::current_path(before);
}

TEST_F(ReportFiles, JoiningMakesTheFolderWhereItIsMissing) {
  EXPECT_TRUE(RunDirectory::join(folder_ / "shared").ok());
  EXPECT_TRUE(RunDirectory::join(folder_ / "shared").ok());
}

TEST_F(ReportFiles, AtomicWriteReplacesTheWholeFile) {
  const std::string path = folder_ / "result.json";
  ASSERT_TRUE(write_atomically(path, "a longer first text").ok());
  ASSERT_TRUE(write_atomically(path, "second").ok());
  EXPECT_EQ(text_of(path), "second");
  EXPECT_EQ(entries(folder_), 1u);
}

TEST_F(ReportFiles, AtomicWriteThatFailsKeepsTheOldFileAndNoTemporary) {
  const std::string path = folder_ / "result.json";
  ASSERT_TRUE(write_atomically(path, "old").ok());
  fs::create_symlink(path, folder_ / "link");
  ASSERT_TRUE(write_atomically(folder_ / "link", "old").ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link")) << "what it leads to is replaced";
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(write_atomically(pipe, "no reader").ok());
  EXPECT_TRUE(fs::is_fifo(pipe));
  fs::remove(pipe);
  fs::remove(folder_ / "link");
  {
    const FullDisk disk(10);
    EXPECT_EQ(write_atomically(path, std::string(100, 'x')).code(), StatusCode::no_space);
  }
  EXPECT_EQ(text_of(path), "old");
  EXPECT_EQ(entries(folder_), 1u);
  EXPECT_FALSE(write_atomically(folder_ / "none/x", "text").ok());
}

}  // namespace
}  // namespace egt
