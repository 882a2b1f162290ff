#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "workload/file/file_block.hpp"

namespace egt {

/// What one reading of one file found wrong, summed up: one incident a kind.
class FileIncidents {
 public:
  struct Incident {
    BlockFinding first;
    std::uint64_t blocks = 0;
    std::uint64_t words = 0;  ///< that differ
  };

  void add(const BlockFinding& finding);
  /// Blocks that are not there, from `offset` to the file's end as it must be.
  void add_missing(std::uint64_t offset, std::uint64_t blocks);
  /// The incidents by their first block, after which it is empty. What one event leaves in two ways is one
  /// incident: a misplaced block's own place, which still holds what was there before, and the missing end
  /// of a file that was swapped for a shorter one, are no incidents of their own.
  std::vector<Incident> take();

 private:
  void add(const BlockFinding& finding, std::uint64_t blocks);
  void drop_what_misplacing_left();

  std::array<std::optional<Incident>, file_fault_kinds> by_kind_;
  std::vector<std::uint64_t> misplaced_from_;  ///< where the blocks should be; the first ones only
  std::vector<BlockFinding> not_written_;      ///< stale or lost; the first ones only
};

/// What is wrong with the first block of an incident, in words: "block 7 holds the block of byte 8192".
std::string describe(const FileIncidents::Incident& incident, const BlockIdentity& of_file);

}  // namespace egt
