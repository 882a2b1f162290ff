#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "device_contract.hpp"

namespace egt::contract {
namespace {

constexpr std::uint64_t sizes[] = {1, 3, 4, 1023, 70001, (std::uint64_t{1} << 21) + 7};

constexpr Pattern patterns[] = {{PatternKind::random, 0, 11},       {PatternKind::random_inverse, 0, 12},
                                {PatternKind::finite, 0, 13},       {PatternKind::finite_inverse, 0, 14},
                                {PatternKind::contribution, 3, 15}, {PatternKind::contribution_sum, 4, 16},
                                {PatternKind::address, 0, 17},      {PatternKind::address_inverse, 0, 18},
                                {PatternKind::walking_ones, 5, 19}, {PatternKind::walking_zeros, 31, 20},
                                {PatternKind::checkerboard, 1, 21}, {PatternKind::solid, ~0u, 22},
                                {PatternKind::modulo_20, 7, 23},    {PatternKind::operands, 7 << 8, 24}};

std::vector<std::uint32_t> words_of(const Pattern& pattern, std::uint64_t count) {
  const PatternFunction function(pattern);
  std::vector<std::uint32_t> words(count);
  for (std::uint64_t i = 0; i < count; ++i) words[i] = function(i);
  return words;
}

void expect_clean(const Mismatches& report) {
  EXPECT_EQ(report.count, 0u);
  EXPECT_EQ(report.first_index, ~std::uint64_t{0});
  EXPECT_EQ(report.samples, 0u);
  EXPECT_EQ(report.xor_or, 0u);
  EXPECT_EQ(report.xor_and, ~std::uint32_t{0});
}

/// Wrong bits by word index.
struct WrongBits {
  std::uint64_t index;
  std::uint32_t mask;
};

/// The report must contain exactly these flips, and as samples any `max_samples` distinct ones of them.
void expect_flips(const Mismatches& report, const Pattern& pattern, const std::vector<WrongBits>& flips) {
  std::uint32_t any = 0, all = ~0u;
  for (const WrongBits& flip : flips) any |= flip.mask, all &= flip.mask;
  EXPECT_EQ(report.count, flips.size());
  EXPECT_EQ(report.first_index, flips.front().index);
  EXPECT_EQ(report.xor_or, any);
  EXPECT_EQ(report.xor_and, all);
  const auto samples = std::min<std::uint64_t>(flips.size(), Mismatches::max_samples);
  EXPECT_GE(report.samples, samples);
  const PatternFunction function(pattern);
  std::set<std::uint64_t> seen;
  for (std::uint64_t s = 0; s < samples; ++s) {
    const Mismatches::Sample& sample = report.sample[s];
    const auto flip =
        std::find_if(flips.begin(), flips.end(), [&](const WrongBits& f) { return f.index == sample.index; });
    ASSERT_NE(flip, flips.end()) << "sample of " << sample.index;
    EXPECT_EQ(sample.expected, function(sample.index));
    EXPECT_EQ(sample.actual, function(sample.index) ^ flip->mask);
    EXPECT_TRUE(seen.insert(sample.index).second);
  }
}

constexpr std::uint64_t many = 100'003;

std::vector<std::uint32_t> counted_words(std::uint64_t count) {
  std::vector<std::uint32_t> words(count);
  std::iota(words.begin(), words.end(), 0x1234'0000u);
  return words;
}

/// Applies the changes in order.
void apply(const Flip& flip, std::vector<std::uint32_t>& words) {
  for (std::uint64_t i = 0; i < flip.count; ++i) {
    std::uint32_t& word = words[(flip.first + i * flip.stride) % words.size()];
    word = (word & flip.keep) ^ flip.mask;
  }
}

std::string name_of(const Flip& flip, std::uint64_t words) {
  return fmt::format("{} of {} words from {} by {}, keep {:08x}, mask {:08x}", flip.count, words, flip.first,
                     flip.stride, flip.keep, flip.mask);
}

constexpr std::uint32_t all = ~0u, none = 0;

}  // namespace

TEST_P(DeviceContract, FillWritesThePatternAndNothingElse) {
  for (const Pattern& pattern : patterns)
    for (const std::uint64_t count : sizes)
      for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}}) {
        constexpr std::uint32_t sentinel = 0xDEADBEEF;
        std::vector<std::uint32_t> expected(count + offset + 1, sentinel);
        const Buffer buffer = upload_values(expected);
        EXPECT_OK(device().fill({buffer.as<std::uint32_t>() + offset, count}, pattern, stream()));
        const std::vector<std::uint32_t> words = words_of(pattern, count);
        std::copy(words.begin(), words.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset));
        EXPECT_TRUE(download_values<std::uint32_t>(buffer.data(), expected.size()) == expected)
            << to_string(pattern.kind) << " " << count;
      }
}

