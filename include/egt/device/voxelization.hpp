#pragma once

#include <cstddef>
#include <cstdint>

#include "egt/core/math/voxel_math.hpp"
#include "egt/core/math/voxel_scratch.hpp"

namespace egt {

/// A cloud of points into a dense grid. Voxel (x, y, z) has index (z * dims[1] + y) * dims[0] + x. Dropped
/// and counted are points with a coordinate that is not finite, and points outside the grid's box. Equal bit
/// for bit whatever the order of the points. All pointers are device memory; `points` is only read, the rest
/// is overwritten.
struct Voxelization {
  static constexpr std::int64_t most_points = std::int64_t{1} << 31;

  VoxelGrid grid;
  const float* points = nullptr;      ///< x, y, z of each point
  std::int64_t count = 0;             ///< points, 0 .. most_points
  std::uint8_t* occupancy = nullptr;  ///< grid.voxels(): 1 where a point lies, else 0
  VoxelFeatures* features = nullptr;  ///< grid.voxels(), 16-byte aligned
  VoxelCounts* counts = nullptr;      ///< one
  void* scratch = nullptr;            ///< 256-byte aligned
  std::size_t scratch_bytes = 0;      ///< at least voxelization_scratch_bytes
};

/// About 20 to 40 bytes a point, and 140 for each 512 voxels. For
/// arguments that check_voxelize accepts.
inline std::size_t voxelization_scratch_bytes(std::int64_t points, const VoxelGrid& grid) {
  return VoxelScratch(nullptr, static_cast<std::uint64_t>(points), math::VoxelLocator(grid).tile_count())
      .bytes;
}

/// The bytes that no voxelization can do without: each point read once, each voxel written once.
inline std::uint64_t voxelization_bytes(std::int64_t points, const VoxelGrid& grid) {
  return static_cast<std::uint64_t>(points) * 3 * sizeof(float) +
         static_cast<std::uint64_t>(grid.voxels()) * (sizeof(VoxelFeatures) + sizeof(std::uint8_t));
}

}  // namespace egt
