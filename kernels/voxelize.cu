#include <algorithm>

#include "egt/core/voxel_math.hpp"
#include "egt/core/voxel_scratch.hpp"
#include "kernels/vector.cuh"

/// The points go to the bins of their tiles, in memory that a GPU's L2 cache holds for clouds of a few
/// million; those that find their bin full are sorted by tile in two more kernels, which have nothing to do
/// for an even cloud. Then a block a tile sums in shared memory and writes its voxels once. The output's
/// bytes are most of the work, so everything before the last kernel is kept short. All sums are of integers.
namespace egt::kernels {
namespace {

using math::PointPlace;
using math::TilePoint;
using math::VoxelLocator;

constexpr unsigned warp_threads = 32, whole_warp = ~0u;
constexpr unsigned point_threads = 256;
constexpr int points_in_flight = 2;
constexpr unsigned place_threads = 512;
constexpr unsigned tile_threads = math::tile_x * math::tile_y;  // of one layer
constexpr std::uint32_t no_tile = ~0u;

struct Cloud {
  const float* xyz;
  std::int64_t count;
};

/// Some points of a thread: every `point_threads`th from the thread's first one of the block, so that a warp
/// reads whole sectors.
struct SomePoints {
  float x[points_in_flight], y[points_in_flight], z[points_in_flight];
  std::int64_t first, count;

