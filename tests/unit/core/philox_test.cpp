#include "egt/core/math/philox.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace egt {
namespace {

using testing::ElementsAre;

/// The known-answer vectors of Random123 (kat_vectors, philox4x32, 10 rounds).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_THAT(philox4x32_10(0, 0, 0).w, ElementsAre(0x6627E8D5u, 0xE169C58Du, 0xBC57AC4Cu, 0x9B00DBD8u));
  constexpr std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_THAT(philox4x32_10(ones, ones, ones).w,
              ElementsAre(0x408F276Du, 0x41C83B0Eu, 0xA20BC7C6u, 0x6D5451FDu));
  EXPECT_THAT(philox4x32_10(0x85A308D3243F6A88ull, 0x0370734413198A2Eull, 0x299F31D0A4093822ull).w,
              ElementsAre(0xD16CFE09u, 0x94FDCCEBu, 0x5001E420u, 0x24126EA1u));
}

TEST(SignedUnit, CoversItsRangeAndNoMore) {
  EXPECT_EQ(signed_unit(0), -1.0f);
  EXPECT_EQ(signed_unit(0x80000000u), 0.0f);
  EXPECT_LT(signed_unit(~0u), 1.0f);
  EXPECT_EQ(signed_unit(~0u), 1.0f - 0x1p-23f);
  EXPECT_EQ(signed_unit(0xFFu), signed_unit(0)) << "the lower 8 bits are left out";
}

TEST(SignedUnit, OfPhiloxIsUniform) {
  constexpr int counters = 100'000, numbers = 4 * counters;
  double sum = 0, squares = 0;
  for (int i = 0; i < counters; ++i)
    for (const std::uint32_t word : philox4x32_10(static_cast<std::uint64_t>(i), 3, 42).w) {
      const double u = signed_unit(word);
      sum += u;
      squares += u * u;
    }
  const double mean_error = std::sqrt(1.0 / 3 / numbers);
  EXPECT_NEAR(sum / numbers, 0, 5 * mean_error);
  EXPECT_NEAR(squares / numbers, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / numbers));
}

}  // namespace
}  // namespace egt
