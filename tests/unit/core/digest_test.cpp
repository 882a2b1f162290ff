#include "egt/core/digest.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace egt {
namespace {

using Words = std::vector<std::uint32_t>;

Words random_words(std::size_t count) {
  std::mt19937 random(3);
  Words words(count);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  return words;
}

TEST(Digest, OfOneWordGivesItBack) {
  for (const std::uint32_t word : random_words(1000)) {
    Digest digest;
    add_to_digest(digest.a, digest.b, 0, word);
    EXPECT_EQ(only_word(digest), word);
    add_to_digest(digest.a, digest.b, 1, word);
    EXPECT_EQ(only_word(digest), std::nullopt);
  }
  EXPECT_EQ(only_word({}), std::nullopt);
}

Digest digest_in_order(const Words& words, const std::vector<std::size_t>& order) {
  Digest digest;
  for (const std::size_t i : order) add_to_digest(digest.a, digest.b, i, words[i]);
  return digest;
}

std::vector<std::size_t> ascending(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

Digest digest_of(const Words& words) {
  return digest_in_order(words, ascending(words.size()));
}

Digest digest_of_one(std::uint64_t index, std::uint32_t word) {
  Digest digest;
  add_to_digest(digest.a, digest.b, index, word);
  return digest;
}

TEST(Digest, DoesNotDependOnTheOrderOfSummation) {
  const Words words = random_words(1000);
  std::vector<std::size_t> order = ascending(words.size());
  const Digest expected = digest_in_order(words, order);
  std::mt19937 random(4);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    ASSERT_EQ(digest_in_order(words, order), expected);
  }
}

TEST(Digest, PartsAddUp) {
  const Words words = random_words(100);
  Digest sum;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Digest part = digest_of_one(i, words[i]);
    sum.a += part.a;
    sum.b += part.b;
  }
  EXPECT_EQ(sum, digest_of(words));
}

TEST(Digest, EveryFlippedBitChangesIt) {
  Words words = random_words(256);
  const Digest clean = digest_of(words);
  for (std::uint32_t& word : words)
    for (int bit = 0; bit < 32; ++bit) {
      word ^= 1u << bit;
      const Digest flipped = digest_of(words);
      ASSERT_NE(flipped.a, clean.a);
      ASSERT_NE(flipped.b, clean.b);
      word ^= 1u << bit;
    }
}

TEST(Digest, TheSameBitFlippedInAnyTwoWordsChangesIt) {
  Words words = random_words(128);
  const Digest clean = digest_of(words);
  for (std::size_t i = 0; i < words.size(); ++i)
    for (std::size_t j = i + 1; j < words.size(); ++j) {
      words[i] ^= 1u << 31;
      words[j] ^= 1u << 31;
      ASSERT_NE(digest_of(words), clean) << i << " and " << j;
      words[i] ^= 1u << 31;
      words[j] ^= 1u << 31;
    }
}

TEST(Digest, SwappedWordsChangeIt) {
  Words words = random_words(128);
  const Digest clean = digest_of(words);
  for (std::size_t i = 0; i < words.size(); ++i)
    for (std::size_t j = i + 1; j < words.size(); ++j) {
      std::swap(words[i], words[j]);
      ASSERT_NE(digest_of(words), clean) << i << " and " << j;
      std::swap(words[i], words[j]);
    }
}

TEST(Digest, ZerosAndTheirNumberCount) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (std::size_t count = 0; count < 1000; ++count) {
    const Digest digest = digest_of(Words(count, 0));
    EXPECT_TRUE(seen.emplace(digest.a, digest.b).second) << count << " zeros";
  }
}

TEST(Digest, BothSumsUseAll64Bits) {
  Digest set, clear;
  for (std::uint64_t i = 0; i < 256; ++i) {
    const Digest one = digest_of_one(i, 1);
    set.a |= one.a;
    set.b |= one.b;
    clear.a |= ~one.a;
    clear.b |= ~one.b;
  }
  EXPECT_EQ(set, (Digest{~0ull, ~0ull}));
  EXPECT_EQ(clear, (Digest{~0ull, ~0ull}));
}

TEST(Digest, PlacesBeyond32BitsCount) {
  for (const std::uint64_t index : {0ull, 1ull, 77ull}) {
    EXPECT_NE(digest_of_one(index, 5), digest_of_one(index + (1ull << 32), 5));
    EXPECT_NE(digest_of_one(index, 5), digest_of_one(index + (1ull << 33), 5));
  }
}

TEST(Digest, IsShownAs32HexadecimalDigits) {
  EXPECT_EQ(to_string(Digest{0x0123456789ABCDEFull, 0x1}), "0123456789abcdef0000000000000001");
  EXPECT_EQ(to_string(Digest{}), "00000000000000000000000000000000");
}

TEST(Digest, IsReadBackFromItsDigits) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 1000; ++i) {
    const Digest digest{random() >> random() % 64, random() >> random() % 64};
    EXPECT_EQ(parse_digest(to_string(digest)), digest);
  }
  EXPECT_EQ(parse_digest("0123456789ABCDEFfedcba9876543210"),
            (Digest{0x0123456789ABCDEFull, 0xFEDCBA9876543210ull}));
}

TEST(Digest, AnythingBut32HexadecimalDigitsIsNone) {
  const std::string good(32, 'a');
  EXPECT_FALSE(parse_digest(""));
  EXPECT_FALSE(parse_digest(good.substr(1)));
  EXPECT_FALSE(parse_digest(good + "a"));
  for (std::size_t place = 0; place < good.size(); ++place)
    for (const char c : {'g', ' ', '-', '+', 'x', '.', '\0', '/', ':', '@', 'G', '`'}) {
      std::string damaged = good;
      damaged[place] = c;
      EXPECT_FALSE(parse_digest(damaged)) << damaged;
    }
  EXPECT_FALSE(parse_digest("0x" + good.substr(2)));
}

TEST(Digest, OfASealedTextShowsEachChangedBitAndAnotherLength) {
  for (const std::string text : {"", "a", "two words and a number: 17"}) {
    const std::string good = sealed(text);
    EXPECT_EQ(unsealed(good).value(), text);
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
      std::string damaged = good;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      EXPECT_EQ(unsealed(damaged).status().code(), StatusCode::aborted) << bit;
    }
    EXPECT_FALSE(unsealed(good + "x").ok());
    EXPECT_FALSE(unsealed(good.substr(1)).ok());
  }
}

}  // namespace
}  // namespace egt
