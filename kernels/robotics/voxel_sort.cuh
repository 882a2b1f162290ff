#pragma once

#include <algorithm>

#include "egt/core/math/voxel_math.hpp"
#include "egt/core/math/voxel_scratch.hpp"
#include "kernels/vector.cuh"

/// Sorts a cloud's points by tile, see egt/core/math/voxel_scratch.hpp. A block writes its points of one
/// region contiguously, because a scattered point costs as much as four adjacent ones. Both passes thus need
/// few memory accesses. The kernels of the counting sort do nothing for an even cloud.
namespace egt::kernels {
namespace voxel_sort {

using math::PointPlace;
using math::TilePoint;
using math::VoxelLocator;

constexpr unsigned warp_threads = 32, whole_warp = ~0u;
constexpr unsigned sort_threads = 512;
constexpr int points_to_bin = 6, points_of_bin = max_region_points / sort_threads;  // per thread
constexpr unsigned binned_at_once = sort_threads * points_to_bin;
constexpr unsigned regions_of_thread = max_regions / sort_threads;
constexpr int points_in_flight = 2;  // per thread, if points are sorted one by one
constexpr std::uint32_t no_tile = ~0u;

struct Cloud {
  const float* xyz;
  std::int64_t count;
};

/// `n` points of a thread: every `sort_threads`th point of the block from the thread's first one, so that a
/// warp reads whole sectors.
template <int n>
struct SomePoints {
  float x[n], y[n], z[n];
  std::int64_t first, count;

  __device__ __forceinline__ SomePoints(const Cloud& cloud, unsigned block)
      : first(std::int64_t{block} * sort_threads * n + threadIdx.x), count(cloud.count) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float* const from = cloud.xyz + 3 * index(i);
      x[i] = is_present(i) ? from[0] : 0.0f;
      y[i] = is_present(i) ? from[1] : 0.0f;
      z[i] = is_present(i) ? from[2] : 0.0f;
    }
  }
  __device__ __forceinline__ std::int64_t index(int i) const {
    return first + std::int64_t{i} * sort_threads;
  }
  __device__ __forceinline__ bool is_present(int i) const {
    return index(i) < count;
  }
  __device__ __forceinline__ PointPlace place(const VoxelLocator& locator, int i) const {
    return locator.place(x[i], y[i], z[i]);
  }
  __device__ __forceinline__ TilePoint locate(const VoxelLocator& locator, int i, std::uint32_t& tile) const {
    return locator.locate(x[i], y[i], z[i], tile);
  }
};

/// Adds a point to the count of its tile and returns the points counted before it. Called by whole warps. If
/// all points of a warp are in one tile, as in a dense cloud, one atomic counts them.
__device__ __forceinline__ std::uint32_t join_tile(const VoxelScratch& scratch, std::uint32_t tile) {
  const std::uint32_t first = __shfl_sync(whole_warp, tile, 0);
  if (!__all_sync(whole_warp, tile == first))
    return tile == no_tile ? 0 : atomicAdd(&scratch.count(tile), 1u);
  if (first == no_tile) return 0;
  const unsigned lane = threadIdx.x % warp_threads;
  std::uint32_t before = 0;
  if (lane == 0) before = atomicAdd(&scratch.count(first), warp_threads);
  return __shfl_sync(whole_warp, before, 0) + lane;
}

__device__ __forceinline__ void add(std::uint64_t& sum, std::uint64_t term) {
  if (term > 0) atomicAdd(reinterpret_cast<unsigned long long*>(&sum), static_cast<unsigned long long>(term));
}

/// Adds the counts of all warps to the cloud's counts. The first thread of each warp holds the warp's counts.
__device__ inline void publish(std::uint32_t in, std::uint32_t outside, std::uint32_t not_finite,
                               VoxelCounts& counts) {
  __shared__ std::uint32_t block_counts[3];
  if (threadIdx.x < 3) block_counts[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x % warp_threads == 0) {
    atomicAdd(&block_counts[0], in);
    atomicAdd(&block_counts[1], outside);
    atomicAdd(&block_counts[2], not_finite);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    add(counts.points_in, block_counts[0]);
    add(counts.points_outside, block_counts[1]);
    add(counts.points_not_finite, block_counts[2]);
  }
}

__device__ __forceinline__ void store_point(TilePoint* to, const TilePoint& point) {
  *reinterpret_cast<uint2*>(to) = make_uint2(point.xy, point.z_voxel);
}

