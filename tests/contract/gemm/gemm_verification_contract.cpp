#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tests/contract/device_contract.hpp"

namespace egt::contract {
namespace {

using reference::Engine;
using reference::Matrix;

struct Sizes {
  std::int64_t m, n, k;
};

/// Distributions of operand values. Terms 2i and 2i + 1 of `cancelling` cancel except for their last bits.
enum class Data { uniform, positive, whole, cancelling, mixed, huge, tiny, zero };
constexpr Data all_data[] = {Data::uniform, Data::positive, Data::whole, Data::cancelling,
                             Data::mixed,   Data::huge,     Data::tiny,  Data::zero};

/// A GEMM on the device with its operands on the host.
struct Verified {
  Matrix a, b, d;
  DeviceMatrix on_a, on_b, on_d;
  Gemm gemm;

  double a_at(std::int64_t i, std::int64_t p) const { return gemm.a_transposed ? a.get(p, i) : a.get(i, p); }
  double b_at(std::int64_t p, std::int64_t j) const { return gemm.b_transposed ? b.get(j, p) : b.get(p, j); }
  void set_a(std::int64_t i, std::int64_t p, double value) {
    gemm.a_transposed ? a.set(p, i, value) : a.set(i, p, value);
  }
  void set_b(std::int64_t p, std::int64_t j, double value) {
    gemm.b_transposed ? b.set(j, p, value) : b.set(p, j, value);
  }
};

double draw(ElementType type, Data data, Engine& engine) {
  const auto between = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
  const double value = std::uniform_real_distribution<double>(-1, 1)(engine);
  const bool f64 = type == ElementType::f64, f16 = type == ElementType::f16;
  switch (data) {
    case Data::positive:
      return std::fabs(value);
    case Data::whole:
      return std::round(8 * value);
    case Data::mixed:
      return std::ldexp(value, f16 ? between(-8, 3) : between(-20, 20));
    case Data::huge:
      return std::ldexp(value, f64 ? between(480, 1022) : f16 ? between(6, 14) : between(50, 125));
    case Data::tiny:
      return std::ldexp(value, f64 ? -between(480, 1070) : f16 ? -between(6, 23) : -between(50, 145));
    case Data::zero:
      return 0;
    default:
      return value;
  }
}

void fill(Verified& v, std::int64_t k, Data data, Engine& engine) {
  const ElementType type = v.a.type();
  for (std::int64_t p = 0; p < k; ++p) {
    const bool repeats = data == Data::cancelling && p % 2 == 1;
    for (std::int64_t i = 0; i < v.d.rows(); ++i)
      v.set_a(i, p, repeats ? -1.001 * v.a_at(i, p - 1) : draw(type, data, engine));
    for (std::int64_t j = 0; j < v.d.columns(); ++j)
      v.set_b(p, j, repeats ? v.b_at(p - 1, j) : draw(type, data, engine));
  }
}

/// Creates the operands but does not run the GEMM.
Verified make(DeviceContract& contract, Precision precision, Sizes s, int variant, Data data,
              std::uint64_t seed) {
  const bool at = variant & 1, bt = variant & 2;
  const ElementType type = storage_type(precision), output = variant & 4 ? sum_type(precision) : type;
  const std::int64_t pad = variant % 3;
  Verified v{
      .a = {type, at ? s.k : s.m, at ? s.m : s.k, (at ? s.m : s.k) + pad},
      .b = {type, bt ? s.n : s.k, bt ? s.k : s.n, (bt ? s.k : s.n) + 2 * pad},
      .d = {output, s.m, s.n, s.n + 3 * pad},
      .on_a = {},
      .on_b = {},
      .on_d = {},
      .gemm = {.precision = precision, .a = {}, .b = {}, .d = {}, .a_transposed = at, .b_transposed = bt}};
  Engine engine(seed);
  fill(v, s.k, data, engine);
  v.on_a = contract.upload(v.a);
  v.on_b = contract.upload(v.b);
  v.on_d = contract.upload(v.d);
  v.gemm.a = v.on_a.view;
  v.gemm.b = v.on_b.view;
  v.gemm.d = v.on_d.view;
  return v;
}

GemmMismatches verify(DeviceContract& contract, const Gemm& gemm) {
  const Buffer report = contract.upload_values(std::vector<GemmMismatches>{{}});
  EXPECT_OK(contract.device().verify_gemm(gemm, report.as<GemmMismatches>(), contract.stream()));
  return contract.download_value<GemmMismatches>(report.data());
}

constexpr Precision verified_precisions[] = {Precision::fp64, Precision::fp32, Precision::tf32,
                                             Precision::fp16, Precision::bf16};

}  // namespace

TEST_P(DeviceContract, VerifyGemmAcceptsEveryRightResult) {
  constexpr Sizes shapes[] = {{1, 1, 1}, {1, 17, 5}, {64, 5, 3}, {65, 66, 31}, {7, 130, 257}};
  Engine engine(3);
  for (const Precision precision : verified_precisions) {
    if (!device().supports(precision).yes()) continue;
    double largest = 0;
    for (const Sizes& shape : shapes)
      for (const Data data : all_data)
        for (const int variant : {0, 1, 2, 3, 6}) {
          const Verified v = make(*this, precision, shape, variant, data, engine());
          EXPECT_OK(device().gemm(v.gemm, stream()));
          const GemmMismatches found = verify(*this, v.gemm);
          const auto name = fmt::format("{} {}x{}x{} variant {} data {}", to_string(precision), shape.m,
                                        shape.n, shape.k, variant, static_cast<int>(data));
          const auto& [row, column, expected, actual, bound] = found.sample[0];
          ASSERT_EQ(found.wrong, 0u) << name << ": " << actual << ", not " << expected << " +- " << bound;
          EXPECT_EQ(found.compared, static_cast<std::uint64_t>(shape.m * shape.n)) << name;
          if (data != Data::huge) {
            EXPECT_EQ(found.undecided, 0u) << name;
          }
          largest = std::max(largest, found.largest_share());
        }
    EXPECT_LE(largest, 1);
    EXPECT_GT(largest, 0.05) << to_string(precision);  // the bounds are tight
  }
}

TEST_P(DeviceContract, VerifyGemmFindsOneWrongElementWhereverItIs) {
  constexpr Sizes shape{70, 67, 33};
  for (const Precision precision : verified_precisions) {
    if (!device().supports(precision).yes()) continue;
    Verified v = make(*this, precision, shape, 2, Data::uniform, 7);
    EXPECT_OK(device().gemm(v.gemm, stream()));
    download(v.on_d, v.d);
    Engine engine(11);
    for (int i = 0; i < 40; ++i) {
      const auto r = static_cast<std::int64_t>(engine() % shape.m),
                 c = static_cast<std::int64_t>(engine() % shape.n);
      const double before = v.d.get(r, c), wrong = before + (i % 2 == 0 ? 0.06 : -0.06);
      v.d.set(r, c, wrong);
      Gemm gemm = v.gemm;
      const DeviceMatrix changed = upload(v.d);
      gemm.d = changed.view;
      const GemmMismatches found = verify(*this, gemm);
      ASSERT_EQ(found.wrong, 1u) << to_string(precision) << " at " << r << ", " << c;
      const auto& [row, column, expected, actual, bound] = found.sample[0];
      EXPECT_EQ(std::pair(std::int64_t{row}, std::int64_t{column}), std::pair(r, c));
      EXPECT_EQ(actual, v.d.get(r, c));
      EXPECT_NEAR(expected, before, bound);
      EXPECT_LT(bound, 0.06);
      v.d.set(r, c, before);
    }
  }
}

TEST_P(DeviceContract, VerifyGemmFindsAWrongOperandAndAResultThatWasNotComputed) {
  Verified v = make(*this, Precision::fp32, {20, 30, 40}, 2, Data::uniform, 1);
  EXPECT_EQ(verify(*this, v.gemm).wrong, 600u);  // d contains only padding
  EXPECT_OK(device().gemm(v.gemm, stream()));
  v.set_a(7, 9, v.a_at(7, 9) + 4);
  const DeviceMatrix changed = upload(v.a);
  v.gemm.a = changed.view;
  const GemmMismatches found = verify(*this, v.gemm);
  EXPECT_GT(found.wrong, 25u);
  EXPECT_LE(found.wrong, 30u);
  EXPECT_EQ(found.sample[0].row, 7u);
}

TEST_P(DeviceContract, VerifyGemmVerifiesBiasAndRelu) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16}) {
    if (!device().supports(precision).yes()) continue;
    const ElementType type = storage_type(precision);
    for (const double scale : {1.0, 30.0}) {
      const Verified v = make(*this, precision, {40, 64, 33}, 2, Data::uniform, 5);
      Matrix bias(type, 1, 64, 64);
      Engine engine(9);
      for (std::int64_t j = 0; j < 64; ++j) bias.set(0, j, scale * draw(type, Data::uniform, engine));
      const DeviceMatrix on_bias = upload(bias);
      Gemm gemm = v.gemm;
      EXPECT_OK(device().gemm(gemm, stream()));
      gemm.relu_bias = {on_bias.view.data, type, 64};
      EXPECT_GT(verify(*this, gemm).wrong, 1000u);  // neither bias nor ReLU was applied
      EXPECT_OK(device().gemm(gemm, stream()));
      const GemmMismatches found = verify(*this, gemm);
      EXPECT_EQ(found.wrong, 0u) << to_string(precision) << ": " << found.sample[0].actual << ", not "
                                 << found.sample[0].expected;
      EXPECT_EQ(found.undecided, 0u);
      EXPECT_LE(found.largest_share(), 1);
      gemm.relu_bias = {};
      EXPECT_GT(verify(*this, gemm).wrong, 1000u);
    }
  }
}

