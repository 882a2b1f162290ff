#include <cblas.h>

#include <limits>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

/// Sizes of op(a), op(b): m x k, k x n.
struct Shape {
  std::int64_t m, n, k;

  explicit Shape(const Gemm& g) : m(g.d.rows), n(g.d.columns), k(g.a_transposed ? g.a.rows : g.a.columns) {}
};

bool fits_blas(const MatrixView& matrix) {
  constexpr std::int64_t limit = std::numeric_limits<blasint>::max();
  return matrix.rows <= limit && matrix.leading <= limit;
}

CBLAS_TRANSPOSE transpose(bool transposed) {
  return transposed ? CblasTrans : CblasNoTrans;
}

void run_blas(const Gemm& g, const Shape& s, const double* a, blasint lda, const double* b, blasint ldb,
              double* d, blasint ldd) {
  cblas_dgemm(CblasRowMajor, transpose(g.a_transposed), transpose(g.b_transposed), static_cast<blasint>(s.m),
              static_cast<blasint>(s.n), static_cast<blasint>(s.k), g.alpha, a, lda, b, ldb, g.beta, d, ldd);
}

void run_blas(const Gemm& g, const Shape& s, const float* a, blasint lda, const float* b, blasint ldb,
              float* d, blasint ldd) {
  cblas_sgemm(CblasRowMajor, transpose(g.a_transposed), transpose(g.b_transposed), static_cast<blasint>(s.m),
              static_cast<blasint>(s.n), static_cast<blasint>(s.k), static_cast<float>(g.alpha), a, lda, b,
              ldb, static_cast<float>(g.beta), d, ldd);
}

/// Runs BLAS on the views without conversion.
template <typename T>
void run_direct(const Gemm& g) {
  run_blas(g, Shape(g), row<T>(g.a, 0), static_cast<blasint>(g.a.leading), row<T>(g.b, 0),
           static_cast<blasint>(g.b.leading), row<T>(g.d, 0), static_cast<blasint>(g.d.leading));
}

/// d = beta d for an empty sum, because BLAS rejects matrices without columns.
void scale_output(const Gemm& g, HostStream& stream) {
  with_type(g.d.type, [&]<typename T>(std::type_identity<T>) {
    using C = typename Element<T>::compute;
    const C beta = static_cast<C>(g.beta);
    for_ranges(stream, g.d.rows, rows_per_chunk(g.d.columns, chunk_elements),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r)
                   for (std::int64_t c = 0; c < g.d.columns; ++c) {
                     T& d = row<T>(g.d, r)[c];
                     d = g.beta == 0 ? T{} : Element<T>::store(beta * Element<T>::load(d));
                   }
               });
  });
}

/// to (rows x columns, packed fp32) = from, through `round`.
template <typename T, typename Round>
void load_rounded(const MatrixView& from, float* to, HostStream& stream, const Round& round) {
  for_ranges(stream, from.rows, rows_per_chunk(from.columns, chunk_elements),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 const T* __restrict source = row<T>(from, r);
                 float* __restrict target = to + r * from.columns;
                 for (std::int64_t c = 0; c < from.columns; ++c) target[c] = round(source[c]);
               }
             });
}

/// Loads an operand as fp32, rounded to the precision's bits.
void load_operand(const MatrixView& from, float* to, HostStream& stream) {
  switch (from.type) {
    case ElementType::f16:
      return load_rounded<Half>(from, to, stream, [](Half v) { return to_float(v); });
    case ElementType::bf16:
      return load_rounded<Bfloat16>(from, to, stream, [](Bfloat16 v) { return to_float(v); });
    case ElementType::f8:
      return load_rounded<Float8>(from, to, stream, [](Float8 v) { return to_float(v); });
    case ElementType::f8_e5m2:
      return load_rounded<Float8E5m2>(from, to, stream, [](Float8E5m2 v) { return to_float(v); });
    default:  // tf32
      return load_rounded<float>(from, to, stream, [](float v) { return round_to_tf32(v); });
  }
}

