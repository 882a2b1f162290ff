#pragma once

#include <cstddef>
#include <cstdint>

#include "egt/core/math/voxel_math.hpp"
#include "egt/core/math/voxel_scratch.hpp"

namespace egt {

/// Converts a point cloud to a dense grid. Voxel (x, y, z) has index (z * dims[1] + y) * dims[0] + x. Points
/// with a non-finite coordinate and points outside the grid's box are dropped and counted. Bit-for-bit equal
/// for any order of the points. All pointers are device memory; `points` is only read, the rest is
/// overwritten.
struct Voxelization {
  static constexpr const char* name = "voxelize";
  static constexpr std::int64_t max_points = std::int64_t{1} << 31;

  VoxelGrid grid;
  const float* points = nullptr;      ///< x, y, z of each point
  std::int64_t count = 0;             ///< number of points, 0 .. max_points
  std::uint8_t* occupancy = nullptr;  ///< grid.voxels(): 1 if the voxel has a point, else 0
  VoxelFeatures* features = nullptr;  ///< grid.voxels(), 16-byte aligned
  VoxelCounts* counts = nullptr;      ///< one
  void* scratch = nullptr;            ///< 256-byte aligned
  std::size_t scratch_bytes = 0;      ///< at least voxelization_scratch_bytes
};

/// About 20 to 40 bytes per point, and 140 per 512 voxels. The arguments must pass check_voxelize.
inline std::size_t voxelization_scratch_bytes(std::int64_t points, const VoxelGrid& grid) {
  return VoxelScratch(nullptr, static_cast<std::uint64_t>(points), math::VoxelLocator(grid).tile_count())
      .bytes;
}

/// Min memory traffic of a voxelization, in bytes: each point read once, each voxel written once.
inline std::uint64_t voxelization_bytes(std::int64_t points, const VoxelGrid& grid) {
  return static_cast<std::uint64_t>(points) * 3 * sizeof(float) +
         static_cast<std::uint64_t>(grid.voxels()) * (sizeof(VoxelFeatures) + sizeof(std::uint8_t));
}

}  // namespace egt