TEST_P(DeviceContract, VerifyGemmJudgesWhatIsNotFinite) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto judge = [&](double a, double b, double d) {
    Matrix of_a(ElementType::f16, 1, 1, 1), of_b = of_a, of_d = of_a;
    of_a.set(0, 0, a);
    of_b.set(0, 0, b);
    of_d.set(0, 0, d);
    const DeviceMatrix on_a = upload(of_a), on_b = upload(of_b), on_d = upload(of_d);
    const GemmMismatches found =
        verify(*this, {.precision = Precision::fp16, .a = on_a.view, .b = on_b.view, .d = on_d.view});
    EXPECT_EQ(found.undecided, 0u);
    return found.wrong == 0;
  };
  EXPECT_TRUE(judge(300, 300, infinity));
  EXPECT_TRUE(judge(-300, 300, -infinity));
  EXPECT_TRUE(judge(65504, 1, 65504));
  EXPECT_TRUE(judge(nan, 1, nan));
  EXPECT_TRUE(judge(infinity, 1, infinity));
  EXPECT_FALSE(judge(300, 300, -infinity));
  EXPECT_FALSE(judge(300, 300, 65504));
  EXPECT_FALSE(judge(300, 300, nan));
  EXPECT_FALSE(judge(200, 300, infinity));
  EXPECT_FALSE(judge(200, 200, infinity));
  EXPECT_FALSE(judge(nan, 1, 0.5));
  EXPECT_FALSE(judge(2, 2, nan));
}

