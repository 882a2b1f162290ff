#pragma once

#include <cstdint>
#include <string>

#include "egt/core/pattern.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// Outcome of allocating and freeing memory.
struct AllocationOutcome {
  std::uint64_t bytes = 0;            ///< allocated
  std::uint64_t missing_bytes = 0;    ///< decrease of free memory
  std::uint64_t tolerance_bytes = 0;  ///< limit of missing_bytes, because other processes allocate too
  Mismatches found = {};              ///< words that differ from the fill
  bool is_blind = false;              ///< the flipped word was not found, or not alone
  std::string failure;                ///< why it failed, one line; empty: success, or the device was wrong

  bool is_wrong() const { return found.count > 0 || is_blind; }
};

/// Allocates, uses and frees memory. The caller's stream must be destroyed before it, so that enqueued work
/// ends before the memory is freed after a failure.
class AllocationCheck {
 public:
  explicit AllocationCheck(Device& device) : device_(device) {}

  Status prepare();
  /// Allocates `share` of the device's memory, or less if less is free. Fills it with `pattern`, verifies it,
  /// flips a word and checks that this is found. Then frees it, checks that as much is free as before, and
  /// allocates and frees as much again. Waits up to `timeout_seconds` for `stream`, which must be otherwise
  /// empty. Lack of memory is an outcome with a failure; a device failure is an error.
  Result<AllocationOutcome> run(double share, const Pattern& pattern, Stream& stream, double timeout_seconds);

 private:
  Status use(const Pattern& pattern, Stream& stream, double timeout_seconds);
  bool sees_what_was_planted() const;

  Device& device_;
  Buffer memory_;   ///< while in use
  Buffer reports_;  ///< verification of the fill, and after the flip
  Buffer pinned_;   ///< the same on the host
};

}  // namespace egt
