#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "egt/core/math/voxel_math.hpp"

/// Memory in which points are sorted by tile, so that each tile's points are contiguous. Their order within a
/// tile is not deterministic; no sum depends on it.
///
/// An even cloud is sorted in two passes: into regions of neighbouring tiles, each with its own bin in
/// `points`, then within each bin. If a bin is too small, and on the host, a counting sort is used. It counts
/// the points of each tile, assigns each tile a range, and moves the points there.
namespace egt {

constexpr std::uint32_t max_regions = 4096;
constexpr std::uint32_t max_region_points = 4096;  ///< a bin's capacity: one block of a GPU sorts it

/// Tiles that are sorted together: those whose numbers agree except for the last `shift` bits.
struct VoxelRegions {
  std::uint32_t count = 0;  ///< 0: the cloud has too many points or tiles for bins
  std::uint32_t shift = 0;
  std::uint32_t room = 0;  ///< points per bin

  /// Uses as many tiles per region as a label can hold, but with a mean number of points that leaves a bin
  /// space for variation. A bin of uniformly distributed points (Poisson) hardly ever gets more than `room`.
  VoxelRegions(std::uint64_t points, std::uint64_t tiles) {
    constexpr double max_mean = 3000.0;
    for (std::uint32_t bits = math::TilePoint::label_bits + 1; bits-- > 0;) {
      const std::uint64_t regions = (tiles + (1u << bits) - 1) >> bits;
      const double share = static_cast<double>(1u << bits) / static_cast<double>(tiles);  // of the points
      const double mean = static_cast<double>(points) * (share < 1.0 ? share : 1.0);
      if (mean > max_mean) continue;
      if (regions > max_regions) return;
      count = static_cast<std::uint32_t>(regions);
      shift = bits;
      room = static_cast<std::uint32_t>(mean + 6.0 * std::sqrt(mean) + 12.0) / 4 * 4;
      return;
    }
  }

  EGT_HD std::uint32_t region(std::uint32_t tile) const { return tile >> shift; }
  EGT_HD std::uint32_t label(std::uint32_t tile) const { return tile & ((1u << shift) - 1); }
};

/// Max points of a tile that one block sums: their 32-bit sums cannot overflow. A fuller tile is divided into
/// slices, so that many blocks share a tile that has nearly all the points. The slices' sums are combined in
/// a `VoxelSums`.
constexpr std::uint32_t points_per_slice = 16384;
static_assert(std::uint64_t{points_per_slice} * math::voxel_fraction_mask <= 0xFFFFFFFFu);

/// Words between counters, because a GPU serializes atomic operations on one 32-byte memory sector.
constexpr std::uint32_t count_stride = 8;

/// Location of a tile's points.
struct alignas(8) TileRange {
  std::uint32_t begin;
  std::uint32_t count;
};

struct VoxelSums {
  std::uint64_t count[math::tile_voxels];
  std::uint64_t x[math::tile_voxels], y[math::tile_voxels], z[math::tile_voxels];
  std::uint64_t slices_done;
};

struct VoxelSlice {
  std::uint32_t tile;
  std::uint32_t index;  ///< within the tile
  std::uint32_t sums;   ///< index of the tile's VoxelSums
};

struct VoxelScratchHeader {
  VoxelCounts counts;
  std::uint32_t uneven;      ///< nonzero: bins do not suffice, the counting sort runs
  std::uint32_t points;      ///< points whose range is assigned so far
  std::uint32_t full_tiles;  ///< number of tiles that are divided into slices
  std::uint32_t slices;
};

/// Memory layout of the scratch memory.
struct VoxelScratch {
  VoxelRegions regions;

  // Must be zero at first: `zeroed_bytes` from `header` on
  VoxelScratchHeader* header;
  std::uint32_t* region_counts;  ///< see `region_count`
  std::size_t zeroed_bytes;
  // For the counting sort; must be zero before it: `sort_zeroed_bytes` from `counts` on
  std::uint32_t* counts;  ///< see `count`
  VoxelSums* sums;        ///< of full tiles
  std::size_t sort_zeroed_bytes;
  VoxelSlice* slices;  ///< max_slices
  std::uint32_t max_slices;
  std::uint32_t* ranks;  ///< index of each point within its tile
  // For both sorts
  TileRange* ranges;        ///< of each tile's points, in `points`
  math::TilePoint* points;  ///< the regions' bins, or one contiguous array
  std::size_t bytes;        ///< of the whole memory

  /// Lays out `memory`, which is 256-byte aligned (or null, to compute `bytes` only).
  VoxelScratch(void* memory, std::uint64_t point_count, std::uint64_t tiles)
      : regions(point_count, tiles), base_(reinterpret_cast<std::uintptr_t>(memory)) {
    const std::uint64_t max_full_tiles = point_count / points_per_slice;
    header = take<VoxelScratchHeader>(1);
    region_counts = take<std::uint32_t>(std::uint64_t{regions.count} * count_stride);
    zeroed_bytes = used_;
    counts = take<std::uint32_t>(tiles * count_stride);
    sums = take<VoxelSums>(max_full_tiles);
    sort_zeroed_bytes = used_ - zeroed_bytes;
    max_slices = static_cast<std::uint32_t>(2 * max_full_tiles);  // a tile's last slice may have few points
    slices = take<VoxelSlice>(max_slices);
    ranks = take<std::uint32_t>(point_count);
    ranges = take<TileRange>(tiles);
    const std::uint64_t in_bins = std::uint64_t{regions.count} * regions.room;
    points = take<math::TilePoint>(in_bins > point_count ? in_bins : point_count);
    bytes = used_;
  }

  EGT_HD std::uint32_t& region_count(std::uint32_t region) const {
    return region_counts[std::uint64_t{region} * count_stride];
  }
  EGT_HD std::uint32_t bin_begin(std::uint32_t region) const { return region * regions.room; }
  EGT_HD std::uint32_t& count(std::uint32_t tile) const { return counts[std::uint64_t{tile} * count_stride]; }

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