/// Quantized operands with scales other than 1, into either result type.
TEST_P(DeviceContract, VerifyGemmAppliesTheScalesOf8Bits) {
  if (const Support support = device().supports(Precision::fp8); !support.yes())
    GTEST_SKIP() << support.why_not;
  Matrix a(ElementType::f32, 64, 256, 256), b(ElementType::f32, 96, 256, 256);
  Engine engine(3);
  reference::fill_uniform(a, engine);
  reference::fill_uniform(b, engine);
  for (std::int64_t c = 0; c < 256; ++c) a.set(5, c, 100 * a.get(5, c));
  const DeviceMatrix on_a = upload(a), on_b = upload(b);
  const Buffer copies = allocate(160 * 256), result = allocate(64 * 96 * sizeof(float));
  const Buffer scales = allocate(2 * Gemm::scale_alignment);
  float* const b_scale = scales.as<float>() + Gemm::scale_alignment / sizeof(float);
  Gemm gemm = {.precision = Precision::fp8,
               .a = {copies.data(), ElementType::f8_e5m2, 64, 256},
               .b = {copies.as<char>() + 64 * 256, ElementType::f8, 96, 256},
               .d = {result.data(), ElementType::f32, 64, 96},
               .b_transposed = true,
               .a_scale = scales.as<float>(),
               .b_scale = b_scale};
  EXPECT_OK(device().quantize({.x = on_a.view, .copy = gemm.a, .transposed = {}, .scale = scales.as<float>()},
                              stream()));
  EXPECT_OK(
      device().quantize({.x = on_b.view, .copy = gemm.b, .transposed = {}, .scale = b_scale}, stream()));
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    gemm.d.type = type;
    EXPECT_OK(device().gemm(gemm, stream()));
    const GemmMismatches right = verify(*this, gemm);
    EXPECT_EQ(right.wrong, 0u);
    EXPECT_EQ(right.compared, 64u * 96);
    EXPECT_GT(right.largest_share(), 0);
    Gemm unscaled = gemm;
    unscaled.a_scale = nullptr;
    EXPECT_GT(verify(*this, unscaled).wrong, 5000u);
  }
}