__device__ __forceinline__ TilePoint load_point(const TilePoint* from) {
  const uint2 words = __ldcg(reinterpret_cast<const uint2*>(from));
  return {words.x, words.y};
}

/// The sum of `count` over the block's threads before this one; `total` becomes the sum over all threads.
__device__ inline std::uint32_t sum_before(std::uint32_t count, std::uint32_t& total) {
  constexpr unsigned warps = sort_threads / warp_threads;
  __shared__ std::uint32_t warp_sums[warps];
  const unsigned lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads;
  std::uint32_t sum = count;
#pragma unroll
  for (unsigned offset = 1; offset < warp_threads; offset *= 2) {
    const std::uint32_t below = __shfl_up_sync(whole_warp, sum, offset);
    if (lane >= offset) sum += below;
  }
  if (lane == warp_threads - 1) warp_sums[warp] = sum;
  __syncthreads();
  std::uint32_t before = 0;
  total = 0;
  for (unsigned w = 0; w < warps; ++w) {
    if (w < warp) before += warp_sums[w];
    total += warp_sums[w];
  }
  return before + sum - count;
}

/// Points that a block moves into bins, sorted by region.
struct BinnedPoints {
  std::uint32_t begins[max_regions];  ///< per region: first the count, then the begin, then the offset from
                                      ///< the begin to the region's bin
  TilePoint points[binned_at_once];
  std::uint16_t regions[binned_at_once];
};

/// Replaces the block's counts per region by their exclusive prefix sums, and reserves space in the bins.
/// `begins`: in, the counts; out, the index of each region's first point within the block. `bases`: per
/// region of this thread, what to add to such an index to get the place in the bin. Returns the block's
/// number of points.
__device__ __forceinline__ std::uint32_t take_room(const VoxelScratch& scratch,
                                                   std::uint32_t (&begins)[max_regions],
                                                   std::uint32_t (&bases)[regions_of_thread]) {
  const std::uint32_t own = divide_up(scratch.regions.count, sort_threads), first = threadIdx.x * own;
  std::uint32_t sum = 0;
#pragma unroll
  for (std::uint32_t i = 0; i < regions_of_thread; ++i)
    if (i < own) sum += begins[first + i];
  std::uint32_t total;
  std::uint32_t begin = sum_before(sum, total);
#pragma unroll
  for (std::uint32_t i = 0; i < regions_of_thread; ++i) {
    if (i >= own) break;
    const std::uint32_t region = first + i, count = begins[region];
    if (count > 0) bases[i] = atomicAdd(&scratch.region_count(region), count) - begin;
    begins[region] = begin;
    begin += count;
  }
  return total;
}

/// Moves the points into the bins of their regions and counts them by outcome.
__global__ void __launch_bounds__(sort_threads, 3)
    bin_points_kernel(const VoxelLocator locator, const Cloud cloud, const VoxelScratch scratch) {
  __shared__ BinnedPoints binned;
  admit_next_kernel();
  const SomePoints<points_to_bin> points(cloud, blockIdx.x);
  for (std::uint32_t i = threadIdx.x; i < divide_up(scratch.regions.count, sort_threads) * sort_threads;
       i += sort_threads)
    binned.begins[i] = 0;
  __syncthreads();
  TilePoint located[points_to_bin];
  std::uint32_t regions[points_to_bin], ranks[points_to_bin], in = 0, outside = 0, not_finite = 0;
#pragma unroll
  for (int i = 0; i < points_to_bin; ++i) {
    const bool present = points.is_present(i);
    const PointPlace place = points.place(locator, i);
    const bool is_in = present && place == PointPlace::in;
    in += __popc(__ballot_sync(whole_warp, is_in));
    outside += __popc(__ballot_sync(whole_warp, present && place == PointPlace::outside));
    not_finite += __popc(__ballot_sync(whole_warp, present && place == PointPlace::not_finite));
    regions[i] = no_tile;
    if (!is_in || scratch.regions.count == 0) continue;
    std::uint32_t tile;
    located[i] = points.locate(locator, i, tile);
    located[i].z_voxel |= scratch.regions.label(tile) << TilePoint::label_shift;
    regions[i] = scratch.regions.region(tile);
    ranks[i] = atomicAdd(&binned.begins[regions[i]], 1u);
  }
  publish(in, outside, not_finite, scratch.header->counts);
  if (scratch.regions.count == 0) {
    if (threadIdx.x == 0) scratch.header->uneven = 1;
    return;
  }
  std::uint32_t bases[regions_of_thread];
  const std::uint32_t count = take_room(scratch, binned.begins, bases);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < points_to_bin; ++i) {
    if (regions[i] == no_tile) continue;
    const std::uint32_t at = binned.begins[regions[i]] + ranks[i];
    store_point(&binned.points[at], located[i]);
    binned.regions[at] = static_cast<std::uint16_t>(regions[i]);
  }
  __syncthreads();
  const std::uint32_t own = divide_up(scratch.regions.count, sort_threads);
