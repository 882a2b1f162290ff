#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "device_contract.hpp"

namespace egt::contract {
namespace {

using reference::Engine;
using reference::Matrix;

struct QuantizedShape {
  std::int64_t rows, columns;
};
constexpr QuantizedShape quantized_shapes[] = {{1, 1},   {1, 17},    {17, 1},  {64, 64},
                                               {65, 63}, {100, 304}, {257, 8}, {128, 192}};
constexpr std::uint8_t untouched = 0xA5;

/// A matrix of bytes in device memory with padding between its rows.
struct QuantizedCopy {
  Buffer memory;
  MatrixView view;

  std::vector<std::uint8_t> expected_elsewhere() const {
    return std::vector<std::uint8_t>(static_cast<std::size_t>(view.rows * view.leading), untouched);
  }
};

template <typename Q>
std::uint8_t quantized_byte(double element, float factor) {
  return to_float_of_8<Q>(static_cast<float>(element) * factor).bits;
}

/// Quantizes x on a device and compares every byte with the formula.
class Quantized {
 public:
  explicit Quantized(DeviceContract& suite) : suite_(suite) {}

  QuantizedCopy copy(ElementType type, std::int64_t rows, std::int64_t columns, std::int64_t padding) {
    QuantizedCopy made{{}, {nullptr, type, rows, columns, columns + padding}};
    made.memory = suite_.upload_values(made.expected_elsewhere());
    made.view.data = made.memory.data();
    return made;
  }

  template <typename Q>
  void check(const Matrix& x, std::int64_t padding, bool straight, bool turned) {
    const ElementType type = Q::mantissa_bits == 3 ? ElementType::f8 : ElementType::f8_e5m2;
    SCOPED_TRACE(fmt::format("{} {} x {} to {}, padding {}{}{}", to_string(x.type()), x.rows(), x.columns(),
                             to_string(type), padding, straight ? ", copy" : "",
                             turned ? ", transposed" : ""));
    const DeviceMatrix from = suite_.upload(x);
    const QuantizedCopy same = copy(type, x.rows(), x.columns(), padding),
                        other = copy(type, x.columns(), x.rows(), padding);
    const Buffer scale = suite_.upload_values(std::vector<float>{-1});
    EXPECT_OK(suite_.device().quantize({.x = from.view,
                                        .copy = straight ? same.view : MatrixView(),
                                        .transposed = turned ? other.view : MatrixView(),
                                        .scale = scale.as<float>()},
                                       suite_.stream()));
    float largest = 0;
    for (std::int64_t r = 0; r < x.rows(); ++r)
      for (std::int64_t c = 0; c < x.columns(); ++c)
        largest = std::max(largest, std::fabs(static_cast<float>(x.get(r, c))));
    const float factor = quantization_factor<Q>(float_bits(largest));
    EXPECT_EQ(suite_.download_value<float>(scale.data()), 1 / factor);
    auto expected = same.expected_elsewhere(), expected_turned = other.expected_elsewhere();
    for (std::int64_t r = 0; r < x.rows(); ++r)
      for (std::int64_t c = 0; c < x.columns(); ++c) {
        const std::uint8_t byte = quantized_byte<Q>(x.get(r, c), factor);
        if (straight) expected[static_cast<std::size_t>(r * same.view.leading + c)] = byte;
        if (turned) expected_turned[static_cast<std::size_t>(c * other.view.leading + r)] = byte;
      }
    EXPECT_EQ(suite_.download_values<std::uint8_t>(same.memory.data(), expected.size()), expected);
    EXPECT_EQ(suite_.download_values<std::uint8_t>(other.memory.data(), expected_turned.size()),
              expected_turned);
  }

 private:
  DeviceContract& suite_;
};

Matrix uniform(ElementType type, QuantizedShape shape, std::int64_t padding, double scale) {
  Engine engine(static_cast<std::uint64_t>(shape.rows * 10007 + shape.columns));
  Matrix matrix(type, shape.rows, shape.columns, shape.columns + padding);
  reference::fill_uniform(matrix, engine);
  for (std::int64_t r = 0; r < shape.rows; ++r)
    for (std::int64_t c = 0; c < shape.columns; ++c) matrix.set(r, c, matrix.get(r, c) * scale);
  return matrix;
}

}  // namespace

TEST_P(DeviceContract, QuantizesToTheBitWithTheLargestScaleThatFits) {
  Quantized quantized(*this);
  for (const ElementType type : {ElementType::f32, ElementType::bf16})
    for (const QuantizedShape& shape : quantized_shapes)
      for (const std::int64_t padding : {0, 4, 5}) {
        const Matrix x =
            uniform(type, shape, padding, std::ldexp(1.0, static_cast<int>(shape.rows % 40) - 20));
        quantized.check<Float8>(x, padding, true, true);
        quantized.check<Float8E5m2>(x, padding, true, true);
        if (padding > 0) continue;
        quantized.check<Float8>(x, padding, true, false);
        quantized.check<Float8E5m2>(x, padding, false, true);
      }
  finish();
}

TEST_P(DeviceContract, ZerosHaveTheScaleOneAndWhatIsNotFiniteHasNone) {
  Quantized quantized(*this);
  Matrix x = uniform(ElementType::bf16, {32, 48}, 0, 0.0);
  quantized.check<Float8>(x, 0, true, true);
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    x.set(7, 9, bad);
    const DeviceMatrix from = upload(x);
    const QuantizedCopy made = quantized.copy(ElementType::f8, 32, 48, 0);
    const Buffer scale = upload_values(std::vector<float>{-1});
    EXPECT_OK(device().quantize(
        {.x = from.view, .copy = made.view, .transposed = {}, .scale = scale.as<float>()}, stream()));
    EXPECT_TRUE(std::isnan(download_value<float>(scale.data())));
  }
  finish();
}

