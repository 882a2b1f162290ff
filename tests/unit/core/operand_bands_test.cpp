#include "egt/core/operand_bands.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "egt/core/math/half.hpp"
#include "egt/core/pattern.hpp"

namespace egt {
namespace {

/// The value of an element's bits.
double value_of(Precision precision, std::uint64_t bits) {
  switch (precision) {
    case Precision::fp64:
      return std::bit_cast<double>(bits);
    case Precision::fp16:
      return to_float(Half{static_cast<std::uint16_t>(bits)});
    case Precision::bf16:
      return to_float(Bfloat16{static_cast<std::uint16_t>(bits)});
    case Precision::fp8:
      return to_float(Float8{static_cast<std::uint8_t>(bits)});
    case Precision::int8:
      return static_cast<std::int8_t>(bits);
    default:
      return float_from_bits(static_cast<std::uint32_t>(bits));
  }
}

/// log2 of the root mean square. The squares of the extreme values themselves would overflow.
double log_of_size(Precision precision, const OperandBand::Bits& bits) {
  std::vector<double> values;
  for (std::uint64_t i = 0; i < 20'000; ++i)
    values.push_back(std::fabs(value_of(precision, (mix64(i) & bits.keep) | bits.fixed)));
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value / largest * (value / largest);
  return std::log2(largest) + std::log2(sum / static_cast<double>(values.size())) / 2;
}

/// Seven standard deviations of a sum stay below 2 to the power of these limits, in granules. For fp64,
/// the limit is that of the checksums: weights up to 255 over as many columns as terms.
TEST(OperandBands, SumsOfExactBandsFitTheAccumulator) {
  const std::map<Precision, double> limits = {
      {Precision::fp64, 0x1p53}, {Precision::int8, 0x1p31}, {Precision::fp8, 14}};
  for (const OperandBand& band : operand_bands()) {
    if (!band.is_exact) continue;
    const double terms = static_cast<double>((is_narrow(band.precision) ? 2 : 1) * largest_exact_terms);
    double sum = std::log2(7) + std::log2(terms) / 2 + log_of_size(band.precision, band.a) +
                 log_of_size(band.precision, band.b) - band.granule;
    if (band.precision == Precision::fp64)
      sum += std::log2(148 * std::sqrt(static_cast<double>(largest_exact_terms)));
    const auto limit = limits.find(band.precision);
    EXPECT_LT(sum, limit != limits.end() ? limit->second : 24)
        << to_string(band.precision) << ' ' << band.name;
    EXPECT_GT(sum, 5) << to_string(band.precision) << ' ' << band.name;
  }
}

TEST(OperandBands, EveryProductIsAMultipleOfTheGranule) {
  for (const OperandBand& band : operand_bands()) {
    if (!band.is_exact) continue;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const double a = value_of(band.precision, (mix64(i) & band.a.keep) | band.a.fixed),
                   b = value_of(band.precision, (mix64(~i) & band.b.keep) | band.b.fixed);
      ASSERT_TRUE(std::isfinite(a) && std::isfinite(b)) << to_string(band.precision) << ' ' << band.name;
      const double granules = std::ldexp(a * b, -band.granule);
      ASSERT_EQ(granules, std::nearbyint(granules)) << to_string(band.precision) << ' ' << band.name;
    }
  }
}

/// Every bit of an operand is 0 in one band and 1 in another.
TEST(OperandBands, TogetherTheySetAndClearEveryBit) {
  std::map<Precision, std::pair<std::uint64_t, std::uint64_t>> seen;
  for (const OperandBand& band : operand_bands())
    for (const OperandBand::Bits& bits : {band.a, band.b}) {
      seen[band.precision].first |= bits.keep | bits.fixed;
      seen[band.precision].second |= bits.keep | ~bits.fixed;
    }
  EXPECT_EQ(seen.size(), 7u);
  for (const auto& [precision, set_and_clear] : seen) {
    const std::size_t bits = 8 * size_of(storage_type(precision));
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - bits);
    EXPECT_EQ(set_and_clear.second & all, all) << to_string(precision);
    if (precision == Precision::fp16 || precision == Precision::fp8 || precision == Precision::int8) {
      EXPECT_EQ(set_and_clear.first & all, all) << to_string(precision);
    }
  }
}

/// Words alternate between two matrices, with the band's bits in each element. About half of the elements of
/// a rectified band's a are 0, and none has a sign.
TEST(OperandBands, WordsHoldElementsOfTheBand) {
  constexpr std::uint64_t matrix_words = 64;
  for (std::size_t i = 0; i < operand_bands().size(); ++i) {
    const OperandBand& band = operand_bands()[i];
    const PatternFunction words(
        {.kind = PatternKind::operands, .parameter = operand_parameter(i, matrix_words), .seed = 5});
    const std::size_t bytes = size_of(storage_type(band.precision));
    const std::uint64_t element = ~std::uint64_t{0} >> (64 - 8 * bytes);
    const bool is_rectified = band.is_rectified;
    std::uint64_t changed = 0, elements = 0, zeros = 0;
    for (std::uint64_t index = 0; index < 4 * matrix_words; index += 2) {
      const OperandBand::Bits& bits = index / matrix_words % 2 == 0 ? band.a : band.b;
      std::uint64_t two = words(index + 1);
      two = two << 32 | words(index);
      changed |= two ^ (std::uint64_t{words(index + 3)} << 32 | words(index + 2));
      for (std::size_t shift = 0; shift < 64; shift += 8 * bytes) {
        const std::uint64_t one = two >> shift & element;
        const bool is_a = &bits == &band.a;
        elements += is_a;
        zeros += is_a && one == 0;
        if (is_rectified && is_a) {
          ASSERT_EQ(one >> (8 * bytes - 1), 0u) << to_string(band.precision) << " word " << index;
        }
        if (!is_rectified || !is_a || one != 0) {
          ASSERT_EQ(one & ~bits.keep, bits.fixed)
              << to_string(band.precision) << ' ' << band.name << " word " << index;
        }
      }
    }
    EXPECT_NE(changed, 0u);
    if (is_rectified) {
      EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(elements), 0.5, 0.2)
          << to_string(band.precision);
    }
  }
}

TEST(OperandBands, TakeTurnsExceptThoseLeftOut) {
  const auto bands = operand_bands();
  std::map<Precision, std::size_t> first_exact, exact;
  for (std::size_t i = 0; i < bands.size(); ++i) {
    if (!bands[i].is_exact) continue;
    first_exact.emplace(bands[i].precision, i);
    ++exact[bands[i].precision];
  }
  for (const auto& [precision, count] : exact) {
    SCOPED_TRACE(to_string(precision));
    const std::size_t spared = first_exact.at(precision);
    std::map<std::size_t, std::size_t> uses, uses_without;
    for (std::uint64_t number = 0; number < 30 * count; ++number) {
      ++uses[band_in_turn(precision, number, {})];
      ++uses_without[band_in_turn(precision, number, {spared})];
    }
    EXPECT_EQ(uses.size(), count + 2);
    for (const auto& [band, times] : uses) {
      EXPECT_EQ(bands[band].precision, precision);
      EXPECT_EQ(times, bands[band].is_exact ? 10 : 10 * count) << bands[band].name;
    }
    EXPECT_EQ(uses_without.size(), count + 1);
    EXPECT_FALSE(uses_without.contains(spared));
  }
}

}  // namespace
}  // namespace egt
