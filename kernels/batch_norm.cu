#include "kernels/matrix.cuh"

/// Batch normalization of images as a matrix with one row per pixel and one column per channel. Each
/// direction needs two passes over the images: the per-channel reductions, then the elements. Reductions run
/// in tiles whose partial sums are added in a fixed order; the tiling depends on the shape alone. Formulas:
/// Ioffe and Szegedy, "Batch normalization", 2015; BatchNorm in egt/device/dnn.hpp.
namespace egt::kernels {
namespace {

constexpr std::int64_t blocks_wanted = 512, strip = 64;  // blocks per reduction; columns per block (if packs)
constexpr int rows_in_flight = 4;
constexpr int final_columns = 8, final_groups = 32;
constexpr int rows_a_thread = 8;

__device__ __forceinline__ float inverse_deviation_of(double variance, double epsilon) {
  return static_cast<float>(1.0 / sqrt(variance + epsilon));
}

/// Parameters of the channels in a thread's pack.
template <int N>
struct Channels {
  float mean[N], inverse_deviation[N], scale[N], shift[N];

  __device__ __forceinline__ Channels(const BatchNormArguments& call, std::int64_t column, bool of_batch) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const std::int64_t c = column + j;
      mean[j] = of_batch ? call.mean[c] : call.running_mean[c];
      inverse_deviation[j] =
          of_batch ? call.inverse_deviation[c] : inverse_deviation_of(call.running_variance[c], call.epsilon);
      scale[j] = call.scale[c];
      shift[j] = call.shift[c];
    }
  }
  __device__ __forceinline__ float normalized(float x, int j) const {
    return (x - mean[j]) * inverse_deviation[j];
  }
  __device__ __forceinline__ float result(float normalized, int j) const {
    return normalized * scale[j] + shift[j];
  }
};

/// Forward reduction: sums of (x - pivot) and of its square. The pivot is an x of the channel, near its mean.
template <typename T, int N>
struct Moments {
  struct Row {
    Pack<T, N> x;
  };
  const T* x;
  std::int64_t leading;
  float pivot[N];

  __device__ __forceinline__ Moments(const BatchNormArguments& call, const MatrixView&, std::int64_t column)
      : x(static_cast<const T*>(call.x.data) + column), leading(call.x.leading) {
#pragma unroll
    for (int j = 0; j < N; ++j) pivot[j] = Element<T>::load(x[j]);
  }
  __device__ __forceinline__ Row load(std::int64_t row) const {
    return {Pack<T, N>::load(x + row * leading)};
  }
  __device__ __forceinline__ void add(const Row& row, float (&first)[N], float (&second)[N]) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float distance = Element<T>::load(row.x.v[j]) - pivot[j];
      first[j] += distance;
      second[j] += distance * distance;
    }
  }
};

/// Backward reduction: sums of the gradient, and of the gradient times the normalized x.
template <typename T, int N>
struct GradientAllReduce {
  struct Row {
    Pack<T, N> x, gradient;
  };
  const T *x, *gradient;
  std::int64_t leading, gradient_leading;
  bool relu;
  Channels<N> channels;

  __device__ __forceinline__ GradientAllReduce(const BatchNormArguments& call, const MatrixView& y_gradient,
                                               std::int64_t column)
      : x(static_cast<const T*>(call.x.data) + column),
        gradient(static_cast<const T*>(y_gradient.data) + column),
        leading(call.x.leading),
        gradient_leading(y_gradient.leading),
        relu(call.relu),
        channels(call, column, true) {}
  __device__ __forceinline__ Row load(std::int64_t row) const {
    return {Pack<T, N>::load(x + row * leading), Pack<T, N>::load(gradient + row * gradient_leading)};
  }
  __device__ __forceinline__ void add(const Row& row, float (&first)[N], float (&second)[N]) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float normalized = channels.normalized(Element<T>::load(row.x.v[j]), j);
      const bool passes = !relu || channels.result(normalized, j) > 0;
      const float passed = passes ? Element<T>::load(row.gradient.v[j]) : 0.0f;
      first[j] += passed;
      second[j] += passed * normalized;
    }
  }
};