TEST_P(DeviceContract, VerifyFindsEveryFlippedBitAndNoOther) {
  const Buffer report = allocate(sizeof(Mismatches));
  for (const Pattern& pattern : patterns)
    for (const std::uint64_t count : sizes) {
      std::vector<std::uint32_t> words = words_of(pattern, count);
      const std::vector<std::vector<WrongBits>> cases = {
          {}, {{0, 1u}}, {{count - 1, 0x80000000u}}, {{count / 2, 0x00F0u}}};
      for (const std::vector<WrongBits>& flips : cases) {
        for (const WrongBits& flip : flips) words[flip.index] ^= flip.mask;
        const Buffer buffer = upload_values(words);
        for (const WrongBits& flip : flips) words[flip.index] ^= flip.mask;
        EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
        EXPECT_OK(
            device().verify({buffer.as<std::uint32_t>(), count}, pattern, report.as<Mismatches>(), stream()));
        const Mismatches found = download_value<Mismatches>(report.data());
        if (flips.empty())
          expect_clean(found);
        else
          expect_flips(found, pattern, flips);
      }
    }
}

TEST_P(DeviceContract, VerifyCountsManyAndAddsUpOverCalls) {
  const Pattern pattern{PatternKind::random, 0, 21};
  constexpr std::uint64_t count = (std::uint64_t{1} << 21) + 7;
  std::vector<WrongBits> flips;
  for (std::uint64_t i = 5; i < count; i += 65537) flips.push_back({i, 0x00010001u << (i % 8)});
  std::vector<std::uint32_t> words = words_of(pattern, count);
  for (const WrongBits& flip : flips) words[flip.index] ^= flip.mask;
  const Buffer buffer = upload_values(words), report = allocate(sizeof(Mismatches));
  const WordsView view{buffer.as<std::uint32_t>(), count};
  EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
  EXPECT_OK(device().verify(view, pattern, report.as<Mismatches>(), stream()));
  const Mismatches once = download_value<Mismatches>(report.data());
  expect_flips(once, pattern, flips);
  EXPECT_OK(device().verify(view, pattern, report.as<Mismatches>(), stream()));
  const Mismatches twice = download_value<Mismatches>(report.data());
  EXPECT_EQ(twice.count, 2 * once.count);
  EXPECT_EQ(twice.first_index, once.first_index);
  // Every word is wrong: no counter may wrap or saturate.
  EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
  EXPECT_OK(device().verify(view, {PatternKind::random_inverse, 0, 21}, report.as<Mismatches>(), stream()));
  EXPECT_EQ(download_value<Mismatches>(report.data()).count, count);
}

/// Two wrong words that are far apart.
TEST_P(DeviceContract, ASampleNamesItsReader) {
  constexpr std::uint64_t count = std::uint64_t{1} << 22;
  constexpr Pattern pattern{PatternKind::random, 0, 22};
  const Buffer buffer = allocate(count * sizeof(std::uint32_t)), report = allocate(sizeof(Mismatches)),
               answers = upload_values(std::vector<VoterAnswers>(max_unit_voters));
  const WordsView words{buffer.as<std::uint32_t>(), count};
  for (int calls = 0; calls < 5; ++calls)
    EXPECT_OK(device().vote({.seed = 1, .iterations = 1, .answers = answers.as<VoterAnswers>()}, stream()));
  const auto voters = download_values<VoterAnswers>(answers.data(), max_unit_voters);
  EXPECT_OK(device().fill(words, pattern, stream()));
  EXPECT_OK(device().flip(words, {.first = 5, .count = 2, .stride = count / 2, .mask = 1}, stream()));
  EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
  EXPECT_OK(device().verify(words, pattern, report.as<Mismatches>(), stream()));
  const Mismatches found = download_value<Mismatches>(report.data());
  expect_flips(found, pattern, {{5, 1}, {5 + count / 2, 1}});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(voters.at(found.sample[i].reader).has_answered()) << i;
  EXPECT_NE(found.sample[0].block, found.sample[1].block);
}

