#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tests/contract/device_contract.hpp"

namespace egt::contract {
namespace {

using reference::Engine;
using reference::Matrix;

struct Shape {
  std::int64_t m, n, k;
};

constexpr Shape shapes[] = {{1, 1, 1},    {1, 17, 5},   {3, 1, 33},   {5, 3, 1},      {17, 33, 64},
                            {33, 64, 17}, {64, 5, 3},   {64, 64, 64}, {3, 64, 33},    {33, 17, 5},
                            {5, 33, 64},  {17, 17, 17}, {1, 64, 64},  {129, 65, 257}, {128, 96, 512}};

/// One GEMM: operands, and the output before and after.
struct Product {
  Precision precision;
  bool a_transposed, b_transposed;
  double alpha, beta;
  Matrix a, b, d;

  Product(Precision p, ElementType output, Shape s, bool at, bool bt, double al, double be, int pad)
      : precision(p),
        a_transposed(at),
        b_transposed(bt),
        alpha(al),
        beta(be),
        a(storage_type(p), at ? s.k : s.m, at ? s.m : s.k, (at ? s.m : s.k) + pad),
        b(storage_type(p), bt ? s.n : s.k, bt ? s.k : s.n, (bt ? s.k : s.n) + 2 * pad),
        d(output, s.m, s.n, s.n + 3 * pad) {
    Engine engine(static_cast<std::uint64_t>(s.m * 10007 + s.n * 101 + s.k));
    reference::fill_uniform(a, engine);
    reference::fill_uniform(b, engine);
    reference::fill_uniform(d, engine);
  }

  std::int64_t k() const { return a_transposed ? a.rows() : a.columns(); }
  double a_at(std::int64_t i, std::int64_t p) const { return a_transposed ? a.get(p, i) : a.get(i, p); }
  double b_at(std::int64_t p, std::int64_t j) const { return b_transposed ? b.get(j, p) : b.get(p, j); }

  /// Error bound of a term, relative to the sum of the terms' magnitudes.
  double term_error() const {
    switch (precision) {
      case Precision::fp64:
        return 1e-14;
      case Precision::tf32:
        return std::ldexp(1.0, -9);  // two operands with 11 bits; truncation is allowed
      default:
        return 2e-6;
    }
  }

  std::string name() const {
    return fmt::format("{} {}x{}x{}{}{} beta {}", to_string(precision), d.rows(), d.columns(), k(),
                       a_transposed ? " a^T" : "", b_transposed ? " b^T" : "", beta);
  }
};

/// op(a) by rows, or op(b) by columns: k consecutive values each.
std::vector<double> decode_terms(std::int64_t lines, std::int64_t k, const auto& at) {
  std::vector<double> values;
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t p = 0; p < k; ++p) values.push_back(at(line, p));
  return values;
}

/// `bias`: one row, added before a ReLU; null: neither bias nor ReLU.
void expect_is_product(const Product& before, const Matrix& after, const Matrix* bias = nullptr) {
  const std::int64_t k = before.k();
  const auto a = decode_terms(after.rows(), k, [&](auto i, auto p) { return before.a_at(i, p); });
  const auto b = decode_terms(after.columns(), k, [&](auto j, auto p) { return before.b_at(p, j); });
  int shown = 0;
  for (std::int64_t i = 0; i < after.rows(); ++i)
    for (std::int64_t j = 0; j < after.columns(); ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        const double term = a[static_cast<std::size_t>(i * k + p)] * b[static_cast<std::size_t>(j * k + p)];
        sum += term;
        magnitude += std::fabs(term);
      }
      const double addend = bias ? bias->get(0, j) : before.beta == 0 ? 0 : before.beta * before.d.get(i, j);
      const double wanted = before.alpha * sum + addend, expected = bias ? std::max(wanted, 0.0) : wanted;
      const double actual = after.get(i, j);
      // With a bias, the GEMM result may be rounded before the bias is added.
      const double rounded = std::fabs(expected) + (bias ? std::fabs(sum) : 0);
      const double tolerance =
          before.term_error() * (std::fabs(before.alpha) * magnitude + std::fabs(addend)) +
          1.01 * reference::rounding_error(after.type()) * rounded + 1e-7;
      if (!(std::fabs(actual - expected) <= tolerance) && shown++ < 3)
        ADD_FAILURE() << before.name() << " at " << i << ", " << j << ": " << actual << ", not " << expected;
    }
  EXPECT_TRUE(after.padding_is_intact()) << before.name();
}

Gemm call_of(const Product& product, const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& d) {
  return {product.precision,    a.view,        b.view,      d.view, product.a_transposed,
          product.b_transposed, product.alpha, product.beta};
}