/// Each block reduces `across` * N columns by one tile of rows into the two sums of partials[tile][column].
template <typename Terms, int N, int across>
__global__ void __launch_bounds__(matrix_threads)
    column_sums_kernel(const BatchNormArguments call, const MatrixView other, std::int64_t tile_rows,
                       float2* partials) {
  constexpr int down = matrix_threads / across, width = across * N;
  __shared__ float2 sums[down][width];
  const int x = static_cast<int>(threadIdx.x) % across, y = static_cast<int>(threadIdx.x) / across;
  const std::int64_t strip_begin = std::int64_t{blockIdx.x} * width, column = strip_begin + x * N;
  const std::int64_t begin = blockIdx.y * tile_rows;
  const std::int64_t end = begin + tile_rows < call.x.rows ? begin + tile_rows : call.x.rows;

  float first[N] = {}, second[N] = {};
  if (column < call.x.columns) {
    const Terms terms(call, other, column);
    for (std::int64_t row = begin + y; row < end; row += rows_in_flight * down) {
      typename Terms::Row loaded[rows_in_flight];
#pragma unroll
      for (int u = 0; u < rows_in_flight; ++u)
        if (row + u * down < end) loaded[u] = terms.load(row + u * down);
#pragma unroll
      for (int u = 0; u < rows_in_flight; ++u)
        if (row + u * down < end) terms.add(loaded[u], first, second);
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) sums[y][x * N + j] = {first[j], second[j]};
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c >= width || strip_begin + c >= call.x.columns) return;
  float2 total = sums[0][c];
  for (int row = 1; row < down; ++row) {
    total.x += sums[row][c].x;
    total.y += sums[row][c].y;
  }
  partials[blockIdx.y * call.x.columns + strip_begin + c] = total;
}

/// Calls finish(column, first sum, second sum) once per column.
template <typename Finish>
__global__ void __launch_bounds__(final_columns* final_groups)
    finish_columns_kernel(const float2* partials, std::int64_t tiles, std::int64_t columns,
                          const Finish finish) {
  __shared__ double2 sums[final_groups][final_columns];
  const std::int64_t column = std::int64_t{blockIdx.x} * final_columns + threadIdx.x;
  double2 sum{0, 0};
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t tile = threadIdx.y; tile < tiles; tile += final_groups) {
      const float2 partial = partials[tile * columns + column];
      sum.x += static_cast<double>(partial.x);
      sum.y += static_cast<double>(partial.y);
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int group = 1; group < final_groups; ++group) {
    sum.x += sums[group][threadIdx.x].x;
    sum.y += sums[group][threadIdx.x].y;
  }
  finish(column, sum.x, sum.y);
}

template <typename T>
struct FinishMoments {
  BatchNormArguments call;

  __device__ __forceinline__ void operator()(std::int64_t c, double first, double second) const {
    const auto rows = static_cast<double>(call.x.rows);
    const double pivot = static_cast<double>(Element<T>::load(static_cast<const T*>(call.x.data)[c]));
    const double offset = first / rows, mean = pivot + offset;
    double variance = second / rows - offset * offset;
    if (variance < 0) variance = 0;  // rounding may give a negative value; NaN stays
    call.mean[c] = static_cast<float>(mean);
    call.inverse_deviation[c] = inverse_deviation_of(variance, call.epsilon);
    const double kept = 1.0 - call.momentum, unbiased = variance * rows / (rows - 1.0);
    call.running_mean[c] =
        static_cast<float>(kept * static_cast<double>(call.running_mean[c]) + call.momentum * mean);
    call.running_variance[c] =
        static_cast<float>(kept * static_cast<double>(call.running_variance[c]) + call.momentum * unbiased);
  }
};

struct FinishGradients {
  float *scale_gradient, *shift_gradient;

  __device__ __forceinline__ void operator()(std::int64_t c, double first, double second) const {
    shift_gradient[c] = static_cast<float>(first);
    scale_gradient[c] = static_cast<float>(second);
  }
};

/// y = x normalized, scaled and shifted, for the thread's pack of columns and every `gridDim.y *
/// blockDim.y`th row.
template <typename T, int N>
struct Normalize {
  T* y;
  std::int64_t y_leading;
  const T* x;
  std::int64_t leading;
  bool relu;
  Channels<N> channels;

  __device__ __forceinline__ Normalize(const BatchNormArguments& call, const BatchNormResults& to,
                                       std::int64_t column)
      : y(static_cast<T*>(to.images.data) + column),
        y_leading(to.images.leading),
        x(static_cast<const T*>(call.x.data) + column),
        leading(call.x.leading),
        relu(call.relu),
        channels(call, column, to.is_training) {}
  __device__ __forceinline__ void run(std::int64_t row) const {
    Pack<T, N> pack = Pack<T, N>::load(x + row * leading);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float value = channels.result(channels.normalized(Element<T>::load(pack.v[j]), j), j);
      pack.v[j] = Element<T>::store(relu && value < 0 ? 0.0f : value);
    }
    pack.store(y + row * y_leading);
  }
};

/// The gradient of x: the gradient of y without its mean and its component along the normalized x.
template <typename T, int N>
struct InputGradient {
  T* x_gradient;
  const T *x, *y_gradient;
  std::int64_t x_gradient_leading, leading, y_gradient_leading;
  bool relu;
  Channels<N> channels;
  float mean_gradient[N], mean_product[N];