/// The memory is right, and the sample shows the wrong pattern. Another word of the same vector is wrong.
TEST_P(DeviceContract, AMiscomputedPatternIsOneMismatch) {
  constexpr std::uint64_t count = std::uint64_t{1} << 21, place = (1 << 20) + 2;
  const Buffer buffer = allocate(count * sizeof(std::uint32_t)), report = allocate(sizeof(Mismatches));
  const WordsView words{buffer.as<std::uint32_t>(), count};
  for (const Pattern& pattern :
       {Pattern{PatternKind::random, 0, 24}, {PatternKind::operands, 2 << 8 | 6, 25}}) {
    EXPECT_OK(device().fill(words, pattern, stream()));
    EXPECT_OK(device().flip(words, {.first = place - 1, .mask = 2}, stream()));
    EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
    EXPECT_OK(
        device().verify(words, pattern, report.as<Mismatches>(), stream(), {.first = place, .mask = 0x80}));
    const Mismatches found = download_value<Mismatches>(report.data());
    EXPECT_EQ(found.count, 2u);
    ASSERT_EQ(found.samples, 2u);
    for (int i = 0; i < 2; ++i) {
      const Mismatches::Sample& one = found.sample[i];
      const std::uint32_t right = PatternFunction(pattern)(one.index);
      EXPECT_EQ(one.expected, one.index == place ? right ^ 0x80 : right);
      EXPECT_EQ(one.actual, one.index == place ? right : right ^ 2);
    }
  }
}

TEST_P(DeviceContract, VerifyAndFillReportsTheOldAndLeavesTheNext) {
  // One pattern of each form that a loop over words has, in all pairs.
  constexpr Pattern forms[] = {{PatternKind::finite_inverse, 0, 31},
                               {PatternKind::contribution_sum, 3, 32},
                               {PatternKind::walking_ones, 3, 33},
                               {PatternKind::modulo_20, 19, 34},
                               {PatternKind::operands, 2 << 8 | 6, 35}};
  const Buffer report = allocate(sizeof(Mismatches));
  for (const Pattern& expected : forms)
    for (const Pattern& next : forms)
      for (const Direction direction : {Direction::ascending, Direction::descending})
        for (const std::uint64_t count : {1, 3, 6, 1023, 70001})
          for (const std::uint64_t offset : {0, 1}) {
            constexpr std::uint32_t sentinel = 0xDEADBEEF;
            std::vector<std::uint32_t> words = words_of(expected, count);
            words[count / 3] ^= 0x400u;
            words.insert(words.begin(), offset, sentinel);
            words.push_back(sentinel);
            const Buffer buffer = upload_values(words);
            EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
            EXPECT_OK(device().verify_and_fill({buffer.as<std::uint32_t>() + offset, count}, expected, next,
                                               direction, report.as<Mismatches>(), stream()));
            expect_flips(download_value<Mismatches>(report.data()), expected, {{count / 3, 0x400u}});
            words = words_of(next, count);
            words.insert(words.begin(), offset, sentinel);
            words.push_back(sentinel);
            EXPECT_TRUE(download_values<std::uint32_t>(buffer.data(), words.size()) == words)
                << to_string(expected.kind) << ", then " << to_string(next.kind) << ", " << count;
          }
}

TEST_P(DeviceContract, VerifyAndFillGoesFromOneEndToTheOther) {
  constexpr std::uint64_t count = std::uint64_t{1} << 24;
  constexpr Pattern old{PatternKind::solid, 0, 0}, next{PatternKind::address, 0, 0};
  const Buffer buffer = allocate(count * sizeof(std::uint32_t)), report = allocate(sizeof(Mismatches));
  const WordsView view{buffer.as<std::uint32_t>(), count};
  for (const Direction direction : {Direction::ascending, Direction::descending}) {
    EXPECT_OK(device().fill(view, old, stream()));
    EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
    EXPECT_OK(device().verify_and_fill(view, {PatternKind::solid, ~0u, 0}, next, direction,
                                       report.as<Mismatches>(), stream()));
    const Mismatches found = download_value<Mismatches>(report.data());
    EXPECT_EQ(found.count, count);
    for (const Mismatches::Sample& sample : found.sample)  // the first ones in any order
      EXPECT_EQ(sample.index < count / 2, direction == Direction::ascending) << sample.index;
    EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
    EXPECT_OK(device().verify(view, next, report.as<Mismatches>(), stream()));
    expect_clean(download_value<Mismatches>(report.data()));
  }
}

TEST_P(DeviceContract, PatternsOfNoWordsDoNothing) {
  const Buffer report = allocate(sizeof(Mismatches));
  const Pattern pattern{};
  EXPECT_OK(device().fill({}, pattern, stream()));
  EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
  EXPECT_OK(device().verify({}, pattern, report.as<Mismatches>(), stream()));
  EXPECT_OK(device().verify_and_fill({}, pattern, pattern, Direction::ascending, report.as<Mismatches>(),
                                     stream()));
  expect_clean(download_value<Mismatches>(report.data()));
}

