#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "egt/core/math/half.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/train/gemm_audit.hpp"

/// Products of a host device, which an audit looks at.
namespace egt::test {

constexpr double seconds = 60;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr std::array precisions{Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16,
                                Precision::bf16};

using Engine = std::mt19937_64;

inline double uniform(Engine& engine, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(engine);
}

template <typename F>
inline auto with_type(ElementType type, const F& f) {
  switch (type) {
    case ElementType::f64:
      return f(double{});
    case ElementType::f16:
      return f(Half{});
    case ElementType::bf16:
      return f(Bfloat16{});
    default:
      return f(float{});
  }
}

/// Element (r, c) of a matrix of the host device.
inline double get(const MatrixView& m, std::int64_t r, std::int64_t c) {
  return with_type(m.type, [&](auto zero) {
    using T = decltype(zero);
    return static_cast<double>(Element<T>::load(static_cast<const T*>(m.data)[r * m.leading + c]));
  });
}

inline void set(const MatrixView& m, std::int64_t r, std::int64_t c, double value) {
  with_type(m.type, [&](auto zero) {
    using T = decltype(zero);
    static_cast<T*>(m.data)[r * m.leading + c] = convert_element<T>(value);
  });
}

struct ProductOptions {
  Precision precision = Precision::fp32;
  bool a_transposed = false, b_transposed = true;
  bool wide = false;         ///< 16 bits into fp32
  std::int64_t padding = 0;  ///< elements between rows
};

/// A product with operands in memory of a host device.
struct Product {
  std::array<Buffer, 3> buffers;
  Gemm gemm;

  Product(Device& device, std::int64_t m, std::int64_t n, std::int64_t k, const ProductOptions& o) {
    const ElementType type = storage_type(o.precision);
    gemm.precision = o.precision;
    gemm.a_transposed = o.a_transposed;
    gemm.b_transposed = o.b_transposed;
    gemm.a = matrix(device, 0, type, o.a_transposed ? k : m, o.a_transposed ? m : k, o.padding);
    gemm.b = matrix(device, 1, type, o.b_transposed ? n : k, o.b_transposed ? k : n, 2 * o.padding);
    gemm.d = matrix(device, 2, o.wide ? ElementType::f32 : type, m, n, 3 * o.padding);
  }

  MatrixView matrix(Device& device, std::size_t index, ElementType type, std::int64_t rows,
                    std::int64_t columns, std::int64_t padding) {
    const std::int64_t leading = columns + padding;
    auto buffer = device.allocate(static_cast<std::size_t>(rows * leading) * size_of(type));
    EXPECT_TRUE(buffer.ok());
    buffers[index] = std::move(buffer.value());
    return {buffers[index].data(), type, rows, columns, leading};
  }

  double a_at(std::int64_t i, std::int64_t p) const {
    return gemm.a_transposed ? get(gemm.a, p, i) : get(gemm.a, i, p);
  }
  double b_at(std::int64_t p, std::int64_t j) const {
    return gemm.b_transposed ? get(gemm.b, j, p) : get(gemm.b, p, j);
  }
  /// The largest bound of one whole row of d: that of the header, that of the checksum's own sums in fp64,
  /// and the largest factor.
  double row_bound(std::int64_t i) const {
    const GemmShape shape(gemm);
    const GemmRounding rounding = GemmRounding::of(gemm.precision, gemm.d.type, shape.k);
    double terms = 0, stored = 0;
    for (std::int64_t j = 0; j < shape.n; ++j) {
      stored += std::fabs(get(gemm.d, i, j));
      for (std::int64_t p = 0; p < shape.k; ++p) terms += std::fabs(a_at(i, p) * b_at(p, j));
    }
    const double audit = static_cast<double>(shape.k + shape.n + 2) * 0x1p-53;
    return 1.25 * ((rounding.terms + audit) * terms + (rounding.stored + audit) * stored +
                   static_cast<double>(shape.n) * rounding.quantum);
  }
};

/// The kinds of numbers that products are made of.
enum class Data { uniform, whole, cancelling, mixed, huge, tiny, zero };

/// The exponents of huge, tiny and mixed numbers.
inline int exponent(ElementType type, Data data, Engine& engine) {
  const auto between = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
  const bool f64 = type == ElementType::f64, f16 = type == ElementType::f16;
  if (data == Data::huge) return f64 ? between(480, 1022) : f16 ? between(6, 14) : between(50, 125);
  if (data == Data::tiny) return f64 ? -between(480, 1070) : f16 ? -between(6, 23) : -between(50, 145);
  return f16 ? between(-8, 3) : between(-20, 20);
}

inline void fill(const MatrixView& m, Data data, Engine& engine) {
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t c = 0; c < m.columns; ++c) {
      double value = uniform(engine, -1, 1);
      if (data == Data::whole) value = std::round(8 * value);
      if (data == Data::zero) value = 0;
      if (data == Data::huge || data == Data::tiny || data == Data::mixed)
        value = std::ldexp(value, exponent(m.type, data, engine));
      set(m, r, c, value);
    }
}

