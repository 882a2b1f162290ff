#pragma once

#include "kernels/vector.cuh"

/// Second half of a tiled reduction: adds the tiles' partial sums, always in the same order.
namespace egt::kernels {

constexpr int sum_columns = 32, sum_groups = 8;

/// out[column] = the sum of partials[tile][column] over tiles. Each group of threads adds every eighth tile;
/// then the groups' sums are added in order.
template <typename Sum, typename Out>
__global__ void __launch_bounds__(sum_columns* sum_groups)
    add_tiles_kernel(const Sum* __restrict__ partials, std::int64_t tiles, std::int64_t columns, Out* out) {
  __shared__ Sum group_sums[sum_groups][sum_columns];
  const std::int64_t column = std::int64_t{blockIdx.x} * sum_columns + threadIdx.x;
  Sum sum = 0;
  if (column < columns)
    for (std::int64_t tile = threadIdx.y; tile < tiles; tile += sum_groups)
      sum += partials[tile * columns + column];
  group_sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int group = 1; group < sum_groups; ++group) sum += group_sums[group][threadIdx.x];
  out[column] = convert_element<Out>(sum);
}

template <typename Sum, typename Out>
int add_tiles(const Launch& launch, const Sum* partials, std::int64_t tiles, std::int64_t columns, Out* out) {
  const dim3 grid(static_cast<unsigned>(divide_up(columns, std::int64_t{sum_columns})));
  return start(launch, grid, dim3(sum_columns, sum_groups), 0, add_tiles_kernel<Sum, Out>, partials, tiles,
               columns, out);
}

}  // namespace egt::kernels