/// Sums in any summation order pass. With two terms only one result is correct.
TEST_P(DeviceContract, VerifySumFindsWhatIsNoSumOfItsTerms) {
  const Buffer report = allocate(sizeof(Mismatches));
  constexpr std::size_t elements = 100'003;
  const auto verify = [&]<typename T>(const std::vector<T>& sum, const std::vector<T>& terms,
                                      ElementType type) {
    const Buffer own = upload_values(sum), all = upload_values(terms);
    const VectorView view{own.data(), type, static_cast<std::int64_t>(sum.size())};
    EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
    EXPECT_OK(device().verify_sum(view, all.data(), static_cast<int>(terms.size() / sum.size()),
                                  report.as<Mismatches>(), stream()));
    return download_value<Mismatches>(report.data());
  };
  const auto check = [&]<typename T>(T, ElementType type) {
    for (const int count : {1, 2, 3, 8}) {
      std::mt19937 random(7);
      std::vector<T> terms, sum;
      for (std::size_t i = 0; i < elements * static_cast<std::size_t>(count); ++i) {
        const float sign = random() % 2 ? 1.0f : -1.0f;
        terms.push_back(Element<T>::store(
            i % 97 == 0 ? 0.0f
                        : sign * std::ldexp(1.0f + static_cast<float>(random() % 1024) / 1024,
                                            static_cast<int>(random() % 30) - 15)));
      }
      for (std::size_t i = 0; i < elements; ++i) {
        const std::size_t first = i % static_cast<std::size_t>(count);
        T total = terms[first * elements + i];
        for (std::size_t k = 1; k < static_cast<std::size_t>(count); ++k)
          total = math::add(total, terms[(first + k) % static_cast<std::size_t>(count) * elements + i]);
        sum.push_back(total);
      }
      expect_clean(verify(sum, terms, type));
      // With one or two terms every bit counts; with more, only bits above the rounding errors.
      for (const int bit : {0, 3, 22, 30}) {
        const int most = type == ElementType::bf16 ? bit / 2 : bit;
        if (count > 2 && bit < 22) continue;
        std::vector<T> wrong = sum;
        const std::size_t at = elements / 2 + static_cast<std::size_t>(bit);
        const auto flipped = egt::bits_of(wrong[at]) ^ 1u << most;
        std::memcpy(&wrong[at], &flipped, sizeof(T));
        if (count > 2 && bit == 22) wrong[at] = Element<T>::store(2 * Element<T>::load(sum[at]) + 65536.0f);
        const Mismatches found = verify(wrong, terms, type);
        EXPECT_EQ(found.count, 1u) << count << ' ' << bit;
        EXPECT_EQ(found.first_index, at);
        EXPECT_EQ(found.sample[0].actual, egt::bits_of(wrong[at]));
        if (count <= 2) {
          EXPECT_EQ(found.sample[0].expected, egt::bits_of(sum[at]));
        }
      }
    }
  };
  check(float{}, ElementType::f32);
  check(Bfloat16{}, ElementType::bf16);
}

TEST_P(DeviceContract, VerifySumLooksAtFinitenessFirst) {
  const Buffer report = allocate(sizeof(Mismatches));
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float big = 3e38f, tiny = 1e-39f;
  struct Case {
    float a, b, sum;
    bool is_right;
  };
  const Case cases[] = {{1, inf, inf, true}, {1, inf, 7, false},     {1, nan, nan, true},
                        {1, nan, 1, false},  {inf, -inf, nan, true}, {big, big, inf, true},
                        {1, 2, inf, false},  {1, 2, nan, false},     {big, -big, 0, true},
                        {0, -0.0f, 0, true}, {tiny, 0, 0, true},     {1, -1, 1, false}};
  for (const Case& one : cases) {
    const Buffer sum = upload_values(std::vector{one.sum}), terms = upload_values(std::vector{one.a, one.b});
    EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
    EXPECT_OK(device().verify_sum({sum.data(), ElementType::f32, 1}, terms.data(), 2, report.as<Mismatches>(),
                                  stream()));
    EXPECT_EQ(download_value<Mismatches>(report.data()).count, one.is_right ? 0u : 1u)
        << one.a << " + " << one.b << " = " << one.sum;
  }
}