#pragma unroll
  for (std::uint32_t i = 0; i < regions_of_thread; ++i)
    if (i < own) binned.begins[threadIdx.x * own + i] = bases[i];
  __syncthreads();
  bool fits = true;
  for (std::uint32_t i = threadIdx.x; i < count; i += sort_threads) {
    const std::uint32_t region = binned.regions[i], at = binned.begins[region] + i;
    if (at < scratch.regions.room)
      store_point(scratch.points + scratch.bin_begin(region) + at, binned.points[i]);
    else
      fits = false;
  }
  if (!fits) scratch.header->uneven = 1;
}

/// Zeroes the memory of the counting sort, all blocks together.
__device__ inline void clear_for_counting(const VoxelScratch& scratch) {
  uint4* const words = reinterpret_cast<uint4*>(scratch.counts);
  const std::size_t count = scratch.sort_zeroed_bytes / sizeof(uint4);
  for (std::size_t i = std::size_t{blockIdx.x} * sort_threads + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * sort_threads)
    words[i] = make_uint4(0, 0, 0, 0);
}

/// Sorts the bin of a region by tile, one block per region.
__global__ void __launch_bounds__(sort_threads, 3)
    sort_bins_kernel(std::uint32_t tiles, const VoxelScratch scratch, VoxelCounts* counts) {
  constexpr std::uint32_t labels = 1u << TilePoint::label_bits;
  __shared__ std::uint32_t begins[labels];
  __shared__ TilePoint sorted[max_region_points];
  if (threadIdx.x < labels) begins[threadIdx.x] = 0;
  admit_next_kernel();
  await_kernel_before();
  if (blockIdx.x == 0 && threadIdx.x == 0) *counts = scratch.header->counts;
  if (scratch.header->uneven) {
    clear_for_counting(scratch);
    return;
  }
  const std::uint32_t region = blockIdx.x;
  if (region >= scratch.regions.count) return;
  const std::uint32_t count = scratch.region_count(region), bin = scratch.bin_begin(region);
  TilePoint points[points_of_bin];
  std::uint32_t ranks[points_of_bin];
#pragma unroll
  for (int i = 0; i < points_of_bin; ++i)
    if (const std::uint32_t at = i * sort_threads + threadIdx.x; at < count)
      points[i] = load_point(scratch.points + bin + at);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < points_of_bin; ++i)
    if (i * sort_threads + threadIdx.x < count) ranks[i] = atomicAdd(&begins[points[i].label()], 1u);
  __syncthreads();
  const std::uint32_t of_tile = threadIdx.x < labels ? begins[threadIdx.x] : 0;
  std::uint32_t total;
  const std::uint32_t begin = sum_before(of_tile, total);
  if (threadIdx.x < labels) {
    begins[threadIdx.x] = begin;
    const std::uint32_t tile = (region << scratch.regions.shift) + threadIdx.x;
    if (threadIdx.x < 1u << scratch.regions.shift && tile < tiles)
      scratch.ranges[tile] = {bin + begin, of_tile};
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < points_of_bin; ++i)
    if (i * sort_threads + threadIdx.x < count)
      store_point(&sorted[begins[points[i].label()] + ranks[i]], points[i]);
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < count; i += sort_threads)
    store_point(scratch.points + bin + i, sorted[i]);
}

/// Counts each tile's points and stores each point's index in its tile. `blocks`: number of blocks of points.
__global__ void __launch_bounds__(sort_threads)
    count_points_kernel(const VoxelLocator locator, const Cloud cloud, const VoxelScratch scratch,
                        unsigned blocks) {
  admit_next_kernel();
  await_kernel_before();
  if (!scratch.header->uneven) return;
  for (unsigned block = blockIdx.x; block < blocks; block += gridDim.x) {
    const SomePoints<points_in_flight> points(cloud, block);
#pragma unroll
    for (int i = 0; i < points_in_flight; ++i) {
      std::uint32_t tile = no_tile;
      if (points.is_present(i) && points.place(locator, i) == PointPlace::in) points.locate(locator, i, tile);
      const std::uint32_t rank = join_tile(scratch, tile);
      if (tile != no_tile) scratch.ranks[points.index(i)] = rank;
    }
  }
}