/// Terms 2i and 2i + 1 cancel but for their last bits.
inline void make_cancelling(const Product& product) {
  const GemmShape shape(product.gemm);
  const MatrixView &a = product.gemm.a, &b = product.gemm.b;
  for (std::int64_t p = 1; p < shape.k; p += 2) {
    for (std::int64_t i = 0; i < shape.m; ++i) {
      const double value = -1.001 * product.a_at(i, p - 1);
      product.gemm.a_transposed ? set(a, p, i, value) : set(a, i, p, value);
    }
    for (std::int64_t j = 0; j < shape.n; ++j) {
      const double value = product.b_at(p - 1, j);
      product.gemm.b_transposed ? set(b, j, p, value) : set(b, p, j, value);
    }
  }
}

/// A device, by default the host's, with a stream and an audit.
struct Bench {
  explicit Bench(int column_groups = 8, std::unique_ptr<Device> a_device = small_host_device())
      : device(std::move(a_device)) {
    stream = std::move(device->create_stream(StreamPriority::normal).value());
    auto made = GemmAudit::create(
        *device, {.largest_dimension = 512, .slots = 16, .seed = 7, .column_groups = column_groups});
    EXPECT_TRUE(made.ok()) << made.status().what();
    audit = std::move(made.value());
  }

  Product product(std::int64_t m, std::int64_t n, std::int64_t k, const ProductOptions& options = {},
                  Data data = Data::uniform, std::uint64_t seed = 1) {
    Engine engine(seed);
    Product made(*device, m, n, k, options);
    fill(made.gemm.a, data, engine);
    fill(made.gemm.b, data, engine);
    if (data == Data::cancelling) make_cancelling(made);
    run(made);
    return made;
  }
  void run(const Product& product) {
    EXPECT_TRUE(device->gemm(product.gemm, *stream).ok());
    finish();
  }
  void finish() { EXPECT_TRUE(device->synchronize(*stream, seconds).ok()); }

  GemmAuditReport collect() {
    auto report = audit->collect(seconds);
    EXPECT_TRUE(report.ok()) << report.status().what();
    return report.ok() ? report.value() : GemmAuditReport{};
  }
  GemmAuditReport checksum(const Product& product) {
    EXPECT_TRUE(audit->enqueue_checksum(product.gemm, "product", *stream).ok());
    return collect();
  }
  GemmAuditReport host_sample(const Product& product) {
    EXPECT_TRUE(audit->enqueue_host_sample(product.gemm, "product", *stream).ok());
    return collect();
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<GemmAudit> audit;
  std::unique_ptr<Stream> stream;  // after the audit: it ends its work first
};

inline std::string describe(const Product& product, Data data) {
  const GemmShape s(product.gemm);
  return std::string(to_string(product.gemm.precision)) + " " + std::to_string(s.m) + "x" +
         std::to_string(s.n) + "x" + std::to_string(s.k) + " data " + std::to_string(static_cast<int>(data));
}

}  // namespace egt::test
