#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "egt/core/math/hd.hpp"

/// Maps points to voxels, shared by host and device. All sums are integer sums, so no result depends on the
/// order of the points.
namespace egt {

/// The half-open box [min, max), divided into dims[0] x dims[1] x dims[2] equal voxels. Along an axis a point
/// p lies in voxel floor((p - min) * (dims / (max - min))), computed in fp64, or in the last voxel if that is
/// rounded up to dims.
struct VoxelGrid {
  static constexpr std::int32_t max_dims = 1024;

  float min[3] = {-1.0f, -1.0f, -1.0f};
  float max[3] = {1.0f, 1.0f, 1.0f};
  std::int32_t dims[3] = {256, 256, 256};  ///< x, y, z; each 1 .. max_dims

  std::int64_t voxels() const { return std::int64_t{dims[0]} * dims[1] * dims[2]; }
};

/// Classification of a cloud's points; a point with any non-finite coordinate counts only as such.
struct VoxelCounts {
  std::uint64_t points_in;
  std::uint64_t points_outside;
  std::uint64_t points_not_finite;

  friend bool operator==(const VoxelCounts&, const VoxelCounts&) = default;
};

/// Features of a voxel's points; all 0 if it has none.
struct alignas(16) VoxelFeatures {
  float count;           ///< exact up to 2^24, then rounded to fp32
  float mean_offset[3];  ///< of the points from the voxel's centre, in voxels: in (-0.5, 0.5)
};

/// Max error of mean offsets. A position is truncated to 2^-16 voxels and counts as the middle of its step
/// (2^-17), and the mean is rounded to fp32 four times (together less than 2^-21).
constexpr float voxel_offset_tolerance = 1.0f / 65536.0f;

namespace math {

/// Voxels are processed in tiles, long in x so that a row of a tile fills whole memory sectors.
constexpr std::uint32_t tile_x = 32, tile_y = 4, tile_z = 4;
constexpr std::uint32_t tile_voxel_bits = 9;
constexpr std::uint32_t tile_voxels = tile_x * tile_y * tile_z;
static_assert(tile_voxels == 1u << tile_voxel_bits);

constexpr std::uint32_t voxel_fraction_bits = 16;
constexpr std::uint32_t voxel_fraction_mask = (1u << voxel_fraction_bits) - 1;

/// A point in its tile: the voxel (x fastest) and the position in it, in units of 2^-16 voxels. During
/// sorting, the bits above the voxel's number identify the tile within its region.
struct alignas(8) TilePoint {
  static constexpr std::uint32_t label_shift = voxel_fraction_bits + tile_voxel_bits, label_bits = 7;
  static_assert(label_shift + label_bits == 32);

  std::uint32_t xy;       ///< x | y << 16
  std::uint32_t z_voxel;  ///< z | voxel << 16 | label << 25

  EGT_HD std::uint32_t label() const { return z_voxel >> label_shift; }
  EGT_HD std::uint32_t voxel() const { return z_voxel >> voxel_fraction_bits & (tile_voxels - 1); }
  EGT_HD std::uint32_t x() const { return xy & voxel_fraction_mask; }
  EGT_HD std::uint32_t y() const { return xy >> voxel_fraction_bits; }
  EGT_HD std::uint32_t z() const { return z_voxel & voxel_fraction_mask; }
};

enum class PointPlace : std::uint32_t { in, outside, not_finite };

/// Computes the voxels of points. Created on the host, used anywhere.
struct VoxelLocator {
  float min[3];
  float max[3];
  double scale[3];         ///< 2^-16 voxels per unit of length
  std::uint32_t last[3];   ///< last position within the grid, 2^-16 voxels
  std::uint32_t dims[3];   ///< voxels
  std::uint32_t tiles[3];  ///< tiles; the last ones may exceed the grid

  explicit VoxelLocator(const VoxelGrid& grid) {
    constexpr std::uint32_t tile_dims[3] = {tile_x, tile_y, tile_z};
    for (int axis = 0; axis < 3; ++axis) {
      min[axis] = grid.min[axis];
      max[axis] = grid.max[axis];
      dims[axis] = static_cast<std::uint32_t>(grid.dims[axis]);
      tiles[axis] = (dims[axis] + tile_dims[axis] - 1) / tile_dims[axis];
      last[axis] = (dims[axis] << voxel_fraction_bits) - 1;
      const double extent = static_cast<double>(max[axis]) - static_cast<double>(min[axis]);
      scale[axis] = static_cast<double>(dims[axis]) / extent * (1u << voxel_fraction_bits);
    }
  }

  EGT_HD std::uint32_t tile_count() const { return tiles[0] * tiles[1] * tiles[2]; }

  EGT_HD PointPlace place(float x, float y, float z) const {
    // The difference is 0 for finite numbers and otherwise NaN.
    if (!((x - x) == 0.0f && (y - y) == 0.0f && (z - z) == 0.0f)) return PointPlace::not_finite;
    const bool in = x >= min[0] && x < max[0] && y >= min[1] && y < max[1] && z >= min[2] && z < max[2];
    return in ? PointPlace::in : PointPlace::outside;
  }

  /// Position of a point in the box along an axis, in 2^-16 voxels.
  EGT_HD std::uint32_t position(int axis, float p) const {
    const double exact = (static_cast<double>(p) - static_cast<double>(min[axis])) * scale[axis];
    const auto position = static_cast<std::uint32_t>(exact);
    return position < last[axis] ? position : last[axis];
  }

  /// The tile of a point in the box, and its position in the tile.
  EGT_HD TilePoint locate(float x, float y, float z, std::uint32_t& tile) const {
    const std::uint32_t px = position(0, x), py = position(1, y), pz = position(2, z);
    const std::uint32_t vx = px >> voxel_fraction_bits, vy = py >> voxel_fraction_bits,
                        vz = pz >> voxel_fraction_bits;
    tile = ((vz / tile_z) * tiles[1] + vy / tile_y) * tiles[0] + vx / tile_x;
    const std::uint32_t voxel = ((vz % tile_z) * tile_y + vy % tile_y) * tile_x + vx % tile_x;
    return {(px & voxel_fraction_mask) | py << voxel_fraction_bits,
            (pz & voxel_fraction_mask) | voxel << voxel_fraction_bits};
  }
};

/// The features of a voxel from the number of its points and the sums of their positions in it. 32-bit sums
/// that do not overflow give the same bits as 64-bit ones.
template <typename Sum>
EGT_HD VoxelFeatures voxel_features(Sum count, Sum x, Sum y, Sum z) {
  if (count == 0) return {0.0f, {0.0f, 0.0f, 0.0f}};
  constexpr float steps = static_cast<float>(1u << voxel_fraction_bits);
  constexpr float to_centre = 0.5f - 0.5f / steps;  // the second term moves to the middle of the step
  const float points = static_cast<float>(count), factor = 1.0f / (points * steps);
  return {points,
          {static_cast<float>(x) * factor - to_centre, static_cast<float>(y) * factor - to_centre,
           static_cast<float>(z) * factor - to_centre}};
}

}  // namespace math
}  // namespace egt
