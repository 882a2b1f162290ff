#pragma once

#include <cstdint>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/core/units.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// Every block and every operand starts on such a boundary, as the device's allocations do.
constexpr std::uint64_t memory_quantum_bytes = 512;

/// How the memory that is still wanted is taken. `block_bytes` is empty where that much is in use already.
struct MemoryPlan {
  std::uint64_t wanted_bytes = 0;          ///< what the whole program is to use
  std::uint64_t used_bytes = 0;            ///< what it uses already
  std::vector<std::uint64_t> block_bytes;  ///< whole quanta, all alike but the last
  std::int64_t product_rows = 0;           ///< products of operands are product_rows^2 fp32: the scratch

  std::uint64_t fill_bytes() const;
  std::uint64_t product_bytes() const;
};

/// Blocks and scratch together bring the use from what it is `now` to `fill` (less than one quantum and the
/// smallest scratch more). out_of_memory when there is not so much, beyond a small reserve.
Result<MemoryPlan> plan_memory(const MemoryInfo& now, const SizeOrShare& fill);

/// `fill`, but so little below `limit` (a share of the device's total) that a guard of that limit has no
/// reason to act. More than there is in total stays as it is: to be refused.
SizeOrShare fill_within(const SizeOrShare& fill, std::uint64_t total_bytes, double limit);

}  // namespace egt
