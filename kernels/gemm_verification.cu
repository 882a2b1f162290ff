#include <cmath>

#include "kernels/vector.cuh"

/// Verification of a GEMM: every element is computed again in fp64, by units and code that the library's GEMM
/// does not use, and compared within a rounding bound. Bound by fp64 multiply-adds: two per term, one of them
/// for the sum of the magnitudes.
namespace egt::kernels {
namespace {

constexpr int tile = 64, depth = 16, each = 4;  // tile: rows, columns of d; depth: terms; each: of a thread
constexpr int side = tile / each;               // threads in each direction

/// One element of any GEMM type. The branches are uniform for a whole launch.
__device__ __forceinline__ double load(const void* data, ElementType type, std::int64_t i) {
  switch (type) {
    case ElementType::f64:
      return static_cast<const double*>(data)[i];
    case ElementType::f16:
      return to_float(static_cast<const Half*>(data)[i]);
    case ElementType::bf16:
      return to_float(static_cast<const Bfloat16*>(data)[i]);
    case ElementType::f8:
      return to_float(static_cast<const Float8*>(data)[i]);
    case ElementType::f8_e5m2:
      return to_float(static_cast<const Float8E5m2*>(data)[i]);
    case ElementType::i8:
      return static_cast<const std::int8_t*>(data)[i];
    case ElementType::i32:
      return static_cast<const std::int32_t*>(data)[i];
    default:
      return static_cast<const float*>(data)[i];
  }
}

/// An operand as lines of terms: line i is row i of op(a) or column i of op(b).
struct Lines {
  const void* data;
  ElementType type;
  bool transposed;  ///< consecutive terms are rows of the stored matrix
  std::int64_t leading, count, terms;

  __device__ __forceinline__ double at(std::int64_t line, std::int64_t term) const {
    if (line >= count || term >= terms) return 0;
    return load(data, type, transposed ? term * leading + line : line * leading + term);
  }
  /// Fills a tile with coalesced reads.
  __device__ __forceinline__ void stage(double (&to)[depth][tile + 1], std::int64_t first_line,
                                        std::int64_t first_term) const {
    for (int i = static_cast<int>(threadIdx.x); i < tile * depth; i += side * side) {
      const int line = transposed ? i % tile : i / depth, term = transposed ? i / tile : i % depth;
      to[term][line] = at(first_line + line, first_term + term);
    }
  }
};

struct Product {
  Lines a, b;
  MatrixView d;
  VectorView bias;
  const float *a_scale, *b_scale;
};

__device__ __forceinline__ void extend(GemmMismatches::Range& range, std::int64_t line) {
  const auto by = GemmMismatches::Range::of(line);
  atomicMax(&range.last, by.last);
  atomicMax(&range.complement_of_first, by.complement_of_first);
}

__device__ __forceinline__ void report_wrong(GemmMismatches* report, std::int64_t row, std::int64_t column,
                                             double expected, double actual, double bound) {
  extend(report->rows, row);
  extend(report->columns, column);
  const auto place = atomicAdd(reinterpret_cast<unsigned long long*>(&report->wrong), 1ull);
  if (place < GemmMismatches::max_samples)
    report->sample[place] = {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(column), expected,
                             actual, bound};
}

/// Reports the warp's number of compared elements and its max error as a share of the bound. The bits of
/// non-negative fp64 numbers are ordered as the numbers are.
__device__ __forceinline__ void report_compared(GemmMismatches* report, unsigned compared, double share) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    share = fmax(share, __shfl_xor_sync(~0u, share, offset));
    compared += __shfl_xor_sync(~0u, compared, offset);
  }
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&report->compared), compared);
  atomicMax(reinterpret_cast<unsigned long long*>(&report->largest),
            static_cast<unsigned long long>(__double_as_longlong(share)));
}

