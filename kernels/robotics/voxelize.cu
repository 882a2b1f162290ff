#include "egt/core/math/voxel_math.hpp"
#include "egt/core/math/voxel_scratch.hpp"
#include "kernels/robotics/voxel_sort.cuh"
#include "kernels/vector.cuh"

/// The points are sorted by tile, in memory that fits a GPU's L2 cache for clouds of a few million points.
/// Then one block per tile sums in shared memory and writes its voxels once. Writing the output takes most of
/// the time. All sums are integer sums, so their order does not matter.
namespace egt::kernels {
namespace {

using math::TilePoint;
using math::VoxelLocator;
using voxel_sort::add;
using voxel_sort::load_point;
using voxel_sort::warp_threads;

constexpr unsigned tile_threads = math::tile_x * math::tile_y;  // of one layer

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

/// Adds this thread's points: every `tile_threads`th one, for indices from `first` to below `count`.
__device__ __forceinline__ void add_points(const TilePoint* points, std::uint32_t first, std::uint32_t count,
                                           TileSums& sums) {
#pragma unroll 4
  for (std::uint32_t i = first + threadIdx.x; i < count; i += tile_threads) sums.add(load_point(points + i));
}

struct VoxelOutputs {
  std::uint8_t* occupancy;
  VoxelFeatures* features;
};

/// Writes the tile's voxels: `features_of(v)`. They are not read soon, so streaming stores keep the points of
/// later tiles in the cache.
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

__device__ __forceinline__ TileRange load_range(const VoxelScratch& scratch, std::uint32_t tile) {
  const uint2 words = __ldcg(reinterpret_cast<const uint2*>(scratch.ranges + tile));
  return {words.x, words.y};
}

/// Sums a slice of a full tile. The block that finishes the tile's last slice writes it.
__device__ void sum_slice(const VoxelLocator& grid, const VoxelScratch& scratch, const VoxelOutputs& out,
                          const VoxelSlice& slice, TileSums& sums) {
  sums.clear();
  __syncthreads();
  const TileRange range = load_range(scratch, slice.tile);
  const std::uint32_t first = slice.index * points_per_slice, left = range.count - first;
  add_points(scratch.points + range.begin + first, 0, left < points_per_slice ? left : points_per_slice,
             sums);
  __syncthreads();
  VoxelSums& whole = scratch.sums[slice.sums];
  if (!add_slice(sums, divide_up(range.count, points_per_slice), whole)) return;
  write_tile(grid, slice.tile, out, [&](std::uint32_t v) {
    return math::voxel_features(load_sum(whole.count[v]), load_sum(whole.x[v]), load_sum(whole.y[v]),
                                load_sum(whole.z[v]));
  });
}

/// Sums a tile that is not full.
__device__ void sum_tile(const VoxelLocator& grid, const VoxelScratch& scratch, const VoxelOutputs& out,
                         std::uint32_t tile, TileSums& sums) {
  const TileRange range = load_range(scratch, tile);
  if (range.count == 0) {
    write_tile(grid, tile, out, [](std::uint32_t) { return VoxelFeatures{}; });
    return;
  }
  if (range.count > points_per_slice) return;
  const TilePoint* const points = scratch.points + range.begin;
  TilePoint point{};  // the first load is in flight while the sums are cleared
  if (threadIdx.x < range.count) point = load_point(points + threadIdx.x);
  sums.clear();
  __syncthreads();
  if (threadIdx.x < range.count) sums.add(point);
  add_points(points, tile_threads, range.count, sums);
  __syncthreads();
  write_tile(grid, tile, out, [&](std::uint32_t v) { return sums.features(v); });
}

/// The first blocks handle one slice of a full tile each, further blocks one tile that is not full.
__global__ void __launch_bounds__(tile_threads)
    sum_tiles_kernel(const VoxelLocator grid, const VoxelScratch scratch, const VoxelOutputs out) {
  __shared__ TileSums sums;
  await_kernel_before();
  if (blockIdx.x >= scratch.max_slices)
    sum_tile(grid, scratch, out, blockIdx.x - scratch.max_slices, sums);
  else if (blockIdx.x < scratch.header->slices)
    sum_slice(grid, scratch, out, scratch.slices[blockIdx.x], sums);
}

}  // namespace

int enqueue(const Launch& launch, const Voxelization& call) {
  const VoxelLocator locator(call.grid);
  const std::uint32_t tiles = locator.tile_count();
  const VoxelScratch scratch(call.scratch, static_cast<std::uint64_t>(call.count), tiles);
  if (const int error =
          voxel_sort::sort_points(launch, locator, {call.points, call.count}, scratch, call.counts))
    return error;
  return start_early(launch, dim3(scratch.max_slices + tiles), dim3(tile_threads), 0, sum_tiles_kernel,
                     locator, scratch, VoxelOutputs{call.occupancy, call.features});
}

}  // namespace egt::kernels