/// Operands with scales, one of them e5m2, into either result type.
TEST_P(DeviceContract, ProductsTakeTheScalesIntoAccount) {
  Quantized quantized(*this);
  if (!device().supports(Precision::fp8).yes()) GTEST_SKIP();
  constexpr std::int64_t m = 48, n = 64, k = 160;
  constexpr std::size_t apart = Gemm::scale_alignment / sizeof(float);
  const Matrix a = uniform(ElementType::f32, {m, k}, 0, 1e-3),
               b = uniform(ElementType::bf16, {n, k}, 0, 300.0);
  const DeviceMatrix on_a = upload(a), on_b = upload(b);
  const Buffer scales = upload_values(std::vector<float>(1 + apart, -1));
  for (const bool a_is_e5m2 : {false, true})
    for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
      const QuantizedCopy qa = quantized.copy(a_is_e5m2 ? ElementType::f8_e5m2 : ElementType::f8, m, k, 0),
                          qb = quantized.copy(a_is_e5m2 ? ElementType::f8 : ElementType::f8_e5m2, n, k, 0);
      EXPECT_OK(device().quantize(
          {.x = on_a.view, .copy = qa.view, .transposed = {}, .scale = scales.as<float>()}, stream()));
      EXPECT_OK(device().quantize(
          {.x = on_b.view, .copy = qb.view, .transposed = {}, .scale = scales.as<float>() + apart},
          stream()));
      const Matrix zeros = uniform(type, {m, n}, 0, 0.0);
      const DeviceMatrix d = upload(zeros);
      EXPECT_OK(device().gemm({.precision = Precision::fp8,
                               .a = qa.view,
                               .b = qb.view,
                               .d = d.view,
                               .b_transposed = true,
                               .a_scale = scales.as<float>(),
                               .b_scale = scales.as<float>() + apart},
                              stream()));
      Matrix result = zeros;
      download(d, result);
      int wrong = 0;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (std::int64_t p = 0; p < k; ++p) {
            sum += a.get(i, p) * b.get(j, p);
            magnitude += std::fabs(a.get(i, p) * b.get(j, p));
          }
          // Max relative error 2^-4 and 2^-3 per operand, twice as much for the smallest numbers.
          wrong += !(std::fabs(result.get(i, j) - sum) <= 0.2 * magnitude);
        }
      EXPECT_EQ(wrong, 0) << to_string(qa.view.type) << " into " << to_string(type);
    }
  finish();
}

TEST_P(DeviceContract, RefusesWhatDoesNotFit) {
  const Buffer memory = allocate(1 << 14);
  const auto matrix = [&](ElementType type, std::int64_t rows = 16, std::int64_t columns = 32) {
    return MatrixView(memory.data(), type, rows, columns);
  };
  float* const scale = memory.as<float>() + 2048;
  using enum ElementType;
  const auto call = [&](MatrixView x, MatrixView copy, MatrixView transposed, float* to) {
    return device().quantize({.x = x, .copy = copy, .transposed = transposed, .scale = to}, stream());
  };
  EXPECT_FAILS(invalid_argument, call(matrix(f16), matrix(f8), {}, scale));
  EXPECT_FAILS(invalid_argument, call(matrix(bf16), matrix(i8), {}, scale));
  EXPECT_FAILS(invalid_argument, call(matrix(bf16), matrix(f8, 32, 16), {}, scale));
  EXPECT_FAILS(invalid_argument, call(matrix(bf16), {}, matrix(f8), scale));
  EXPECT_FAILS(invalid_argument, call(matrix(bf16), matrix(f8), matrix(f8_e5m2, 32, 16), scale));
  EXPECT_FAILS(invalid_argument, call(matrix(bf16), {}, {}, scale));
  EXPECT_FAILS(invalid_argument, call(matrix(bf16), matrix(f8), {}, nullptr));
  if (device().supports(Precision::fp8).yes()) {
    EXPECT_FAILS(invalid_argument, device().gemm({.precision = Precision::fp8,
                                                  .a = matrix(f8_e5m2),
                                                  .b = matrix(f8_e5m2),
                                                  .d = matrix(f32, 16, 16),
                                                  .b_transposed = true},
                                                 stream()));
    EXPECT_FAILS(invalid_argument, device().gemm({.precision = Precision::fp8,
                                                  .a = matrix(f8),
                                                  .b = matrix(f8),
                                                  .d = matrix(f32, 16, 16),
                                                  .b_transposed = true,
                                                  .b_scale = scale + 1},
                                                 stream()));
  }
  EXPECT_FAILS(invalid_argument, device().gemm({.precision = Precision::bf16,
                                                .a = matrix(bf16),
                                                .b = matrix(bf16),
                                                .d = matrix(f32, 16, 16),
                                                .b_transposed = true,
                                                .a_scale = scale},
                                               stream()));
  finish();
}

}  // namespace egt::contract
