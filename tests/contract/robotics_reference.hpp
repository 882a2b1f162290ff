#pragma once

#include <cstdint>
#include <vector>

#include "egt/core/stream_fusion.hpp"
#include "egt/core/voxelization.hpp"
#include "reference.hpp"

/// The expected results of voxelize and fuse, computed with plain loops.
namespace egt::reference {

struct Voxels {
  std::vector<std::uint64_t> count;  ///< per voxel
  std::vector<double> mean_offset;   ///< three values per voxel
  VoxelCounts counts{};
};

/// In [0, n) and in [0, 1); the same with every standard library.
inline std::uint64_t below(std::uint64_t n, Engine& engine) {
  return (engine() >> 11) % n;
}
inline double fraction(Engine& engine) {
  return static_cast<double>(engine() >> 11) * 0x1p-53;
}

/// points: x, y, z of each point.
Voxels voxelize(const VoxelGrid& grid, const std::vector<float>& points);

/// The arrays of a StreamFusion, in host memory.
struct Streams {
  FusionShape shape;
  std::vector<double> times[max_fusion_streams];
  std::vector<float> values[max_fusion_streams];
  std::vector<double> timeline;
};

struct Fused {
  std::vector<float> values;
  std::vector<std::uint32_t> dropped;
};

Fused fuse(const Streams& streams);

}  // namespace egt::reference
