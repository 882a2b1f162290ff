#pragma once

#include <cstdint>
#include <string>

#include "egt/core/pattern.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// What became of memory that was taken and given back.
struct AllocationOutcome {
  std::uint64_t bytes = 0;            ///< that were taken
  std::uint64_t missing_bytes = 0;    ///< by which less is free now than before
  std::uint64_t tolerance_bytes = 0;  ///< how many may be missing: others take memory too
  Mismatches found = {};              ///< words that were not as filled
  bool is_blind = false;              ///< the word that was changed on purpose was not found, or not it alone
  std::string failure;  ///< why it is no success, one line; empty: it is one, or the device was wrong

  bool is_wrong() const { return found.count > 0 || is_blind; }
};

/// Memory that is taken, used and given back. Its stream is the caller's, destroyed before it, so that what
/// is enqueued at a failure ends before the memory goes.
class AllocationCheck {
 public:
  explicit AllocationCheck(Device& device) : device_(device) {}

  Status prepare();
  /// Takes `share` of the device's memory, or less where less is free, fills it with `pattern` and verifies
  /// it, sees a word that it changes itself, gives all back, looks whether as much is free as before, and
  /// takes and gives back as much once more. Waits for `stream`, at most `timeout_seconds`; nothing else may
  /// be in it. A device that has not the memory is an outcome with a failure; one that fails is an error.
  Result<AllocationOutcome> run(double share, const Pattern& pattern, Stream& stream, double timeout_seconds);

 private:
  Status use(const Pattern& pattern, Stream& stream, double timeout_seconds);
  bool sees_what_was_planted() const;

  Device& device_;
  Buffer memory_;   ///< while it is used
  Buffer reports_;  ///< of the verification as filled, and of the one behind the change
  Buffer pinned_;   ///< likewise
};

}  // namespace egt