/// Operands with 8 bits, as bytes; no fp8 operand is NaN.
std::vector<std::uint8_t> narrow_operand(std::int64_t elements, Precision precision, std::uint64_t seed) {
  Engine engine(seed);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(elements));
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(engine());
    if (precision == Precision::fp8) byte &= 0xBF;  // limits exponents to 7, so that sums stay small
  }
  return bytes;
}

double narrow_value(std::uint8_t byte, Precision precision) {
  return precision == Precision::fp8 ? static_cast<double>(to_float(Float8{byte}))
                                     : static_cast<double>(static_cast<std::int8_t>(byte));
}

}  // namespace

TEST_P(DeviceContract, GemmIsTheProduct) {
  for (const Precision precision : precisions())
    for (const Shape& shape : shapes)
      for (const int variant : {0, 1, 2, 3}) {
        const double beta = variant % 2 == 0 ? 0.0 : 0.5;
        const Product product(precision, storage_type(precision), shape, variant & 1, variant & 2, 1.25, beta,
                              3);
        const DeviceMatrix a = upload(product.a), b = upload(product.b), d = upload(product.d);
        EXPECT_OK(device().gemm(call_of(product, a, b, d), stream()));
        Matrix result = product.d;
        download(d, result);
        expect_is_product(product, result);
      }
}

TEST_P(DeviceContract, GemmTakesABiasAndAReluAlong) {
  constexpr Shape some[] = {{1, 1, 1}, {3, 17, 5}, {17, 33, 64}, {33, 64, 17}, {64, 64, 64}, {128, 96, 512}};
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16}) {
    if (!device().supports(precision).yes()) continue;
    for (const Shape& shape : some) {
      const ElementType type = storage_type(precision);
      const Product product(precision, type, shape, false, true, 1, 0, 8);
      Matrix bias(type, 1, shape.n, shape.n);
      Engine engine(7);
      reference::fill_uniform(bias, engine);
      const DeviceMatrix a = upload(product.a), b = upload(product.b), on_bias = upload(bias);
      Matrix first = product.d, again = product.d;
      for (Matrix* result : {&first, &again}) {
        const DeviceMatrix d = upload(product.d);
        Gemm call = call_of(product, a, b, d);
        call.relu_bias = {on_bias.view.data, type, shape.n};
        EXPECT_OK(device().gemm(call, stream()));
        download(d, *result);
      }
      EXPECT_TRUE(first.array == again.array) << to_string(precision);
      expect_is_product(product, first, &bias);
    }
  }
}

TEST_P(DeviceContract, GemmRefusesABiasThatDoesNotFit) {
  const Buffer memory = allocate(4096);
  char* const data = memory.as<char>();
  const auto call = [&](VectorView bias, Precision precision = Precision::fp32, double beta = 0,
                        std::int64_t k = 8) {
    const ElementType type = storage_type(precision);
    return device().gemm({.precision = precision,
                          .a = {data, type, 8, k},
                          .b = {data + 1024, type, k, 8},
                          .d = {data + 2048, type, 8, 8},
                          .beta = beta,
                          .relu_bias = bias},
                         stream());
  };
  using enum ElementType;
  EXPECT_OK(call({data + 3072, f32, 8}));
  EXPECT_FAILS(invalid_argument, call({data + 3072, bf16, 8}));
  EXPECT_FAILS(invalid_argument, call({data + 3072, f32, 7}));
  EXPECT_FAILS(invalid_argument, call({data + 3076, f32, 8}));
  EXPECT_FAILS(invalid_argument, call({data + 3072, f32, 8}, Precision::fp32, 1));
  EXPECT_FAILS(invalid_argument, call({data + 3072, f32, 8}, Precision::fp32, 0, 0));
  EXPECT_FAILS(invalid_argument, call({data + 3072, f64, 8}, Precision::fp64));
  finish();
}

TEST_P(DeviceContract, GemmOf16BitsMayGiveFp32) {
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    if (!device().supports(precision).yes()) continue;
    for (const double beta : {0.0, 1.0}) {
      const Product product(precision, ElementType::f32, {33, 17, 65}, true, false, 0.5, beta, 0);
      const DeviceMatrix a = upload(product.a), b = upload(product.b), d = upload(product.d);
      EXPECT_OK(device().gemm(call_of(product, a, b, d), stream()));
      Matrix result = product.d;
      download(d, result);
      expect_is_product(product, result);
    }
  }
}

