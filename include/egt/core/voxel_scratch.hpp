#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "egt/core/voxel_math.hpp"

/// The memory in which points are sorted by tile (a counting sort): how many each tile has, where its points
/// begin, and the points themselves. Which point of a tile comes first is left to chance; no sum depends on
/// it. A GPU puts the first points of each tile into a bin of its own at once, which for an even cloud are
/// all, and sorts only those that come after.
namespace egt {

constexpr std::uint32_t most_bin_points = 4096;

/// So many that of points which fall anywhere with equal chance (Poisson) a bin hardly ever gets more.
inline std::uint32_t bin_points_of(std::uint64_t points, std::uint64_t tiles) {
  const double mean = static_cast<double>(points) / static_cast<double>(tiles > 0 ? tiles : 1);
  if (mean >= most_bin_points) return most_bin_points;
  const auto most = static_cast<std::uint32_t>(mean + 6.0 * std::sqrt(mean) + 12.0) / 4 * 4;
  return most < most_bin_points ? most : most_bin_points;
}

/// The points of a tile that are summed at once: so few that 32-bit sums cannot overflow, and that a tile
/// which has nearly all the points is shared by many. A fuller tile is cut into slices, whose sums meet in a
/// `VoxelSums`.
constexpr std::uint32_t points_per_slice = 16384;
static_assert((std::uint64_t{points_per_slice} + most_bin_points) * math::voxel_fraction_mask <= 0xFFFFFFFFu);

/// Words from one tile's count to the next: a GPU's atomic operations on one 32-byte sector of memory wait
/// for each other.
constexpr std::uint32_t count_stride = 8;

struct VoxelSums {
  std::uint64_t count[math::tile_voxels];
  std::uint64_t x[math::tile_voxels], y[math::tile_voxels], z[math::tile_voxels];
  std::uint64_t slices_done;
};

struct VoxelSlice {
  std::uint32_t tile;
  std::uint32_t index;  ///< within the tile
  std::uint32_t sums;   ///< which VoxelSums is the tile's
};

struct VoxelScratchHeader {
  VoxelCounts counts;
  std::uint32_t overflows;   ///< is a bin too small?
  std::uint32_t points;      ///< beyond the bins that have got a place so far
  std::uint32_t full_tiles;  ///< that are cut into slices
  std::uint32_t slices;
};

/// Where all of it lies.
struct VoxelScratch {
  // To be zero at first: `zeroed_bytes` from `header` on
  VoxelScratchHeader* header;
  std::uint32_t* counts;  ///< points of each tile: see `count`
  VoxelSums* sums;        ///< of full tiles
  std::size_t zeroed_bytes;
  // Need not be set
  std::uint32_t* begins;  ///< place of each tile's first point
  VoxelSlice* slices;     ///< most_slices
  std::uint32_t most_slices;
  std::uint32_t* ranks;     ///< of each point in its tile; a multiple of 4 of them
  math::TilePoint* points;  ///< by tile
  std::uint32_t bin_points;
  math::TilePoint* bins;  ///< tiles x bin_points
  std::size_t bytes;      ///< of all

  /// From `memory` on, which is 256-byte aligned (or null: to learn `bytes`).
  VoxelScratch(void* memory, std::uint64_t point_count, std::uint64_t tiles)
      : base_(reinterpret_cast<std::uintptr_t>(memory)) {
    const std::uint64_t most_full_tiles = point_count / points_per_slice;
    header = take<VoxelScratchHeader>(1);
    counts = take<std::uint32_t>(tiles * count_stride);
    sums = take<VoxelSums>(most_full_tiles);
    zeroed_bytes = used_;
    begins = take<std::uint32_t>(tiles);
    most_slices = static_cast<std::uint32_t>(2 * most_full_tiles);  // the last of a tile may have few points
    slices = take<VoxelSlice>(most_slices);
    ranks = take<std::uint32_t>((point_count + 3) / 4 * 4);
    points = take<math::TilePoint>(point_count);
    bin_points = bin_points_of(point_count, tiles);
    bins = take<math::TilePoint>(tiles * bin_points);
    bytes = used_;
  }

  EGT_HD std::uint32_t& count(std::uint32_t tile) const { return counts[std::uint64_t{tile} * count_stride]; }
  EGT_HD math::TilePoint* bin(std::uint32_t tile) const { return bins + std::uint64_t{tile} * bin_points; }

 private:
  template <typename T>
  T* take(std::uint64_t count) {
    T* const taken = reinterpret_cast<T*>(base_ + used_);
    used_ += (count * sizeof(T) + 255) / 256 * 256;
    return taken;
  }

  std::uintptr_t base_;
  std::size_t used_ = 0;
};

}  // namespace egt
