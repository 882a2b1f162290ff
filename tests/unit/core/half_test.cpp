#include "egt/core/math/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace egt {
namespace {

/// A binary floating-point format: digits after the leading one, min exponent, max finite value.
struct Format {
  int digits;
  int min_exponent;
  double largest;
};
constexpr Format half_format{10, -14, 65504.0};
constexpr Format bfloat16_format{7, -126, 0x1.FEp127};
constexpr Format tf32_format{10, -126, 0x1.FFCp127};

double unit_in_last_place(double value, const Format& format) {
  const int exponent = value == 0 ? format.min_exponent : std::max(std::ilogb(value), format.min_exponent);
  return std::ldexp(1.0, exponent - format.digits);
}

/// To nearest, ties to even, computed in double, in which every float and every quotient here is exact.
double nearest_even(double value, const Format& format) {
  if (!std::isfinite(value)) return value;
  const double ulp = unit_in_last_place(value, format);
  const double rounded = std::nearbyint(value / ulp) * ulp;
  return std::fabs(rounded) > format.largest ? std::copysign(std::numeric_limits<double>::infinity(), value)
                                             : rounded;
}

double nearest_away(double value, const Format& format) {
  if (!std::isfinite(value)) return value;
  const double ulp = unit_in_last_place(value, format);
  const double rounded = std::round(value / ulp) * ulp;
  return std::fabs(rounded) > format.largest ? std::copysign(std::numeric_limits<double>::infinity(), value)
                                             : rounded;
}

bool same(double expected, float actual) {
  if (std::isnan(expected)) return std::isnan(actual);
  return expected == static_cast<double>(actual) && std::signbit(expected) == std::signbit(actual);
}

/// Both signs of `magnitude` and of its neighbouring floats.
void add_neighbourhood(std::vector<float>& floats, double magnitude) {
  const float middle = static_cast<float>(magnitude);
  for (float f : {std::nextafterf(middle, 0.0f), middle, std::nextafterf(middle, HUGE_VALF)}) {
    floats.push_back(f);
    floats.push_back(-f);
  }
}

/// Every value of the format and every tie between two of them, with their neighbouring floats; the special
/// values; and random bits.
std::vector<float> hard_cases(const Format& format) {
  std::vector<float> floats = {0.0f,
                               -0.0f,
                               HUGE_VALF,
                               -HUGE_VALF,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::lowest(),
                               std::numeric_limits<float>::denorm_min(),
                               float_from_bits(0x7F800001u),
                               float_from_bits(0xFFFFFFFFu)};
  const double first = std::ldexp(1.0, format.min_exponent - format.digits);
  for (double value = first; value <= format.largest;) {
    const double ulp = unit_in_last_place(value, format);
    add_neighbourhood(floats, value);
    add_neighbourhood(floats, value + ulp / 2);
    value += ulp;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 500'000; ++i) floats.push_back(float_from_bits(static_cast<std::uint32_t>(random())));
  return floats;
}

template <typename Convert, typename Reference>
void expect_rounds_as(const Format& format, Convert convert, Reference reference) {
  int shown = 0;
  for (const float f : hard_cases(format)) {
    const float actual = convert(f);
    const double expected = reference(static_cast<double>(f), format);
    if (same(expected, actual)) continue;
    ADD_FAILURE() << std::hexfloat << f << " became " << actual << ", not " << expected;
    if (++shown == 10) return;
  }
}

TEST(Half, EveryBitPatternSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFu; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float f = to_float(half);
    if (std::isnan(f)) {
      EXPECT_TRUE((bits & 0x7C00u) == 0x7C00u && (bits & 0x3FFu) != 0) << bits;
      EXPECT_TRUE(std::isnan(to_float(to_half(f)))) << bits;
    } else {
      ASSERT_EQ(to_half(f).bits, bits);
    }
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(to_float(Half{0x3C00}), 1.0f);
  EXPECT_EQ(to_float(Half{0xC000}), -2.0f);
  EXPECT_EQ(to_float(Half{0x7BFF}), 65504.0f);
  EXPECT_EQ(to_float(Half{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(Half{0x03FF}), 1023 * 0x1p-24f);
  EXPECT_EQ(to_float(Half{0x0400}), 0x1p-14f);
  EXPECT_EQ(to_float(Half{0xFC00}), -HUGE_VALF);
}

TEST(Half, RoundsToNearestEven) {
  expect_rounds_as(
      half_format, [](float f) { return to_float(to_half(f)); }, nearest_even);
}

TEST(Half, OverflowsToInfinityAtTheTie) {
  EXPECT_EQ(to_half(65519.996f).bits, 0x7BFFu);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7C00u);
  EXPECT_EQ(to_half(-65520.0f).bits, 0xFC00u);
}

TEST(Bfloat16, EveryBitPatternSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFu; ++bits) {
    const float f = to_float(Bfloat16{static_cast<std::uint16_t>(bits)});
    if (std::isnan(f))
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(f)))) << bits;
    else
      ASSERT_EQ(to_bfloat16(f).bits, bits);
  }
}

TEST(Bfloat16, RoundsToNearestEven) {
  expect_rounds_as(
      bfloat16_format, [](float f) { return to_float(to_bfloat16(f)); }, nearest_even);
}

TEST(Bfloat16, ANanWhoseUpperBitsAreThoseOfInfinityStaysANan) {
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(float_from_bits(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(float_from_bits(0xFFFFFFFFu)))));
}