TEST_P(DeviceContract, GemmIsRepeatableBitForBit) {
  for (const Precision precision : precisions()) {
    Product product(precision, storage_type(precision), {128, 96, 512}, false, true, 1, 0, 0);
    const DeviceMatrix a = upload(product.a), b = upload(product.b);
    Matrix first = product.d, again = product.d;
    for (Matrix* result : {&first, &again}) {
      const DeviceMatrix d = upload(product.d);
      EXPECT_OK(device().gemm(call_of(product, a, b, d), stream()));
      download(d, *result);
    }
    EXPECT_TRUE(first.array == again.array) << to_string(precision);
  }
}

TEST_P(DeviceContract, GemmKeepsNanAndIgnoresTheOutputWhereBetaIs0) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Precision precision : precisions()) {
    Product product(precision, storage_type(precision), {17, 33, 64}, false, false, 1, 0, 0);
    product.a.set(4, 7, nan);
    for (std::int64_t j = 0; j < 33; ++j) product.d.set(2, j, nan);
    const DeviceMatrix a = upload(product.a), b = upload(product.b), d = upload(product.d);
    EXPECT_OK(device().gemm(call_of(product, a, b, d), stream()));
    Matrix result = product.d;
    download(d, result);
    for (std::int64_t i = 0; i < 17; ++i)
      for (std::int64_t j = 0; j < 33; ++j)
        EXPECT_EQ(std::isnan(result.get(i, j)), i == 4) << to_string(precision) << " " << i << ", " << j;
  }
}

TEST_P(DeviceContract, GemmWithoutTermsScalesTheOutput) {
  for (const Precision precision : precisions())
    for (const double beta : {0.0, 0.5}) {
      const Product product(precision, storage_type(precision), {3, 5, 0}, false, false, 1, beta, 1);
      const DeviceMatrix a = upload(product.a), b = upload(product.b), d = upload(product.d);
      EXPECT_OK(device().gemm(call_of(product, a, b, d), stream()));
      Matrix result = product.d;
      download(d, result);
      expect_is_product(product, result);
    }
}

TEST_P(DeviceContract, GemmOfNothingDoesNothing) {
  for (const Precision precision : precisions()) {
    const ElementType type = storage_type(precision);
    EXPECT_OK(device().gemm({precision, {nullptr, type, 0, 5}, {nullptr, type, 5, 0}, {nullptr, type, 0, 0}},
                            stream()));
    const Product product(precision, type, {0, 5, 3}, false, false, 1, 0, 0);
    const DeviceMatrix a = upload(product.a), b = upload(product.b), d = upload(product.d);
    EXPECT_OK(device().gemm(call_of(product, a, b, d), stream()));
  }
  finish();
}

TEST_P(DeviceContract, GemmRefusesWhatDoesNotFit) {
  const Buffer memory = allocate(4096);
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, ElementType type = ElementType::f32) {
    return MatrixView(memory.data(), type, rows, columns);
  };
  const auto call = [&](MatrixView a, MatrixView b, MatrixView d, bool at = false, bool bt = false) {
    return device().gemm({Precision::fp32, a, b, d, at, bt}, stream());
  };
  EXPECT_FAILS(invalid_argument, call(matrix(2, 3), matrix(4, 5), matrix(2, 5)));
  EXPECT_FAILS(invalid_argument, call(matrix(2, 3), matrix(3, 5), matrix(3, 5)));
  EXPECT_FAILS(invalid_argument, call(matrix(2, 3), matrix(3, 5), matrix(2, 4)));
  EXPECT_FAILS(invalid_argument, call(matrix(2, 3), matrix(3, 5), matrix(2, 5), true));
  EXPECT_FAILS(invalid_argument, call(matrix(2, 3), matrix(3, 5), matrix(2, 5), false, true));
  EXPECT_FAILS(invalid_argument, call(matrix(2, 3, ElementType::bf16), matrix(3, 5), matrix(2, 5)));
  EXPECT_FAILS(invalid_argument, call(matrix(2, 3), matrix(3, 5), matrix(2, 5, ElementType::f64)));
  for (const MatrixView& bad :
       {MatrixView(nullptr, ElementType::f32, 4, 4), MatrixView(memory.data(), ElementType::f32, 4, 4, 3),
        MatrixView(memory.data(), ElementType::f32, -4, 4)}) {
    EXPECT_FAILS(invalid_argument, call(bad, matrix(4, 4), matrix(4, 4)));
    EXPECT_FAILS(invalid_argument, call(matrix(4, 4), bad, matrix(4, 4)));
    EXPECT_FAILS(invalid_argument, call(matrix(4, 4), matrix(4, 4), bad));
  }
  finish();
}