void store_output(const float* from, const MatrixView& to, HostStream& stream) {
  with_type(to.type, [&]<typename T>(std::type_identity<T>) {
    for_ranges(stream, to.rows, rows_per_chunk(to.columns, chunk_elements),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   const float* __restrict source = from + r * to.columns;
                   T* __restrict target = row<T>(to, r);
                   for (std::int64_t c = 0; c < to.columns; ++c) target[c] = convert_element<T>(source[c]);
                 }
               });
  });
}

/// tf32, fp16, bf16, fp8: rounded operands, multiplication and accumulation in fp32. Other output types than
/// fp32 are converted.
Status run_emulated(const Gemm& g, HostStream& stream) {
  const bool direct_output = g.d.type == ElementType::f32;
  const std::int64_t floats = g.a.count() + g.b.count() + (direct_output ? 0 : g.d.count());
  EGT_TRY_ASSIGN(std::byte* const scratch, stream.scratch(static_cast<std::size_t>(floats) * sizeof(float)));
  float* const a = reinterpret_cast<float*>(scratch);
  float* const b = a + g.a.count();
  float* const d = direct_output ? row<float>(g.d, 0) : b + g.b.count();
  load_operand(g.a, a, stream);
  load_operand(g.b, b, stream);
  if (!direct_output && g.beta != 0) load_operand(g.d, d, stream);
  Gemm scaled = g;
  for (const float* scale : {g.a_scale, g.b_scale})
    if (scale != nullptr) scaled.alpha *= *scale;
  run_blas(scaled, Shape(g), a, static_cast<blasint>(g.a.columns), b, static_cast<blasint>(g.b.columns), d,
           static_cast<blasint>(direct_output ? g.d.leading : g.d.columns));
  if (!direct_output) store_output(d, g.d, stream);
  return {};
}

EGT_FOR_EVERY_CPU std::int32_t dot(const std::int8_t* a, const std::int8_t* b, std::int64_t k) {
  std::int32_t sum = 0;
  for (std::int64_t p = 0; p < k; ++p) sum += std::int32_t{a[p]} * b[p];
  return sum;
}

/// A few rows of a stay in the cache while b streams through.
void run_int8(const Gemm& g, HostStream& stream) {
  constexpr std::int64_t rows = 16;
  for_ranges(stream, g.d.rows, rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = 0; j < g.d.columns; ++j)
      for (std::int64_t i = begin; i < end; ++i)
        row<std::int32_t>(g.d, i)[j] = dot(row<std::int8_t>(g.a, i), row<std::int8_t>(g.b, j), g.a.columns);
  });
}

/// d = activation(d + bias)
void rectify(const Gemm& g, HostStream& stream) {
  with_type(g.d.type, [&]<typename T>(std::type_identity<T>) {
    const T* const bias = static_cast<const T*>(g.relu_bias.data);
    for_ranges(
        stream, g.d.rows, rows_per_chunk(g.d.columns, chunk_elements),
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) {
            T* __restrict d = row<T>(g.d, r);
            for (std::int64_t c = 0; c < g.d.columns; ++c)
              d[c] = Element<T>::store(math::activation(Element<T>::load(d[c]) + Element<T>::load(bias[c])));
          }
        });
  });
}

Status run_gemm(const Gemm& g, HostStream& stream) {
  const Shape shape(g);
  if (shape.m == 0 || shape.n == 0) return {};
  if (shape.k == 0) {
    scale_output(g, stream);
    return {};
  }
  if (g.precision == Precision::fp64) {
    run_direct<double>(g);
    return {};
  }
  if (g.precision == Precision::fp32) {
    run_direct<float>(g);
    return {};
  }
  if (g.precision == Precision::int8) {
    run_int8(g, stream);
    return {};
  }
  return run_emulated(g, stream);
}

}  // namespace

Status check(const Gemm& call) {
  if (fits_blas(call.a) && fits_blas(call.b) && fits_blas(call.d)) return {};
  return Status(StatusCode::unsupported, "gemm: a dimension exceeds 2^31 - 1, the most of this BLAS");
}

Status run(const Gemm& call, HostStream& stream) {
  EGT_TRY(run_gemm(call, stream));
  if (call.relu_bias.data != nullptr) rectify(call, stream);
  return {};
}

}  // namespace egt::host