TEST_P(DeviceContract, VerifyGemmOfInt8IsExact) {
  if (!device().supports(Precision::int8).yes()) GTEST_SKIP();
  constexpr std::int64_t m = 32, n = 48, k = 208;
  Engine engine(17);
  const auto bytes = [&](std::int64_t count) {
    std::vector<std::int8_t> values(static_cast<std::size_t>(count));
    for (std::int8_t& value : values) value = static_cast<std::int8_t>(engine());
    return upload_values(values);
  };
  const Buffer a = bytes(m * k), b = bytes(n * k), d = allocate(m * n * sizeof(std::int32_t));
  const Gemm gemm{.precision = Precision::int8,
                  .a = {a.data(), ElementType::i8, m, k},
                  .b = {b.data(), ElementType::i8, n, k},
                  .d = {d.data(), ElementType::i32, m, n},
                  .b_transposed = true};
  EXPECT_OK(device().gemm(gemm, stream()));
  const GemmMismatches right = verify(*this, gemm);
  EXPECT_EQ(right.compared, static_cast<std::uint64_t>(m * n));
  EXPECT_EQ(right.wrong, 0u);
  EXPECT_OK(device().flip({d.as<std::uint32_t>(), m * n}, {.first = 5 * n + 7, .mask = 1}, stream()));
  const GemmMismatches wrong = verify(*this, gemm);
  EXPECT_EQ(wrong.wrong, 1u);
  const auto& [row, column, expected, actual, bound] = wrong.sample[0];
  EXPECT_EQ(std::pair(row, column), std::pair(5u, 7u));
  EXPECT_EQ(std::fabs(actual - expected), 1.0);
}

TEST_P(DeviceContract, VerifyGemmRefusesWhatDoesNotFit) {
  const Buffer memory = allocate(4096);
  auto* const report = memory.as<GemmMismatches>();
  const MatrixView m(memory.data(), ElementType::f32, 4, 4);
  EXPECT_FAILS(invalid_argument, device().verify_gemm({.a = m, .b = m, .d = m}, nullptr, stream()));
  EXPECT_FAILS(invalid_argument,
               device().verify_gemm({.a = m, .b = m, .d = m, .alpha = 2}, report, stream()));
  EXPECT_FAILS(invalid_argument, device().verify_gemm({.a = m, .b = m, .d = m, .beta = 1}, report, stream()));
  const MatrixView wide(memory.data(), ElementType::f32, 4, 5);
  EXPECT_FAILS(invalid_argument, device().verify_gemm({.a = m, .b = m, .d = wide}, report, stream()));
}

}  // namespace egt::contract