__global__ void __launch_bounds__(side* side)
    verify_gemm_kernel(const Product product, const GemmRounding rounding, GemmMismatches* report) {
  __shared__ double a[depth][tile + 1], b[depth][tile + 1];
  const std::int64_t first_row = std::int64_t{blockIdx.y} * tile,
                     first_column = std::int64_t{blockIdx.x} * tile;
  const int row = static_cast<int>(threadIdx.x) / side, column = static_cast<int>(threadIdx.x) % side;
  double sum[each][each] = {}, magnitude[each][each] = {}, of_a[each] = {}, of_b[each] = {};
  for (std::int64_t term = 0; term < product.a.terms; term += depth) {
    product.a.stage(a, first_row, term);
    product.b.stage(b, first_column, term);
    __syncthreads();
#pragma unroll 4
    for (int p = 0; p < depth; ++p) {
      double x[each], y[each];
#pragma unroll
      for (int i = 0; i < each; ++i) {
        x[i] = a[p][row + i * side];
        y[i] = b[p][column + i * side];
      }
#pragma unroll
      for (int i = 0; i < each; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j) {
          sum[i][j] = fma(x[i], y[j], sum[i][j]);
          magnitude[i][j] = fma(fabs(x[i]), fabs(y[j]), magnitude[i][j]);
        }
      if (rounding.operand_floor == 0) continue;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        of_a[i] += fabs(x[i]);
        of_b[i] += fabs(y[i]);
      }
    }
    __syncthreads();
  }
  const double scale =
      (product.a_scale ? double{*product.a_scale} : 1.0) * (product.b_scale ? double{*product.b_scale} : 1.0);
  double share = 0;
  unsigned compared = 0;
#pragma unroll
  for (int i = 0; i < each; ++i)
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const std::int64_t r = first_row + row + i * side, c = first_column + column + j * side;
      if (r >= product.d.rows || c >= product.d.columns) continue;
      ++compared;
      const double bias = product.bias.data ? load(product.bias.data, product.bias.type, c) : 0.0;
      const double actual = load(product.d.data, product.d.type, r * product.d.leading + c);
      const double plain = scale * sum[i][j] + bias,
                   all = scale * rounding.magnitude(magnitude[i][j], of_a[i], of_b[j], product.a.terms) +
                         fabs(bias);
      const double expected = rounding.has_relu && plain < 0 ? 0.0 : plain;
      const ElementVerdict verdict = rounding.judge(actual, expected, all, bias);
      const double bound = rounding.bound(actual, all, bias), off = fabs(actual - expected);
      if (verdict == ElementVerdict::wrong)
        report_wrong(report, r, c, expected, actual, bound);
      else if (verdict == ElementVerdict::undecided)
        atomicAdd(reinterpret_cast<unsigned long long*>(&report->undecided), 1ull);
      else if (off > 0 && off <= bound)
        share = fmax(share, off / bound);
    }
  report_compared(report, compared, share);
}

Lines lines_of(const MatrixView& m, bool terms_are_rows) {
  return {m.data,
          m.type,
          terms_are_rows,
          m.leading,
          terms_are_rows ? m.columns : m.rows,
          terms_are_rows ? m.rows : m.columns};
}

// Verification of exact GEMMs: bound by the memory bandwidth. Sums are exact, so their order and that of the
// atomics is irrelevant.

constexpr int exact_threads = 256, rows_per_block = 4, lines_per_thread = 64;

/// In the stream's scratch memory, zeroed before.
struct ExactSums {
  unsigned wrong_rows;  ///< number of wrong rows; the first ones are in `row`
  std::int64_t row[VerifyExactGemm::max_located_rows];
  double weighted[1];  ///< b^T w: one per term
};

template <typename T>
using VectorOf = Pack<T, vector_bytes / static_cast<int>(sizeof(T))>;

/// weighted[p] += the sum of w[j] b[j][p] over some rows j. One vector of terms per thread.
template <typename T>
__global__ void __launch_bounds__(exact_threads)
    weighted_sums_kernel(const T* b, std::int64_t rows, std::int64_t terms, ExactSums* sums) {
  constexpr int width = vector_bytes / static_cast<int>(sizeof(T));
  const std::int64_t term = (std::int64_t{blockIdx.x} * exact_threads + threadIdx.x) * width,
                     first = std::int64_t{blockIdx.y} * lines_per_thread;
  if (term >= terms) return;
  double sum[width] = {};
  for (std::int64_t j = first; j < min(first + lines_per_thread, rows); ++j) {
    const auto pack = VectorOf<T>::load(b + j * terms + term);
    const double weight = math::exact_weight(j);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] += weight * static_cast<double>(Element<T>::load(pack.v[i]));
  }
