#include <algorithm>

#include "device_contract.hpp"

namespace egt::contract {
namespace {

Digest reference_digest(const std::vector<std::uint32_t>& words) {
  Digest digest;
  for (std::uint64_t i = 0; i < words.size(); ++i) add_to_digest(digest.a, digest.b, i, words[i]);
  return digest;
}

std::vector<std::uint32_t> random_words(std::uint64_t count) {
  reference::Engine engine(count);
  std::vector<std::uint32_t> words(count);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(engine());
  return words;
}

}  // namespace

TEST_P(DeviceContract, DigestIsTheSumOfItsTerms) {
  for (const std::uint64_t count : {0, 1, 2, 5, 1023, 70001, (1 << 21) + 3}) {
    const std::vector<std::uint32_t> words = random_words(count);
    EXPECT_EQ(digest_of(words), reference_digest(words)) << count;
  }
  EXPECT_EQ(digest_of(std::vector<std::uint32_t>()), Digest{});
}

TEST_P(DeviceContract, DigestSeesAnyFlippedBitAndAnySwap) {
  std::vector<std::uint32_t> words = random_words(97);
  words[10] = words[11] = 0;
  const Digest clean = digest_of(words);
  for (const std::size_t index : {std::size_t{0}, std::size_t{10}, std::size_t{50}, std::size_t{96}})
    for (int bit = 0; bit < 32; ++bit) {
      words[index] ^= 1u << bit;
      const Digest flipped = digest_of(words);
      EXPECT_NE(flipped.a, clean.a) << index << " bit " << bit;
      EXPECT_NE(flipped.b, clean.b) << index << " bit " << bit;
      words[index] ^= 1u << bit;
    }
  for (const std::size_t index : {std::size_t{0}, std::size_t{30}, std::size_t{95}}) {
    std::swap(words[index], words[index + 1]);
    EXPECT_NE(digest_of(words), clean) << index;
    std::swap(words[index], words[index + 1]);
  }
  words.push_back(0);
  EXPECT_NE(digest_of(words), clean) << "one more word of zeros";
}

TEST_P(DeviceContract, SumIsOfAllWords) {
  for (const std::uint64_t count : {0, 1, 5, 1023, (1 << 21) + 3}) {
    const std::vector<std::uint32_t> words = random_words(count);
    const Buffer buffer = upload_values(words), sums = allocate(sizeof(Digest));
    EXPECT_OK(device().sum({buffer.as<std::uint32_t>(), count}, sums.as<Digest>(), stream()));
    std::uint64_t expected = 0;
    for (const std::uint32_t word : words) expected += word;
    EXPECT_EQ(download_value<Digest>(sums.data()), (Digest{expected, 0})) << count;
  }
}

TEST_P(DeviceContract, SineExponentialIsRepeatableAndLeavesTheWords) {
  const Pattern pattern{PatternKind::finite, 0, 41};
  constexpr std::uint64_t count = 70001;
  const Buffer buffer = allocate(count * 4), digests = allocate(4 * sizeof(Digest)),
               report = allocate(sizeof(Mismatches));
  const WordsView words{buffer.as<std::uint32_t>(), count};
  EXPECT_OK(device().fill(words, pattern, stream()));
  EXPECT_OK(device().sine_exponential(words, 5, digests.as<Digest>(), stream()));
  EXPECT_OK(device().sine_exponential(words, 5, digests.as<Digest>() + 1, stream()));
  EXPECT_OK(device().sine_exponential(words, 6, digests.as<Digest>() + 2, stream()));
  EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
  EXPECT_OK(device().verify(words, pattern, report.as<Mismatches>(), stream()));
  EXPECT_EQ(download_value<Mismatches>(report.data()).count, 0u);
  // A flip in the sign or the exponent of one word changes the digest.
  std::vector<std::uint32_t> changed = download_values<std::uint32_t>(buffer.data(), count);
  changed[12345] ^= 0x80000000u;
  upload_bytes(buffer.data(), changed.data(), count * 4);
  EXPECT_OK(device().sine_exponential(words, 5, digests.as<Digest>() + 3, stream()));
  const std::vector<Digest> result = download_values<Digest>(digests.data(), 4);
  EXPECT_EQ(result[0], result[1]);
  EXPECT_NE(result[0], result[2]);
  EXPECT_NE(result[0], result[3]);
}

TEST_P(DeviceContract, SineExponentialIsTheFormula) {
  const Pattern pattern{PatternKind::finite, 0, 43};
  const PatternFunction function(pattern);
  constexpr std::uint64_t count = 3001;
  const Buffer buffer = allocate(count * 4), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().fill({buffer.as<std::uint32_t>(), count}, pattern, stream()));
  // With 0 iterations every result is 0; with more, sinf and expf are the device's own.
  for (const int iterations : {0, 4}) {
    if (iterations > 0 && !is_host()) continue;
    std::vector<std::uint32_t> expected(count);
    for (std::uint64_t i = 0; i < count; ++i)
      expected[i] = float_bits(math::sine_exponential(float_from_bits(function(i)), iterations));
    EXPECT_OK(device().sine_exponential({buffer.as<std::uint32_t>(), count}, iterations, digest.as<Digest>(),
                                        stream()));
    EXPECT_EQ(download_value<Digest>(digest.data()), reference_digest(expected)) << iterations;
  }
}

TEST_P(DeviceContract, DigestsRefuseMissingMemoryAndFewerTurnsThanNone) {
  const Buffer memory = allocate(4096);
  auto* const digest = memory.as<Digest>();
  const WordsView some{memory.as<std::uint32_t>(), 8}, none{nullptr, 8};
  EXPECT_FAILS(invalid_argument, device().digest(none, digest, stream()));
  EXPECT_FAILS(invalid_argument, device().digest(some, nullptr, stream()));
  EXPECT_FAILS(invalid_argument, device().sine_exponential(none, 1, digest, stream()));
  EXPECT_FAILS(invalid_argument, device().sine_exponential(some, 1, nullptr, stream()));
  EXPECT_FAILS(invalid_argument, device().sine_exponential(some, -1, digest, stream()));
  finish();
}

}  // namespace egt::contract