TEST_P(DeviceContract, PrecisionsThatItLacksHaveAReasonAndAreRefused) {
  const Buffer memory = allocate(4096);
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16,
                                    Precision::bf16, Precision::fp8, Precision::int8}) {
    const Support support = device().supports(precision);
    EXPECT_EQ(support.why_not.find('\n'), std::string::npos) << support.why_not;
    if (support.yes()) continue;
    const MatrixView view(memory.data(), storage_type(precision), 4, 4);
    EXPECT_FAILS(unsupported, device().gemm({precision, view, view, view}, stream()));
  }
  EXPECT_TRUE(device().supports(Precision::fp32).yes());
}

TEST_P(DeviceContract, GemmOf8BitsIsTheProduct) {
  constexpr Shape some[] = {{16, 16, 16}, {32, 48, 64}, {128, 96, 512}, {16, 256, 4096}};
  for (const Precision precision : {Precision::fp8, Precision::int8}) {
    if (!device().supports(precision).yes()) continue;
    const ElementType type = storage_type(precision);
    for (const auto& [m, n, k] : some) {
      const auto a = narrow_operand(m * k, precision, 1), b = narrow_operand(n * k, precision, 2);
      const Buffer on_a = upload_values(a), on_b = upload_values(b);
      std::vector<std::uint32_t> results[2];
      for (auto& result : results) {
        const Buffer d = upload_values(std::vector<std::uint32_t>(static_cast<std::size_t>(m * n), ~0u));
        EXPECT_OK(device().gemm({.precision = precision,
                                 .a = {on_a.data(), type, m, k},
                                 .b = {on_b.data(), type, n, k},
                                 .d = {d.data(), sum_type(precision), m, n},
                                 .b_transposed = true},
                                stream()));
        result = download_values<std::uint32_t>(d.data(), static_cast<std::size_t>(m * n));
      }
      EXPECT_EQ(results[0], results[1]) << "repeatable bit for bit";
      int wrong = 0;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (std::int64_t p = 0; p < k; ++p) {
            const double term = narrow_value(a[static_cast<std::size_t>(i * k + p)], precision) *
                                narrow_value(b[static_cast<std::size_t>(j * k + p)], precision);
            sum += term;
            magnitude += std::fabs(term);
          }
          const std::uint32_t word = results[0][static_cast<std::size_t>(i * n + j)];
          // Tensor cores add fp8 products with 13 fraction bits relative to the largest one (DeepSeek-V3,
          // 2024).
          const bool is_right = precision == Precision::int8
                                    ? static_cast<std::int32_t>(word) == static_cast<std::int64_t>(sum)
                                    : std::fabs(float_from_bits(word) - sum) <= 1e-3 * magnitude;
          wrong += !is_right;
        }
      EXPECT_EQ(wrong, 0) << to_string(precision) << " " << m << " x " << n << " x " << k;
    }
  }
}

TEST_P(DeviceContract, GemmOf8BitsRefusesWhatTensorCoresCannot) {
  const Buffer memory = allocate(1 << 16);
  const auto matrix = [&](ElementType type, std::int64_t rows = 32, std::int64_t columns = 32) {
    return MatrixView(memory.data(), type, rows, columns);
  };
  using enum ElementType;
  const auto call = [&](Gemm gemm) {
    gemm.precision = Precision::int8;
    return device().gemm(gemm, stream());
  };
  if (!device().supports(Precision::int8).yes()) GTEST_SKIP();
  EXPECT_OK(call({.a = matrix(i8), .b = matrix(i8), .d = matrix(i32), .b_transposed = true}));
  EXPECT_FAILS(invalid_argument, call({.a = matrix(i8), .b = matrix(i8), .d = matrix(i32)}));
  EXPECT_FAILS(invalid_argument,
               call({.a = matrix(i8), .b = matrix(i8), .d = matrix(f32), .b_transposed = true}));
  EXPECT_FAILS(invalid_argument,
               call({.a = matrix(f8), .b = matrix(i8), .d = matrix(i32), .b_transposed = true}));
  EXPECT_FAILS(invalid_argument,
               call({.a = matrix(i8), .b = matrix(i8), .d = matrix(i32), .b_transposed = true, .beta = 1}));
  EXPECT_FAILS(invalid_argument,
               call({.a = matrix(i8, 30), .b = matrix(i8), .d = matrix(i32, 30), .b_transposed = true}));
  EXPECT_FAILS(invalid_argument, device().cast({memory.data(), f32, 16}, {memory.data(), i8, 16}, stream()));
  finish();
}

}  // namespace egt::contract
