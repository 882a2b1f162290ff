#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "egt/core/wait.hpp"
#include "judge/evidence.hpp"
#include "report/journal/journal.hpp"
#include "report/journal/journal_files.hpp"

namespace egt {
namespace {

constexpr int max_told_lines = 3;  ///< reported lines per file that are no records

void keep(Record&& record, JournalContent content, std::vector<Record>& records) {
  const RecordKind kind = record.kind;
  if (content == JournalContent::evidence) {
    if (kind == RecordKind::epoch || (kind == RecordKind::notice && !is_lasting(record))) return;
    const bool follows = kind == RecordKind::progress && !records.empty() && records.back().kind == kind &&
                         records.back().rank == record.rank;
    if (follows) records.pop_back();
  }
  records.push_back(std::move(record));
}

/// Checks one rank's record numbers: each part of the run counts from 1 without gaps.
class NumberCheck {
 public:
  NumberCheck(int rank, std::vector<std::string>& problems) : rank_(rank), problems_(problems) {}
  NumberCheck(const NumberCheck&) = delete;
  NumberCheck& operator=(const NumberCheck&) = delete;
  ~NumberCheck() { close(); }

  /// 0: the record has no number.
  void add(std::uint64_t number) {
    if (number == 0) return;
    if (number == 1 || numbers_.contains(number)) close();  // next part of the run
    numbers_.insert(number);
  }

 private:
  void close() {
    if (!numbers_.empty() && *numbers_.rbegin() != numbers_.size()) {
      std::uint64_t first = 1;
      for (const std::uint64_t number : numbers_) first += number == first ? 1 : 0;
      problems_.push_back(fmt::format("{}: {} of {} records are missing, the first is number {}",
                                      journal_name(rank_), *numbers_.rbegin() - numbers_.size(),
                                      *numbers_.rbegin(), first));
    }
    numbers_.clear();
  }

  const int rank_;
  std::vector<std::string>& problems_;
  std::set<std::uint64_t> numbers_;
};

/// Reads as much evidence as possible, even from damaged files.
void read_journal(const JournalFile& file, JournalContent content, Sink* see, Journals& journals) {
  NumberCheck numbers(file.rank, journals.problems);
  int number = 0, wrong = 0, foreign = 0;
  const Status read = for_each_line(file.path, [&](JournalLine& line) -> Status {
    ++number;
    if (line.is_record && line.record.rank != file.rank) {
      if (foreign++ == 0)
        journals.problems.push_back(
            fmt::format("{}: line {} is a record of rank {}", file.path, number, line.record.rank));
      return {};
    }
    if (line.is_record) numbers.add(line.number);
    if (line.is_record && see) static_cast<void>(see->write(line.record));
    if (line.is_record)
      keep(std::move(line.record), content, journals.records);
    else if (line.has_newline && ++wrong <= max_told_lines)
      journals.problems.push_back(fmt::format("{}: line {} is no record", file.path, number));
    return {};
  });
  if (wrong > max_told_lines)
    journals.problems.push_back(
        fmt::format("{}: and {} without a record", file.path,
                    counted(static_cast<std::uint64_t>(wrong - max_told_lines), "more line")));
  if (!read.ok()) journals.problems.push_back(read.what());
}

/// Whether an end record follows the last start record in the last bytes of the file.
bool is_ended(const std::string& path) {
  constexpr std::streamoff tail_bytes = 4 << 20;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return false;
  file.seekg(std::max<std::streamoff>(0, file.tellg() - std::streampos(tail_bytes)));
  bool ended = false;
  const auto names = [](const std::string& line, RecordKind kind) {
    return line.find(fmt::format("\"{}\"", to_string(kind))) != std::string::npos;
  };
  for (std::string line; std::getline(file, line);) {
    if (!names(line, RecordKind::start) && !names(line, RecordKind::end)) continue;  // parsing is slow
    const Json json = Json::parse(line, nullptr, false);
    Record record;
    if (json.is_discarded() || !from_json(json, record)) continue;
    if (record.kind == RecordKind::start) ended = false;
    if (record.kind == RecordKind::end) ended = true;
  }
  return ended;
}

Status find_ends(const std::string& directory, const std::vector<int>& ranks) {
  for (const int rank : ranks)
    if (const std::string path = directory + "/" + journal_name(rank); !is_ended(path))
      return {StatusCode::io_error, fmt::format("{}: the record of the rank's end is not in the file", path)};
  return {};
}

}  // namespace

Status check_ends(const std::string& directory, const std::vector<int>& ranks, double patience_seconds) {
  Status found;
  static_cast<void>(wait_until(
      [&]() -> Result<bool> {
        found = find_ends(directory, ranks);
        return found.ok();
      },
      {.seconds = patience_seconds, .what = "the records of all ranks' ends"}));
  return found;
}

Result<Journals> read_journals(const std::string& directory, JournalContent content, Sink* see) {
  EGT_TRY_ASSIGN(const std::vector<JournalFile> files, find_journals(directory));
  if (files.empty())
    return Status(StatusCode::unavailable,
                  fmt::format("{}: holds no journal of a run (journal.rank*.jsonl)", directory));
  Journals journals;
  for (const JournalFile& file : files) {
    journals.ranks.push_back(file.rank);
    read_journal(file, content, see, journals);
  }
  return journals;
}

}  // namespace egt
