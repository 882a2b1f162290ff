#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "workload/file/file_block.hpp"

namespace egt {

/// Summary of the errors in one reading of one file: one incident per kind.
class FileIncidents {
 public:
  struct Incident {
    BlockFinding first;
    std::uint64_t blocks = 0;
    std::uint64_t words = 0;  ///< number of wrong words
  };

  void add(const BlockFinding& finding);
  /// Adds missing blocks, from `offset` to the expected end of the file.
  void add_missing(std::uint64_t offset, std::uint64_t blocks);
  /// Returns the incidents sorted by first block, and clears them. Two effects of one event are one incident.
  /// So the unwritten place of a misplaced block is not counted, nor the missing end of a file that was
  /// swapped for a shorter one.
  std::vector<Incident> take();

 private:
  void add(const BlockFinding& finding, std::uint64_t blocks);
  void drop_what_misplacing_left();

  std::array<std::optional<Incident>, file_fault_kinds> by_kind_;
  std::vector<std::uint64_t> misplaced_from_;  ///< expected places of the blocks; the first ones only
  std::vector<BlockFinding> not_written_;      ///< stale or lost; the first ones only
};

/// Describes the error in an incident's first block: "block 7 holds the block of byte 8192".
std::string describe(const FileIncidents::Incident& incident, const BlockIdentity& of_file);

}  // namespace egt