  __device__ __forceinline__ SomePoints(const Cloud& cloud, unsigned block)
      : first(std::int64_t{block} * point_threads * points_in_flight + threadIdx.x), count(cloud.count) {
#pragma unroll
    for (int i = 0; i < points_in_flight; ++i) {
      const float* const from = cloud.xyz + 3 * index(i);
      x[i] = is_present(i) ? from[0] : 0.0f;
      y[i] = is_present(i) ? from[1] : 0.0f;
      z[i] = is_present(i) ? from[2] : 0.0f;
    }
  }
  __device__ __forceinline__ std::int64_t index(int i) const {
    return first + std::int64_t{i} * point_threads;
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

/// Counts a point of the tile and returns how many came before it. For whole warps: one that has points of a
/// single tile only, as where a cloud is dense, counts them at once.
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

/// Adds what each warp (its first thread) has counted to the cloud's counts.
__device__ void publish(std::uint32_t in, std::uint32_t outside, std::uint32_t not_finite,
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

/// Counts the points of each tile and puts the first of them into its bin; `ranks`: of each point in its
/// tile.
__global__ void __launch_bounds__(point_threads)
    bin_points_kernel(const VoxelLocator locator, const Cloud cloud, const VoxelScratch scratch) {
  admit_next_kernel();
  const SomePoints points(cloud, blockIdx.x);
  TilePoint located[points_in_flight];
  std::uint32_t tiles[points_in_flight], in = 0, outside = 0, not_finite = 0;
#pragma unroll
  for (int i = 0; i < points_in_flight; ++i) {
    const bool present = points.is_present(i);
    const PointPlace place = points.place(locator, i);
    tiles[i] = no_tile;
    if (present && place == PointPlace::in) located[i] = points.locate(locator, i, tiles[i]);
    in += __popc(__ballot_sync(whole_warp, present && place == PointPlace::in));
    outside += __popc(__ballot_sync(whole_warp, present && place == PointPlace::outside));
    not_finite += __popc(__ballot_sync(whole_warp, present && place == PointPlace::not_finite));
  }
  std::uint32_t ranks[points_in_flight];
#pragma unroll
  for (int i = 0; i < points_in_flight; ++i) ranks[i] = join_tile(scratch, tiles[i]);
  bool overflows = false;
#pragma unroll
  for (int i = 0; i < points_in_flight; ++i) {
    if (tiles[i] == no_tile) continue;
    scratch.ranks[points.index(i)] = ranks[i];
    if (ranks[i] < scratch.bin_points)
      store_point(scratch.bin(tiles[i]) + ranks[i], located[i]);
    else
      overflows = true;
  }
  if (overflows) scratch.header->overflows = 1;
  publish(in, outside, not_finite, scratch.header->counts);
}

/// The sum of `count` over the threads of the block before this one; `total` becomes that over all.
__device__ std::uint32_t sum_before(std::uint32_t count, std::uint32_t& total) {
  constexpr unsigned warps = place_threads / warp_threads;
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

/// Lists the slices of a tile that has too many points for one block.
__device__ void cut_tile(const VoxelScratch& scratch, std::uint32_t tile, std::uint32_t count) {
  const std::uint32_t slices = divide_up(count, points_per_slice);
  const std::uint32_t sums = atomicAdd(&scratch.header->full_tiles, 1u);
  const std::uint32_t first = atomicAdd(&scratch.header->slices, slices);
  for (std::uint32_t s = 0; s < slices; ++s) scratch.slices[first + s] = {tile, s, sums};
}

/// The points of a tile beyond its bin.
__device__ __forceinline__ std::uint32_t beyond_bin(const VoxelScratch& scratch, std::uint32_t count) {
  return count > scratch.bin_points ? count - scratch.bin_points : 0;
}

/// A place for each tile's points beyond its bin. Blocks take theirs as they come: the tiles' order does not
/// matter.
__global__ void __launch_bounds__(place_threads)
    place_tiles_kernel(std::uint32_t tiles, const VoxelScratch scratch, VoxelCounts* counts) {
  __shared__ std::uint32_t block_begin;
  admit_next_kernel();
  await_kernel_before();
  if (blockIdx.x == 0 && threadIdx.x == 0) *counts = scratch.header->counts;
  if (!scratch.header->overflows) return;
  const std::uint32_t tile = blockIdx.x * place_threads + threadIdx.x;
  const std::uint32_t count = tile < tiles ? beyond_bin(scratch, scratch.count(tile)) : 0;
  std::uint32_t total;
  const std::uint32_t before = sum_before(count, total);
  if (threadIdx.x == 0) block_begin = atomicAdd(&scratch.header->points, total);
  __syncthreads();
  if (tile < tiles) scratch.begins[tile] = block_begin + before;
  if (count > points_per_slice) cut_tile(scratch, tile, count);
}

/// Puts the points that are in no bin to their tiles' places. `blocks`: as many as binned the points.
__global__ void __launch_bounds__(point_threads)
    scatter_points_kernel(const VoxelLocator locator, const Cloud cloud, const VoxelScratch scratch,
                          unsigned blocks) {
  admit_next_kernel();
  await_kernel_before();
  if (!scratch.header->overflows) return;
  for (unsigned block = blockIdx.x; block < blocks; block += gridDim.x) {
    const SomePoints points(cloud, block);
#pragma unroll
    for (int i = 0; i < points_in_flight; ++i) {
      if (!points.is_present(i) || points.place(locator, i) != PointPlace::in) continue;
      const std::uint32_t rank = scratch.ranks[points.index(i)];
      if (rank < scratch.bin_points) continue;
      std::uint32_t tile;
      const TilePoint point = points.locate(locator, i, tile);
      store_point(scratch.points + (scratch.begins[tile] + rank - scratch.bin_points), point);
    }
  }
}

/// The sums of a tile, or of a slice of it, in shared memory.
struct alignas(vector_bytes) TileSums {
  std::uint32_t count[math::tile_voxels];
  std::uint32_t x[math::tile_voxels], y[math::tile_voxels], z[math::tile_voxels];

  __device__ __forceinline__ void clear() {
    uint4* const words = reinterpret_cast<uint4*>(this);
#pragma unroll
    for (unsigned i = 0; i < sizeof(TileSums) / sizeof(uint4); i += tile_threads)
      words[i + threadIdx.x] = make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void add(const TilePoint& point) {
    const std::uint32_t voxel = point.voxel();
    atomicAdd(&count[voxel], 1u);
    atomicAdd(&x[voxel], point.x());
    atomicAdd(&y[voxel], point.y());
    atomicAdd(&z[voxel], point.z());
  }
  __device__ __forceinline__ VoxelFeatures features(std::uint32_t v) const {
    return math::voxel_features(count[v], x[v], y[v], z[v]);
  }
};
static_assert(sizeof(TileSums) % (sizeof(uint4) * tile_threads) == 0);

__device__ __forceinline__ TilePoint load_point(const TilePoint* from) {
  const uint2 words = __ldg(reinterpret_cast<const uint2*>(from));
  return {words.x, words.y};
}

/// Adds the points from `first` on that are this thread's.
__device__ __forceinline__ void add_points(const TilePoint* points, std::uint32_t first, std::uint32_t count,
                                           TileSums& sums) {
#pragma unroll 4
  for (std::uint32_t i = first + threadIdx.x; i < count; i += tile_threads) sums.add(load_point(points + i));
}

struct VoxelOutputs {
  std::uint8_t* occupancy;
  VoxelFeatures* features;
};

/// Writes the tile's voxels: `features_of(v)`. Nobody reads them soon, so they shall not push the points of
/// tiles to come out of the cache.
template <typename F>
__device__ __forceinline__ void write_tile(const VoxelLocator& grid, std::uint32_t tile,
                                           const VoxelOutputs& out, const F& features_of) {
  static_assert(math::tile_x == warp_threads);
  const std::uint32_t row = tile / grid.tiles[0], layer = row / grid.tiles[1];
  const std::uint32_t x = (tile - row * grid.tiles[0]) * math::tile_x + threadIdx.x % warp_threads;
  const std::uint32_t y = (row - layer * grid.tiles[1]) * math::tile_y + threadIdx.x / warp_threads;
  if (x >= grid.dims[0] || y >= grid.dims[1]) return;
#pragma unroll
  for (std::uint32_t i = 0; i < math::tile_z; ++i) {
    const std::uint32_t z = layer * math::tile_z + i;
    if (z >= grid.dims[2]) return;
    const std::size_t index = (std::size_t{z} * grid.dims[1] + y) * grid.dims[0] + x;
    const VoxelFeatures f = features_of(i * tile_threads + threadIdx.x);
    __stcs(reinterpret_cast<float4*>(out.features + index),
           make_float4(f.count, f.mean_offset[0], f.mean_offset[1], f.mean_offset[2]));
    __stcs(out.occupancy + index, static_cast<unsigned char>(f.count > 0.0f));
  }
}

/// Adds a slice's sums to those of its tile; true in all threads of the block that was the last to do so.
__device__ bool add_slice(const TileSums& from, std::uint32_t slices, VoxelSums& to) {
  __shared__ bool is_last;
  for (std::uint32_t v = threadIdx.x; v < math::tile_voxels; v += tile_threads) {
    add(to.count[v], from.count[v]);
    add(to.x[v], from.x[v]);
    add(to.y[v], from.y[v]);
    add(to.z[v], from.z[v]);
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    is_last = atomicAdd(reinterpret_cast<unsigned long long*>(&to.slices_done), 1ull) + 1 == slices;
  __syncthreads();
  __threadfence();
  return is_last;
}

__device__ __forceinline__ std::uint64_t load_sum(const std::uint64_t& sum) {
  return __ldcg(reinterpret_cast<const unsigned long long*>(&sum));
}

/// A slice of a full tile. The last slice of a tile to be done writes it.
__device__ void sum_slice(const VoxelLocator& grid, const VoxelScratch& scratch, const VoxelOutputs& out,
                          const VoxelSlice& slice, TileSums& sums) {
  sums.clear();
  __syncthreads();
  const std::uint32_t count = beyond_bin(scratch, scratch.count(slice.tile)),
                      first = slice.index * points_per_slice, left = count - first;
  if (slice.index == 0) add_points(scratch.bin(slice.tile), 0, scratch.bin_points, sums);
  add_points(scratch.points + scratch.begins[slice.tile] + first, 0,
             left < points_per_slice ? left : points_per_slice, sums);
  __syncthreads();
  VoxelSums& whole = scratch.sums[slice.sums];
  if (!add_slice(sums, divide_up(count, points_per_slice), whole)) return;
  write_tile(grid, slice.tile, out, [&](std::uint32_t v) {
    return math::voxel_features(load_sum(whole.count[v]), load_sum(whole.x[v]), load_sum(whole.y[v]),
                                load_sum(whole.z[v]));
  });
}

/// A tile that is not full.
__device__ void sum_tile(const VoxelLocator& grid, const VoxelScratch& scratch, const VoxelOutputs& out,
                         std::uint32_t tile, TileSums& sums) {
  const std::uint32_t count = scratch.count(tile), more = beyond_bin(scratch, count);
  if (count == 0) {
    write_tile(grid, tile, out, [](std::uint32_t) { return VoxelFeatures{}; });
    return;
  }
  if (more > points_per_slice) return;
  const std::uint32_t binned = count - more;
  TilePoint point{};  // the first is on its way while the sums are cleared
  if (threadIdx.x < binned) point = load_point(scratch.bin(tile) + threadIdx.x);
  sums.clear();
  __syncthreads();
  if (threadIdx.x < binned) sums.add(point);
  add_points(scratch.bin(tile), tile_threads, binned, sums);
  if (more > 0) add_points(scratch.points + scratch.begins[tile], 0, more, sums);
  __syncthreads();
  write_tile(grid, tile, out, [&](std::uint32_t v) { return sums.features(v); });
}

/// The first blocks take a slice of a full tile each, the others a tile that is not full.
__global__ void __launch_bounds__(tile_threads)
    sum_tiles_kernel(const VoxelLocator grid, const VoxelScratch scratch, const VoxelOutputs out) {
  __shared__ TileSums sums;
  await_kernel_before();
  if (blockIdx.x >= scratch.most_slices)
    sum_tile(grid, scratch, out, blockIdx.x - scratch.most_slices, sums);
  else if (blockIdx.x < scratch.header->slices)
    sum_slice(grid, scratch, out, scratch.slices[blockIdx.x], sums);
}

}  // namespace

int voxelize(const Launch& launch, const VoxelizeArguments& call) {
  const VoxelLocator locator(call.grid);
  const std::uint32_t tiles = locator.tile_count();
  const VoxelScratch scratch(call.scratch, static_cast<std::uint64_t>(call.count), tiles);
  if (const int error = cudaMemsetAsync(scratch.header, 0, scratch.zeroed_bytes, launch.stream)) return error;
  const Cloud cloud{call.points, call.count};
  const auto point_blocks = static_cast<unsigned>(
      divide_up(std::max<std::int64_t>(call.count, 1), std::int64_t{point_threads} * points_in_flight));
  const unsigned scatter_blocks =
      std::min(point_blocks, static_cast<unsigned>(launch.multiprocessors) * (2048 / point_threads));
  if (const int error = start(launch, dim3(point_blocks), dim3(point_threads), 0, bin_points_kernel, locator,
                              cloud, scratch))
    return error;
  if (const int error = start_early(launch, dim3(divide_up(tiles, place_threads)), dim3(place_threads), 0,
                                    place_tiles_kernel, tiles, scratch, call.counts))
    return error;
  if (const int error = start_early(launch, dim3(scatter_blocks), dim3(point_threads), 0,
                                    scatter_points_kernel, locator, cloud, scratch, point_blocks))
    return error;
  return start_early(launch, dim3(scratch.most_slices + tiles), dim3(tile_threads), 0, sum_tiles_kernel,
                     locator, scratch, VoxelOutputs{call.occupancy, call.features});
}

}  // namespace egt::kernels