#pragma unroll
  for (int i = 0; i < width; ++i) atomicAdd(&sums->weighted[term + i], sum[i]);
}

/// Compares rows of d w with a (b^T w), both in granules. Right rows count as compared.
template <typename T, typename D>
__global__ void __launch_bounds__(exact_threads)
    exact_rows_kernel(const T* a, std::int64_t terms, const D* d, std::int64_t rows, std::int64_t columns,
                      double granules_per_unit, ExactSums* sums, GemmMismatches* report) {
  constexpr int width = vector_bytes / static_cast<int>(sizeof(T)),
                d_width = vector_bytes / static_cast<int>(sizeof(D));
  constexpr double to_whole = 0x1.8p52;  // adding it rounds to a whole number
  __shared__ double of_warps[rows_per_block][exact_threads / 32];
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_per_block;
  double excess[rows_per_block] = {};
  for (std::int64_t p = threadIdx.x * width; p < terms; p += exact_threads * width) {
    double weighted[width];
#pragma unroll
    for (int i = 0; i < width; ++i) weighted[i] = sums->weighted[p + i];
#pragma unroll
    for (int r = 0; r < rows_per_block; ++r) {
      if (first + r >= rows) break;
      const auto pack = VectorOf<T>::load(a + (first + r) * terms + p);
#pragma unroll
      for (int i = 0; i < width; ++i)
        excess[r] -= static_cast<double>(Element<T>::load(pack.v[i])) * weighted[i];
    }
  }
#pragma unroll
  for (int r = 0; r < rows_per_block; ++r) {
    excess[r] *= granules_per_unit;
    if (first + r >= rows) break;
    for (std::int64_t j = threadIdx.x * d_width; j < columns; j += exact_threads * d_width) {
      const auto pack = VectorOf<D>::load(d + (first + r) * columns + j);
#pragma unroll
      for (int i = 0; i < d_width; ++i) {
        const double granules = static_cast<double>(pack.v[i]) * granules_per_unit;
        const bool is_whole = (granules + to_whole) - to_whole == granules;
        excess[r] += is_whole ? math::exact_weight(j + i) * granules : __longlong_as_double(-1);
      }
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) excess[r] += __shfl_xor_sync(~0u, excess[r], offset);
    if (threadIdx.x % 32 == 0) of_warps[r][threadIdx.x / 32] = excess[r];
  }
  __syncthreads();
  const std::int64_t row = first + threadIdx.x;
  if (threadIdx.x >= rows_per_block || row >= rows) return;
  double all = 0;
  for (const double of_warp : of_warps[threadIdx.x]) all += of_warp;
  if (all == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&report->compared),
              static_cast<unsigned long long>(columns));
    return;
  }
  extend(report->rows, row);
  const unsigned place = atomicAdd(&sums->wrong_rows, 1u);
  if (place < VerifyExactGemm::max_located_rows) sums->row[place] = row;
}

/// Computes each element of the wrong rows again, one column per warp. Usually no row is wrong. Each column
/// starts at a different row, so that the few elements reported first cover all rows and columns of a wrong
/// tile.
__global__ void __launch_bounds__(exact_threads)
    locate_wrong_kernel(const Gemm gemm, const ExactSums* sums, GemmMismatches* report) {
  constexpr unsigned warps = exact_threads / 32;
  const unsigned most = VerifyExactGemm::max_located_rows, lane = threadIdx.x % 32,
                 listed = sums->wrong_rows < most ? sums->wrong_rows : most;
  for (std::int64_t column = blockIdx.x * warps + threadIdx.x / 32; column < gemm.d.columns;
       column += gridDim.x * warps) {
    for (unsigned i = 0; i < listed; ++i) {
      const std::int64_t row = sums->row[(column + i) % listed];
      double sum = 0;
      for (std::int64_t p = lane; p < gemm.a.columns; p += 32)
        sum += load(gemm.a.data, gemm.a.type, row * gemm.a.columns + p) *
               load(gemm.b.data, gemm.b.type, column * gemm.b.columns + p);
      for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
      const double actual = load(gemm.d.data, gemm.d.type, row * gemm.d.columns + column);
      if (lane != 0 || actual == sum) continue;
      atomicAdd(reinterpret_cast<unsigned long long*>(&report->compared), 1ull);
      report_wrong(report, row, column, sum, actual, 0);
    }
  }
}

