#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// One file of a rank's journal. Closed parts are numbered from 1. A thinned file has a range of numbers.
struct JournalPart {
  int rank = 0;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  bool is_open = false;  ///< the file being written, after all others
  std::string path;
};

/// "journal.rank3.1-7.jsonl"
std::string journal_part_name(int rank, std::uint64_t first, std::uint64_t last);

/// The journal files of a directory by rank, in the order they were written. Files that a larger range
/// replaces are excluded, and returned in `replaced` if it is set.
Result<std::vector<JournalPart>> find_journal_parts(const std::string& directory,
                                                    std::vector<JournalPart>* replaced = nullptr);

/// One line of a journal.
struct JournalLine {
  std::string text;          ///< without its newline; `take` may change it
  bool is_record = false;    ///< else `record` is empty
  bool has_newline = true;   ///< else it is the file's last line
  std::uint64_t number = 0;  ///< record number; 0: none
  Record record;
};

/// Passes every non-empty line of the file to `take`; an oversized line is cut. unavailable: the file cannot
/// be opened or is not regular; io_error.
Status for_each_line(const std::string& path, const std::function<Status(JournalLine&)>& take);

/// If the closed parts of a rank exceed `bytes` in total, merges them into one file within that limit, if
/// dropping progress, epoch and notice records suffices. A crash at any time is safe.
Status thin_history(const std::string& directory, int rank, std::int64_t bytes);

}  // namespace egt
