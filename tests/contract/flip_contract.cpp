#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "device_contract.hpp"

namespace egt::contract {
namespace {

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