/// Lists the slices of a tile that has too many points for one block.
__device__ inline void cut_tile(const VoxelScratch& scratch, std::uint32_t tile, std::uint32_t count) {
  const std::uint32_t slices = divide_up(count, points_per_slice);
  const std::uint32_t sums = atomicAdd(&scratch.header->full_tiles, 1u);
  const std::uint32_t first = atomicAdd(&scratch.header->slices, slices);
  for (std::uint32_t s = 0; s < slices; ++s) scratch.slices[first + s] = {tile, s, sums};
}

/// Assigns each tile a range of points. Blocks reserve theirs in any order, which does not matter.
__global__ void __launch_bounds__(sort_threads)
    place_tiles_kernel(std::uint32_t tiles, const VoxelScratch scratch) {
  __shared__ std::uint32_t block_begin;
  admit_next_kernel();
  await_kernel_before();
  if (!scratch.header->uneven) return;
  const std::uint32_t tile = blockIdx.x * sort_threads + threadIdx.x;
  const std::uint32_t count = tile < tiles ? scratch.count(tile) : 0;
  std::uint32_t total;
  const std::uint32_t before = sum_before(count, total);
  if (threadIdx.x == 0) block_begin = atomicAdd(&scratch.header->points, total);
  __syncthreads();
  if (tile < tiles) scratch.ranges[tile] = {block_begin + before, count};
  if (count > points_per_slice) cut_tile(scratch, tile, count);
}

/// Moves the points to their tiles' ranges. `blocks`: number of blocks of points.
__global__ void __launch_bounds__(sort_threads)
    scatter_points_kernel(const VoxelLocator locator, const Cloud cloud, const VoxelScratch scratch,
                          unsigned blocks) {
  admit_next_kernel();
  await_kernel_before();
  if (!scratch.header->uneven) return;
  for (unsigned block = blockIdx.x; block < blocks; block += gridDim.x) {
    const SomePoints<points_in_flight> points(cloud, block);
#pragma unroll
    for (int i = 0; i < points_in_flight; ++i) {
      if (!points.is_present(i) || points.place(locator, i) != PointPlace::in) continue;
      std::uint32_t tile;
      const TilePoint point = points.locate(locator, i, tile);
      store_point(scratch.points + scratch.ranges[tile].begin + scratch.ranks[points.index(i)], point);
    }
  }
}

/// The whole sort; `counts`: points by outcome. The next kernel in the stream may start early.
inline int sort_points(const Launch& launch, const VoxelLocator& locator, const Cloud& cloud,
                       const VoxelScratch& scratch, VoxelCounts* counts) {
  const std::uint32_t tiles = locator.tile_count();
  const auto blocks_of = [&](int points) {
    return static_cast<unsigned>(
        divide_up(std::max<std::int64_t>(cloud.count, 1), std::int64_t{sort_threads} * points));
  };
  const unsigned at_once = static_cast<unsigned>(launch.multiprocessors) * (2048 / sort_threads);
  const unsigned blocks = blocks_of(points_in_flight);
  const dim3 threads(sort_threads), as_they_fit(std::min(blocks, at_once));
  if (const int error = cudaMemsetAsync(scratch.header, 0, scratch.zeroed_bytes, launch.stream)) return error;
  if (const int error = start(launch, dim3(blocks_of(points_to_bin)), threads, 0, bin_points_kernel, locator,
                              cloud, scratch))
    return error;
  if (const int error = start_early(launch, dim3(std::max(scratch.regions.count, at_once)), threads, 0,
                                    sort_bins_kernel, tiles, scratch, counts))
    return error;
  if (const int error =
          start_early(launch, as_they_fit, threads, 0, count_points_kernel, locator, cloud, scratch, blocks))
    return error;
  if (const int error = start_early(launch, dim3(divide_up(tiles, sort_threads)), threads, 0,
                                    place_tiles_kernel, tiles, scratch))
    return error;
  return start_early(launch, as_they_fit, threads, 0, scatter_points_kernel, locator, cloud, scratch, blocks);
}

}  // namespace voxel_sort
}  // namespace egt::kernels
