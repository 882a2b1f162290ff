#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// One file of a rank's journal. Closed parts are numbered from 1; a thinned file holds a range of them.
struct JournalPart {
  int rank = 0;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  bool is_open = false;  ///< the one that is written, behind all the others
  std::string path;
};

/// "journal.rank3.1-7.jsonl"
std::string journal_part_name(int rank, std::uint64_t first, std::uint64_t last);

/// The journal files of a directory by rank, each rank's in the order of their writing. Those that a larger
/// range replaces are left out, and handed to `replaced` where one is given.
Result<std::vector<JournalPart>> find_journal_parts(const std::string& directory,
                                                    std::vector<JournalPart>* replaced = nullptr);

/// One line of a journal.
struct JournalLine {
  std::string text;          ///< without its newline; `take` may change it
  bool is_record = false;    ///< else `record` is empty
  bool has_newline = true;   ///< else it is the file's last
  std::uint64_t number = 0;  ///< of the record; 0: it has none
  Record record;
};

/// Hands every line of the file that is not empty to `take`; of one that is far too long its beginning.
/// unavailable: it cannot be opened, or is no regular file; io_error.
Status for_each_line(const std::string& path, const std::function<Status(JournalLine&)>& take);

/// Where the parts that a rank has closed are together larger than `bytes`: makes one file of them that is
/// not, as far as that can be had from progress, epoch and notice records. At any moment a crash may come.
Status thin_history(const std::string& directory, int rank, std::int64_t bytes);

}  // namespace egt