TEST(Tf32, RoundsToNearestAwayFromZero) {
  expect_rounds_as(
      tf32_format, [](float f) { return round_to_tf32(f); }, nearest_away);
}

/// Rounding through float first would round twice: a float cannot resolve their distance from a tie.
template <typename To>
void expect_one_rounding(const Format& format) {
  std::mt19937 random(9);
  for (int i = 0; i < 100'000; ++i) {
    const double value =
        std::ldexp(static_cast<double>(random() % 4096 + 1), static_cast<int>(random() % 40) - 30);
    const double tie = nearest_even(value, format) + unit_in_last_place(value, format) / 2;
    for (const double beside : {tie, tie * (1 + 0x1p-50), tie * (1 - 0x1p-50), -tie * (1 + 0x1p-50)})
      ASSERT_TRUE(same(nearest_even(beside, format), to_float(convert_element<To>(beside))))
          << std::hexfloat << beside;
  }
}

TEST(ConvertElement, RoundsDoubleOnce) {
  expect_one_rounding<Half>(half_format);
  expect_one_rounding<Bfloat16>(bfloat16_format);
}

TEST(Element, LoadsAndStoresThroughItsComputeType) {
  EXPECT_EQ(Element<double>::store(Element<double>::load(0.1)), 0.1);
  EXPECT_EQ(Element<float>::store(Element<float>::load(0.1f)), 0.1f);
  EXPECT_EQ(Element<Half>::load(Element<Half>::store(0.1f)), to_float(to_half(0.1f)));
  EXPECT_EQ(Element<Bfloat16>::load(Element<Bfloat16>::store(0.1f)), to_float(to_bfloat16(0.1f)));
}

template <typename T>
class FloatOf8Test : public testing::Test {};
using FloatsOf8 = testing::Types<Float8, Float8E5m2>;
TYPED_TEST_SUITE(FloatOf8Test, FloatsOf8);

template <typename T>
constexpr Format format_of_8 = T::mantissa_bits == 3 ? Format{3, -6, 448} : Format{2, -14, 57344};

TYPED_TEST(FloatOf8Test, EveryNumberSurvivesAndIsWhatTheFormatSays) {
  using T = TypeParam;
  EXPECT_EQ(to_float(T{T::largest}), format_of_8<T>.largest);
  EXPECT_EQ(to_float(T{1}), std::ldexp(1.0, format_of_8<T>.min_exponent - T::mantissa_bits));
  EXPECT_EQ(to_float(T{static_cast<std::uint8_t>(T::bias << T::mantissa_bits)}), 1.0f);
  for (int bits = 0; bits < 256; ++bits) {
    const float value = to_float(T{static_cast<std::uint8_t>(bits)});
    const bool survives = !std::isfinite(value) || to_float_of_8<T>(value).bits == bits;
    EXPECT_TRUE(survives) << value;
    EXPECT_EQ(std::signbit(value), bits >= 128) << bits;
  }
}

TYPED_TEST(FloatOf8Test, RoundsToNearestEvenAndStopsAtTheLargest) {
  using T = TypeParam;
  std::vector<float> floats = {0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, 3e38f, 1e-40f};
  for (std::uint32_t bits = 0; bits < T::largest; ++bits) {
    const double low = to_float(T{static_cast<std::uint8_t>(bits)}),
                 high = to_float(T{static_cast<std::uint8_t>(bits + 1)});
    add_neighbourhood(floats, low);
    add_neighbourhood(floats, (low + high) / 2);
  }
  add_neighbourhood(floats, format_of_8<T>.largest);
  for (const float f : floats) {
    const double nearest = nearest_even(static_cast<double>(f), format_of_8<T>);
    const double expected = std::copysign(std::min(std::fabs(nearest), format_of_8<T>.largest), nearest);
    EXPECT_TRUE(same(expected, to_float(to_float_of_8<T>(f)))) << f;
  }
  EXPECT_TRUE(std::isnan(to_float(to_float_of_8<T>(NAN))));
}

TYPED_TEST(FloatOf8Test, TheFactorIsTheLargestPowerOfTwoThatFits) {
  using T = TypeParam;
  const double largest = format_of_8<T>.largest;
  std::mt19937 random(3);
  std::vector<float> magnitudes = {448,
                                   57344,
                                   std::nextafterf(448, 0.0f),
                                   std::nextafterf(448, 1000.0f),
                                   1,
                                   std::nextafterf(57344, 0.0f),
                                   std::nextafterf(57344, 1e6f)};
  for (int i = 0; i < 1000; ++i)
    magnitudes.push_back(
        std::ldexp(1 + static_cast<float>(random() % 4096) / 4096, static_cast<int>(random() % 80) - 40));
  for (const float magnitude : magnitudes) {
    const double factor = quantization_factor<T>(float_bits(magnitude));
    EXPECT_EQ(std::exp2(std::round(std::log2(factor))), factor);
    EXPECT_LE(magnitude * factor, largest) << magnitude;
    EXPECT_GT(magnitude * factor * 2, largest) << magnitude;
  }
  EXPECT_EQ(quantization_factor<T>(float_bits(0.0f)), 1.0f);
  EXPECT_EQ(quantization_factor<T>(float_bits(1e-40f)), 0x1p60f);
  EXPECT_EQ(quantization_factor<T>(float_bits(3e38f)), 0x1p-60f);
  EXPECT_TRUE(std::isnan(quantization_factor<T>(float_bits(HUGE_VALF))));
  EXPECT_TRUE(std::isnan(quantization_factor<T>(float_bits(NAN))));
}

}  // namespace
}  // namespace egt
