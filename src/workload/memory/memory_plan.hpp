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
  std::int64_t product_rows = 0;  ///< the largest product of operands is product_rows^2 fp32: the scratch

  std::uint64_t fill_bytes() const;
  std::uint64_t product_bytes() const;
};

/// Blocks and scratch together bring the use from what it is `now` to `fill` (less than one quantum and the
/// smallest scratch more). out_of_memory when there is not so much, beyond a small reserve.
Result<MemoryPlan> plan_memory(const MemoryInfo& now, const SizeOrShare& fill);

/// `fill`, but so little below `limit` (a share of the device's total) that a guard of that limit has no
/// reason to act. More than there is in total stays as it is: to be refused.
SizeOrShare fill_within(const SizeOrShare& fill, std::uint64_t total_bytes, double limit);

/// Two matrices of `rows` x `depth` that lie one after the other and are multiplied as A B^T.
struct OperandPiece {
  std::int64_t rows = 0;
  std::int64_t depth = 0;

  std::int64_t elements() const { return 2 * rows * depth; }
  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(rows) * static_cast<double>(depth);
  }
};

constexpr std::int64_t operand_depth = 1024;
constexpr std::int64_t smallest_product_rows = 64;

/// The next piece of what is left of a block, so that its pieces cover every element. `elements_left`: a
/// block's or what earlier pieces left of it; `rows`: as many as are wanted, a power of two from
/// smallest_product_rows to `rows_limit`. Few different shapes come of it, for a device may tune each.
OperandPiece next_operand_piece(std::int64_t elements_left, std::int64_t rows, std::int64_t rows_limit);

}  // namespace egt