template <typename T, typename D>
int verify_exact(const Launch& launch, const VerifyExactGemm& call) {
  const auto& [gemm, granule, report] = call;
  auto* const sums = static_cast<ExactSums*>(launch.scratch);
  const std::int64_t terms = gemm.b.columns,
                     vectors = terms * static_cast<std::int64_t>(sizeof(T)) / vector_bytes;
  const dim3 threads(exact_threads);
  const auto blocks = [](std::int64_t n, std::int64_t each_block) {
    return static_cast<unsigned>(divide_up(n, each_block));
  };
  if (const cudaError_t error =
          cudaMemsetAsync(sums, 0, sizeof(ExactSums) + terms * sizeof(double), launch.stream);
      error != cudaSuccess)
    return error;
  if (const int error =
          start(launch, dim3(blocks(vectors, exact_threads), blocks(gemm.b.rows, lines_per_thread)), threads,
                0, weighted_sums_kernel<T>, static_cast<const T*>(gemm.b.data), gemm.b.rows, terms, sums);
      error != cudaSuccess)
    return error;
  if (const int error =
          start(launch, dim3(blocks(gemm.d.rows, rows_per_block)), threads, 0, exact_rows_kernel<T, D>,
                static_cast<const T*>(gemm.a.data), terms, static_cast<const D*>(gemm.d.data), gemm.d.rows,
                gemm.d.columns, std::ldexp(1.0, -granule), sums, report);
      error != cudaSuccess)
    return error;
  return start(launch, dim3(static_cast<unsigned>(launch.multiprocessors)), threads, 0, locate_wrong_kernel,
               gemm, sums, report);
}

}  // namespace

int enqueue(const Launch& launch, const VerifyExactGemm& call) {
  if (call.gemm.d.count() == 0) return cudaSuccess;
  switch (call.gemm.a.type) {
    case ElementType::f64:
      return verify_exact<double, double>(launch, call);
    case ElementType::f32:
      return verify_exact<float, float>(launch, call);
    case ElementType::f16:
      return verify_exact<Half, float>(launch, call);
    case ElementType::bf16:
      return verify_exact<Bfloat16, float>(launch, call);
    case ElementType::f8:
      return verify_exact<Float8, float>(launch, call);
    case ElementType::i8:
      return verify_exact<std::int8_t, std::int32_t>(launch, call);
    default:
      return cudaErrorInvalidValue;
  }
}

int enqueue(const Launch& launch, const VerifyGemm& call) {
  const auto& [gemm, report] = call;
  if (gemm.d.count() == 0) return cudaSuccess;
  const Product product{lines_of(gemm.a, gemm.a_transposed),
                        lines_of(gemm.b, !gemm.b_transposed),
                        gemm.d,
                        gemm.relu_bias,
                        gemm.a_scale,
                        gemm.b_scale};
  const GemmRounding rounding =
      GemmRounding::of(gemm.precision, gemm.d.type, gemm.a_transposed ? gemm.a.rows : gemm.a.columns,
                       gemm.relu_bias.data != nullptr);
  const dim3 grid(static_cast<unsigned>(divide_up(gemm.d.columns, std::int64_t{tile})),
                  static_cast<unsigned>(divide_up(gemm.d.rows, std::int64_t{tile})));
  return start(launch, grid, dim3(side * side), 0, verify_gemm_kernel, product, rounding, report);
}

}  // namespace egt::kernels
