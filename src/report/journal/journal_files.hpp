#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

namespace egt {

struct JournalFile {
  int rank = 0;
  std::string path;
};

/// The journals in a directory, by rank.
Result<std::vector<JournalFile>> find_journals(const std::string& directory);

/// One line of a journal.
struct JournalLine {
  std::string text;          ///< without its newline
  bool is_record = false;    ///< else `record` is empty
  bool has_newline = true;   ///< else it is the file's last line
  std::uint64_t number = 0;  ///< record number; 0: none
  Record record;
};

/// Passes every non-empty line of the file to `take`; an oversized line is cut. unavailable: the file cannot
/// be opened or is not regular; io_error. `from`, if not null: the byte to start at, afterwards the one after
/// the last whole line; an incomplete last line is not passed, since its writer may complete it.
Status for_each_line(const std::string& path, const std::function<Status(JournalLine&)>& take,
                     std::int64_t* from = nullptr);

}  // namespace egt