  __device__ __forceinline__ InputGradient(const BatchNormArguments& call, const BatchNormResults& to,
                                           std::int64_t column)
      : x_gradient(static_cast<T*>(to.images.data) + column),
        x(static_cast<const T*>(call.x.data) + column),
        y_gradient(static_cast<const T*>(to.y_gradient.data) + column),
        x_gradient_leading(to.images.leading),
        leading(call.x.leading),
        y_gradient_leading(to.y_gradient.leading),
        relu(call.relu),
        channels(call, column, true) {
    const float share = 1.0f / static_cast<float>(call.x.rows);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      mean_gradient[j] = to.shift_gradient[column + j] * share;
      mean_product[j] = to.scale_gradient[column + j] * share;
    }
  }
  __device__ __forceinline__ void run(std::int64_t row) const {
    const auto from = Pack<T, N>::load(x + row * leading);
    Pack<T, N> pack = Pack<T, N>::load(y_gradient + row * y_gradient_leading);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float normalized = channels.normalized(Element<T>::load(from.v[j]), j);
      const bool passes = !relu || channels.result(normalized, j) > 0;
      const float passed = passes ? Element<T>::load(pack.v[j]) : 0.0f;
      const float rest = passed - mean_gradient[j] - normalized * mean_product[j];
      pack.v[j] = Element<T>::store(rest * (channels.scale[j] * channels.inverse_deviation[j]));
    }
    pack.store(x_gradient + row * x_gradient_leading);
  }
};

template <typename Operation, int N>
__global__ void __launch_bounds__(matrix_threads)
    rows_kernel(const BatchNormArguments call, const BatchNormResults to) {
  const std::int64_t column = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (column >= call.x.columns) return;
  const Operation operation(call, to, column);
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.y;
#pragma unroll 2
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < call.x.rows; row += step)
    operation.run(row);
}

template <template <typename, int> typename Terms, typename T, typename Finish>
int sum_columns_of(const Launch& launch, const BatchNormArguments& call, const MatrixView& other,
                   bool in_packs, const Finish& finish) {
  constexpr int n = pack_width<T>, across = static_cast<int>(strip) / n, single = 32;
  const std::int64_t columns = call.x.columns, width = in_packs ? strip : single;
  const std::int64_t strips = divide_up(columns, width);
  const std::int64_t unit = matrix_threads / (in_packs ? across : single);
  const auto fit = static_cast<std::int64_t>(scratch_bytes / sizeof(float2)) / columns;
  const std::int64_t wanted = divide_up(blocks_wanted, strips), most = wanted < fit ? wanted : fit;
  const std::int64_t tile_rows = divide_up(divide_up(call.x.rows, most), unit) * unit,
                     tiles = divide_up(call.x.rows, tile_rows);
  const dim3 grid(static_cast<unsigned>(strips), static_cast<unsigned>(tiles));
  auto* const partials = static_cast<float2*>(launch.scratch);
  const int error = in_packs
                        ? start(launch, grid, dim3(matrix_threads), 0,
                                column_sums_kernel<Terms<T, n>, n, across>, call, other, tile_rows, partials)
                        : start(launch, grid, dim3(matrix_threads), 0,
                                column_sums_kernel<Terms<T, 1>, 1, single>, call, other, tile_rows, partials);
  if (error != cudaSuccess) return error;
  return start(launch, dim3(static_cast<unsigned>(divide_up(columns, std::int64_t{final_columns}))),
               dim3(final_columns, final_groups), 0, finish_columns_kernel<Finish>,
               static_cast<const float2*>(partials), tiles, columns, finish);
}

template <template <typename, int> typename Operation, typename T>
int run_rows(const Launch& launch, const BatchNormArguments& call, const BatchNormResults& to,
             bool in_packs) {
  constexpr int n = pack_width<T>;
  const MatrixGrid by_pack(call.x, n, rows_a_thread), by_element(call.x, 1, rows_a_thread);
  return in_packs
             ? start(launch, by_pack.grid, by_pack.block, 0, rows_kernel<Operation<T, n>, n>, call, to)
             : start(launch, by_element.grid, by_element.block, 0, rows_kernel<Operation<T, 1>, 1>, call, to);
}

}  // namespace

int normalize(const Launch& launch, const BatchNormArguments& call, MatrixView y, bool training) {
  return with_gradient_type(call.x.type, [&](auto type) {
    using T = decltype(type);
    const bool packs = in_packs(call.x, pack_width<T>) && in_packs(y, pack_width<T>);
    if (training)
      if (const int error = sum_columns_of<Moments, T>(launch, call, {}, packs, FinishMoments<T>{call}))
        return error;
    return run_rows<Normalize, T>(launch, call, {.images = y, .is_training = training}, packs);
  });
}

int normalize_gradient(const Launch& launch, const BatchNormArguments& call, const BatchNormResults& to) {
  return with_gradient_type(call.x.type, [&](auto type) {
    using T = decltype(type);
    constexpr int n = pack_width<T>;
    const bool packs = in_packs(call.x, n) && in_packs(to.y_gradient, n) && in_packs(to.images, n);
    const int error = sum_columns_of<GradientAllReduce, T>(
        launch, call, to.y_gradient, packs, FinishGradients{to.scale_gradient, to.shift_gradient});
    return error != cudaSuccess ? error : run_rows<InputGradient, T>(launch, call, to, packs);
  });
}

}  // namespace egt::kernels