TEST_P(DeviceContract, PatternsRefuseMissingMemory) {
  const Buffer memory = allocate(4096);
  auto* const report = memory.as<Mismatches>();
  const WordsView some{memory.as<std::uint32_t>(), 8}, none{nullptr, 8};
  EXPECT_FAILS(invalid_argument, device().fill(none, {}, stream()));
  EXPECT_FAILS(invalid_argument, device().reset(nullptr, stream()));
  EXPECT_FAILS(invalid_argument, device().verify(none, {}, report, stream()));
  EXPECT_FAILS(invalid_argument, device().verify(some, {}, nullptr, stream()));
  EXPECT_FAILS(invalid_argument,
               device().verify_and_fill(none, {}, {}, Direction::ascending, report, stream()));
  EXPECT_FAILS(invalid_argument,
               device().verify_and_fill(some, {}, {}, Direction::ascending, nullptr, stream()));
  const VectorView sum{memory.data(), ElementType::f32, 8};
  EXPECT_FAILS(invalid_argument, device().verify_sum(sum, nullptr, 2, report, stream()));
  EXPECT_FAILS(invalid_argument, device().verify_sum(sum, memory.data(), 0, report, stream()));
  EXPECT_FAILS(invalid_argument, device().verify_sum(sum, memory.data(), 2, nullptr, stream()));
  EXPECT_FAILS(invalid_argument,
               device().verify_sum({memory.data(), ElementType::f16, 8}, memory.data(), 2, report, stream()));
  finish();
}

TEST_P(DeviceContract, FlipChangesItsWordsAndNoOther) {
  constexpr Flip flips[] = {
      {.first = 5, .mask = 1u << 30},                                             // one bit
      {.first = 7, .count = 0, .mask = all},                                      // nothing
      {.first = 9, .keep = none, .mask = 0x7FC0'0000u},                           // a NaN
      {.first = 3, .count = 4, .stride = 2, .mask = 0x8000'0001u},                // several bits and words
      {.first = 90, .count = 30, .stride = 7, .mask = 0x10u},                     // past the end
      {.first = many + 11, .count = 3, .stride = many + 2, .mask = 0x20u},        // entirely past the end
      {.first = 2, .count = 2, .stride = 0, .mask = 0xFFu},                       // twice: unchanged
      {.first = 2, .count = 3, .stride = 0, .keep = 0xFFFF'FF00u, .mask = 0x5u},  // three times: same as once
      {.first = 2, .count = 4, .stride = 0, .keep = 0xFFFF'FF00u, .mask = 0x105u},
      {.first = 1, .count = 250'000, .stride = 3, .keep = 0xFFFF'0FFFu, .mask = 0x0301'5011u},  // alternating
      {.first = 6, .count = 250'001, .stride = 10, .mask = 0x4000u}};
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{100}, many})
    for (const Flip& flip : flips) {
      std::vector<std::uint32_t> expected = counted_words(count);
      std::vector<std::uint32_t> around = expected;
      around.insert(around.begin(), 0xDEADBEEFu);
      around.push_back(0xDEADBEEFu);
      const Buffer buffer = upload_values(around);
      EXPECT_OK(device().flip({buffer.as<std::uint32_t>() + 1, count}, flip, stream()));
      apply(flip, expected);
      std::copy(expected.begin(), expected.end(), around.begin() + 1);
      EXPECT_TRUE(download_values<std::uint32_t>(buffer.data(), around.size()) == around)
          << name_of(flip, count);
    }
}

TEST_P(DeviceContract, FlipOfEveryWordIsFoundByVerifyAndUndoneByItself) {
  constexpr Pattern pattern{PatternKind::finite, 0, 5};
  constexpr Flip flip{.first = 1, .count = many, .stride = 1, .mask = 0x0100'0000u};
  const Buffer buffer = allocate(many * sizeof(std::uint32_t)), report = allocate(sizeof(Mismatches));
  const WordsView words{buffer.as<std::uint32_t>(), many};
  EXPECT_OK(device().fill(words, pattern, stream()));
  for (const std::uint64_t wrong : {many, std::uint64_t{0}}) {
    EXPECT_OK(device().flip(words, flip, stream()));
    EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
    EXPECT_OK(device().verify(words, pattern, report.as<Mismatches>(), stream()));
    const Mismatches found = download_value<Mismatches>(report.data());
    EXPECT_EQ(found.count, wrong);
    EXPECT_EQ(found.xor_or, wrong ? flip.mask : 0u);
  }
}

TEST_P(DeviceContract, FlipRefusesMissingWords) {
  EXPECT_OK(device().flip({}, {.count = 0}, stream()));
  EXPECT_FAILS(invalid_argument, device().flip({}, {.count = 1}, stream()));
  EXPECT_FAILS(invalid_argument, device().flip({nullptr, 8}, {}, stream()));
  finish();
}

}  // namespace egt::contract
