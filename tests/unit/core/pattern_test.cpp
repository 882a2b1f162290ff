#include "egt/core/pattern.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <set>

namespace egt {
namespace {

constexpr std::uint64_t words = 20'000;
constexpr std::uint64_t beyond_32_bits = 1ull << 33;

PatternFunction pattern(PatternKind kind, std::uint64_t seed = 1, std::uint32_t parameter = 0) {
  return PatternFunction(Pattern{kind, parameter, seed});
}

TEST(Pattern, InversesAreComplements) {
  for (std::uint64_t i = 0; i < words; ++i) {
    const std::uint64_t index = i + beyond_32_bits - words / 2;
    ASSERT_EQ(pattern(PatternKind::random_inverse)(index), ~pattern(PatternKind::random)(index));
    ASSERT_EQ(pattern(PatternKind::finite_inverse)(index), ~pattern(PatternKind::finite)(index));
  }
}

TEST(RegularPattern, IsOfItsIndexAlsoBeyond32Bits) {
  for (std::uint64_t i = 0; i < words; ++i) {
    const std::uint64_t index = i + beyond_32_bits - words / 2;
    for (const std::uint32_t p : {0u, 1u, 7u, 31u, 32u, 45u}) {
      const std::uint32_t one = 1u << (index + p) % 32;
      ASSERT_EQ(pattern(PatternKind::walking_ones, 1, p)(index), one);
      ASSERT_EQ(pattern(PatternKind::walking_zeros, 1, p)(index), ~one);
      ASSERT_EQ(pattern(PatternKind::checkerboard, 1, p)(index),
                (index + p) % 2 == 0 ? 0xAAAAAAAAu : 0x55555555u);
      ASSERT_EQ(pattern(PatternKind::solid, 1, p)(index), p);
    }
    ASSERT_EQ(pattern(PatternKind::address_inverse)(index), ~pattern(PatternKind::address)(index));
  }
}

TEST(RegularPattern, Modulo20IsTheValueAtOnePlaceOfTwentyAndItsComplementElsewhere) {
  constexpr std::uint64_t seed = 0xABCD'0123'89AB'4567;
  for (const std::uint64_t base : {0ull, (1ull << 32) - 50, (1ull << 33) - 50, 5ull << 32})
    for (std::uint32_t p = 0; p < 22; ++p)
      for (std::uint64_t i = base; i < base + 100; ++i)
        ASSERT_EQ(pattern(PatternKind::modulo_20, seed, p)(i), i % 20 == p ? 0x89AB4567u : ~0x89AB4567u)
            << "place " << p << ", index " << i;
}

TEST(RegularPattern, AddressWordsAreAllDifferent) {
  const PatternFunction address = pattern(PatternKind::address);
  for (const std::uint64_t base : {std::uint64_t{0}, beyond_32_bits}) {
    std::set<std::uint32_t> seen;
    for (std::uint64_t i = 0; i < words; ++i) seen.insert(address(base + i * 214'748));  // over all of 2^32
    for (int bit = 0; bit < 32; ++bit) {
      const std::uint64_t other = std::uint64_t{1} << bit;
      ASSERT_NE(address(base + other), address(base)) << "an address line that is stuck must show";
    }
    EXPECT_EQ(seen.size(), words);
  }
  EXPECT_NE(address(5), address(5 + beyond_32_bits));
}

TEST(Pattern, FourAtOnceAreTheFourOneByOne) {
  for (std::uint32_t kind = 0; kind <= static_cast<std::uint32_t>(PatternKind::modulo_20); ++kind)
    for (const std::uint32_t parameter : {0u, 3u, 19u, 20u, 31u}) {
      constexpr std::uint32_t matrices = 4 << 8;  // of 16 words, for `operands`
      const PatternFunction words = pattern(
          static_cast<PatternKind>(kind), 77,
          kind == static_cast<std::uint32_t>(PatternKind::operands) ? parameter | matrices : parameter);
      if (words.is_contribution()) continue;
      for (const std::uint64_t base : {0ull, (1ull << 32) - 80, (1ull << 33) + 4})
        for (std::uint64_t i = base; i < base + 80; i += 4) {
          const auto high = static_cast<std::uint32_t>(i >> 32), low = static_cast<std::uint32_t>(i);
          const FourWords four = words.is_regular()    ? words.regular_block(high).four(low)
                                 : words.is_operands() ? words.operand_block(high).four(low)
                                                       : words.block(high).four(low);
          for (std::uint64_t k = 0; k < 4; ++k)
            ASSERT_EQ(four.word[k], words(i + k)) << to_string(words.pattern.kind) << " at " << i + k;
        }
    }
}

TEST(Pattern, NoTwoWordsOfTheSamePlaceInTheirFourAreEqual) {
  const PatternFunction random = pattern(PatternKind::random, 7);
  for (std::uint64_t place = 0; place < 4; ++place) {
    std::set<std::uint32_t> seen;
    for (std::uint64_t i = 0; i < words; ++i)
      seen.insert(random(i * 4 * 53'687 + place));  // over all of 2^32
    EXPECT_EQ(seen.size(), words) << "an address fault moves whole bursts";
    for (int bit = 2; bit < 32; ++bit)
      ASSERT_NE(random(place + (std::uint64_t{1} << bit)), random(place)) << "an address line that is stuck";
  }
}

/// Expects 2^-7 <= |value| < 2, so that sums of two products lose no term.
void expect_of_weight(float value) {
  ASSERT_GE(std::fabs(value), 0x1p-7f);
  ASSERT_LT(std::fabs(value), 2.0f);
}

TEST(Pattern, FiniteIsAnOperandOfEveryType) {
  const PatternFunction finite = pattern(PatternKind::finite, 99);
  int negative = 0;
  for (std::uint64_t i = 0; i < words; ++i) {
    const std::uint32_t word = finite(i);
    ASSERT_NO_FATAL_FAILURE(expect_of_weight(float_from_bits(word)));
    for (const std::uint32_t half : {word & 0xFFFFu, word >> 16}) {
      const auto bits = static_cast<std::uint16_t>(half);
      ASSERT_NO_FATAL_FAILURE(expect_of_weight(to_float(Bfloat16{bits})));
      ASSERT_GE(std::fabs(to_float(Half{bits})), 1.0f);
      ASSERT_LT(std::fabs(to_float(Half{bits})), 2.0f);
      negative += half >> 15;
    }
    for (int byte = 0; byte < 4; ++byte)
      ASSERT_NE(word >> 8 * byte & 0x7F, 0x7Fu) << "is no number in fp8 e4m3";
    const double wide = std::bit_cast<double>(std::uint64_t{word} << 32 | finite(i + 1));
    ASSERT_TRUE(std::isfinite(wide) && std::fabs(wide) < 1);
  }
  EXPECT_NEAR(negative, words, 1000) << "half of the halves";
}

TEST(Pattern, FiniteAndItsInverseTogetherSetAndClearEveryBit) {
  std::uint32_t set = 0, clear = 0;
  for (PatternKind kind : {PatternKind::finite, PatternKind::finite_inverse})
    for (std::uint64_t i = 0; i < 256; ++i) {
      set |= pattern(kind)(i);
      clear |= ~pattern(kind)(i);
    }
  EXPECT_EQ(set, ~0u);
  EXPECT_EQ(clear, ~0u);
}

TEST(Pattern, RandomBitsAreBalancedAndDependOnSeedAndIndex) {
  const PatternFunction one = pattern(PatternKind::random, 1), two = pattern(PatternKind::random, 2);
  std::uint64_t ones = 0, differing = 0;
  std::set<std::uint32_t> seen;
  for (std::uint64_t i = 0; i < words; ++i) {
    ones += static_cast<std::uint64_t>(std::popcount(one(i)));
    differing += static_cast<std::uint64_t>(std::popcount(one(i) ^ two(i)));
    seen.insert(one(i));
  }
  const double bits = 32.0 * words;
  const double error = 5 * 0.5 / std::sqrt(bits);
  EXPECT_NEAR(static_cast<double>(ones) / bits, 0.5, error);
  EXPECT_NEAR(static_cast<double>(differing) / bits, 0.5, error);
  EXPECT_GT(seen.size(), words - 10) << "equal words would hide a misplaced block";
}

TEST(Pattern, DoesNotRepeatBeyond32BitsOfIndex) {
  const PatternFunction random = pattern(PatternKind::random);
  int equal = 0;
  for (std::uint64_t i = 0; i < words; ++i) equal += random(i) == random(i + (1ull << 32));
  EXPECT_LE(equal, 2);
}

TEST(Contribution, SumsExactlyOverOneTo64Ranks) {
  for (std::uint32_t ranks = 1; ranks <= 64; ++ranks) {
    const PatternFunction expected = pattern(PatternKind::contribution_sum, 5, ranks);
    for (std::uint64_t index = 0; index < 500; ++index) {
      std::int64_t exact = 0;
      float forwards = 0, backwards = 0;
      for (std::uint32_t r = 0; r < ranks; ++r) {
        const float up = float_from_bits(pattern(PatternKind::contribution, 5, r)(index));
        exact += std::llround(up);
        ASSERT_EQ(up, std::round(up)) << "a contribution is an integer";
        forwards += up;
        backwards += float_from_bits(pattern(PatternKind::contribution, 5, ranks - 1 - r)(index));
      }
      const float sum = float_from_bits(expected(index));
      ASSERT_EQ(static_cast<double>(sum), static_cast<double>(exact)) << ranks << " ranks, word " << index;
      ASSERT_EQ(sum, forwards);
      ASSERT_EQ(sum, backwards);
    }
  }
}

TEST(Contribution, SourcesHaveBitsOfTheirOwnThatDoNotCarry) {
  for (std::uint64_t index = 0; index < 1000; ++index) {
    std::uint32_t seen = 0;
    for (std::uint32_t r = 0; r < contribution_fields; ++r) {
      const auto part =
          static_cast<std::uint32_t>(float_from_bits(pattern(PatternKind::contribution, 5, r)(index)));
      ASSERT_EQ(part & ~(0x3Fu << contribution_field_bits * r), 0u);
      seen |= part;
    }
    ASSERT_EQ(seen, contribution_parts(5, index)) << "the sum tells whose part is wrong";
    ASSERT_EQ(pattern(PatternKind::contribution, 5, contribution_fields)(index), 0u);
    ASSERT_EQ(pattern(PatternKind::contribution, 5, ~0u)(index), 0u);
  }
}

TEST(Contribution, TellsRanksAndPlacesApart) {
  int equal_ranks = 0, equal_places = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const PatternFunction rank0 = pattern(PatternKind::contribution, 5, 0),
                          rank1 = pattern(PatternKind::contribution, 5, 1);
    equal_ranks += rank0(i) == rank1(i);
    equal_places += rank0(i) == rank0(i + 1);
  }
  EXPECT_LT(equal_ranks, 30);
  EXPECT_LT(equal_places, 30);
}

TEST(Mismatches, NoneIsTheNeutralElement) {
  const Mismatches none = Mismatches::none();
  EXPECT_EQ(none.count, 0u);
  EXPECT_EQ(none.samples, 0u);
  EXPECT_EQ(none.first_index, ~std::uint64_t{0});
  EXPECT_EQ(none.xor_or, 0u);
  EXPECT_EQ(none.xor_and, ~0u);
}

TEST(PatternKind, HasItsName) {
  EXPECT_EQ(to_string(PatternKind::random), "random");
  EXPECT_EQ(to_string(PatternKind::contribution_sum), "contribution_sum");
  EXPECT_EQ(to_string(PatternKind::address), "address");
  EXPECT_EQ(to_string(PatternKind::checkerboard), "checkerboard");
  EXPECT_EQ(to_string(PatternKind::modulo_20), "modulo_20");
}

}  // namespace
}  // namespace egt
