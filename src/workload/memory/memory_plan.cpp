#include "workload/memory/memory_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "egt/core/operand_bands.hpp"
#include "workload/memory/gemm_lane.hpp"

namespace egt {
namespace {

constexpr std::uint64_t mebibyte = 1u << 20;
constexpr std::uint64_t largest_block = 1024 * mebibyte;
constexpr std::int64_t smallest_product_rows = 64, largest_product_rows = largest_exact_terms;

/// About 64 blocks for a small region, so that no operation is long.
std::uint64_t block_size(std::uint64_t region) {
  return std::clamp(std::bit_floor(region / 64), mebibyte, largest_block);
}

/// The number of rows for which two square matrices of 2-byte elements fit in a block.
std::int64_t product_rows(std::uint64_t region) {
  const double block = static_cast<double>(std::min(region, block_size(region)));
  const auto rows =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::sqrt(block / 4))));
  return std::clamp(rows, smallest_product_rows, largest_product_rows);
}

std::vector<std::uint64_t> divide(std::uint64_t bytes) {
  const std::uint64_t block = block_size(bytes);
  std::vector<std::uint64_t> blocks(bytes / block, block);
  if (bytes % block) blocks.push_back(bytes % block);
  return blocks;
}

/// Memory left free for libraries, which load kernels at first use.
std::uint64_t reserve(std::uint64_t total) {
  return std::min(256 * mebibyte, total / 64);
}

}  // namespace

std::uint64_t MemoryPlan::fill_bytes() const {
  return std::accumulate(block_bytes.begin(), block_bytes.end(), std::uint64_t{0});
}

std::uint64_t MemoryPlan::product_bytes() const {
  return GemmLane::bytes_for(product_rows);
}

Result<MemoryPlan> plan_memory(const MemoryInfo& now, const SizeOrShare& fill) {
  MemoryPlan plan;
  plan.wanted_bytes = fill.of(now.total_bytes);
  plan.used_bytes = now.used_bytes();
  if (plan.wanted_bytes <= plan.used_bytes) return plan;
  const std::uint64_t room = plan.wanted_bytes - plan.used_bytes;
  if (room > now.free_bytes || now.free_bytes - room < reserve(now.total_bytes))
    return Status(
        StatusCode::out_of_memory,
        fmt::format("memory: {} requested, {} usable: {} in use and {} free of {}, less a reserve of {}; "
                    "lower --memory",
                    format_bytes(plan.wanted_bytes),
                    format_bytes(plan.used_bytes + now.free_bytes -
                                 std::min(now.free_bytes, reserve(now.total_bytes))),
                    format_bytes(plan.used_bytes), format_bytes(now.free_bytes),
                    format_bytes(now.total_bytes), format_bytes(reserve(now.total_bytes))));
  plan.product_rows = product_rows(room);
  const std::uint64_t region = room - std::min(room, plan.product_bytes());
  const std::uint64_t quanta = (region + memory_quantum_bytes - 1) / memory_quantum_bytes;
  plan.block_bytes = divide(std::max<std::uint64_t>(quanta, 1) * memory_quantum_bytes);
  return plan;
}

SizeOrShare fill_within(const SizeOrShare& fill, std::uint64_t total_bytes, double limit) {
  constexpr double margin = 0.01;  // drivers and libraries allocate more later
  const auto total = static_cast<double>(total_bytes);
  const auto most = static_cast<std::uint64_t>(std::max(limit - margin, 0.0) * total);
  const std::uint64_t wanted = fill.of(total_bytes);
  if (wanted <= most || wanted > total_bytes) return fill;
  return {.share = 0, .bytes = most, .is_share = false};
}

}  // namespace egt
