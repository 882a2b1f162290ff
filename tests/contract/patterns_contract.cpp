#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

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
                                {PatternKind::modulo_20, 7, 23}};

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

/// Bits that are wrong, by index.
struct WrongBits {
  std::uint64_t index;
  std::uint32_t mask;
};

/// The report must tell exactly these flips; its samples any `max_samples` of them, each once.
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

/// Every change in its turn.
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
  // Everything is wrong: no count may wrap or stop.
  EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
  EXPECT_OK(device().verify(view, {PatternKind::random_inverse, 0, 21}, report.as<Mismatches>(), stream()));
  EXPECT_EQ(download_value<Mismatches>(report.data()).count, count);
}

TEST_P(DeviceContract, VerifyAndFillReportsTheOldAndLeavesTheNext) {
  // One of each form that a loop over words has, in all pairs.
  constexpr Pattern forms[] = {{PatternKind::finite_inverse, 0, 31},
                               {PatternKind::contribution_sum, 3, 32},
                               {PatternKind::walking_ones, 3, 33},
                               {PatternKind::modulo_20, 19, 34}};
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
    for (const Mismatches::Sample& sample : found.sample)  // those that were met first
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
  finish();
}

TEST_P(DeviceContract, FlipChangesItsWordsAndNoOther) {
  constexpr Flip flips[] = {
      {.first = 5, .mask = 1u << 30},                                             // one bit
      {.first = 7, .count = 0, .mask = all},                                      // nothing
      {.first = 9, .keep = none, .mask = 0x7FC0'0000u},                           // a NaN
      {.first = 3, .count = 4, .stride = 2, .mask = 0x8000'0001u},                // several bits and words
      {.first = 90, .count = 30, .stride = 7, .mask = 0x10u},                     // over the end
      {.first = many + 11, .count = 3, .stride = many + 2, .mask = 0x20u},        // all of it beyond the end
      {.first = 2, .count = 2, .stride = 0, .mask = 0xFFu},                       // twice: as it was
      {.first = 2, .count = 3, .stride = 0, .keep = 0xFFFF'FF00u, .mask = 0x5u},  // thrice: as once
      {.first = 2, .count = 4, .stride = 0, .keep = 0xFFFF'FF00u, .mask = 0x105u},
      {.first = 1, .count = 250'000, .stride = 3, .keep = 0xFFFF'0FFFu, .mask = 0x0301'5011u},  // in turns
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
