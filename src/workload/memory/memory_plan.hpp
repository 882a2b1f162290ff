#pragma once

#include <cstdint>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/core/units.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// Alignment of every block and operand, equal to that of device allocations.
constexpr std::uint64_t memory_quantum_bytes = 512;

/// Allocation plan for the missing memory. `block_bytes` is empty if that much is in use already.
struct MemoryPlan {
  std::uint64_t wanted_bytes = 0;          ///< target for the whole program
  std::uint64_t used_bytes = 0;            ///< used by it already
  std::vector<std::uint64_t> block_bytes;  ///< multiples of the quantum, equal but for the last
  std::int64_t product_rows = 0;           ///< GEMM results (the scratch) are product_rows^2 fp32

  std::uint64_t fill_bytes() const;
  std::uint64_t product_bytes() const;
};

/// Plans blocks and scratch that raise the use from `now` to `fill` (plus less than one quantum and the
/// smallest scratch). Error out_of_memory if less is free, apart from a small reserve.
Result<MemoryPlan> plan_memory(const MemoryInfo& now, const SizeOrShare& fill);

/// Lowers `fill` slightly below `limit` (a share of the device's total), so that the memory limiter does not
/// act. A `fill` above the total is unchanged, so that it is refused later.
SizeOrShare fill_within(const SizeOrShare& fill, std::uint64_t total_bytes, double limit);

}  // namespace egt
