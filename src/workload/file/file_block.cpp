#include "workload/file/file_block.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace egt {
namespace {

/// Words of 512 bytes, the smallest disk write, minus the words of an identity, which may match by chance.
constexpr std::size_t sector_words = 128 - identity_words;
constexpr std::size_t part_words = 64;      ///< more words than identities of one run have in common
constexpr std::size_t few_bits_a_word = 8;  ///< on average; unrelated words differ in 16 bits
constexpr std::size_t tail_at = file_block_words - identity_words;

using IdentityWords = std::array<std::uint32_t, identity_words>;

std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}

std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

std::uint64_t joined(std::uint32_t lower, std::uint32_t upper) {
  return lower | std::uint64_t{upper} << 32;
}

std::uint32_t checksum(const BlockIdentity& identity, BlockEnd end) {
  std::uint64_t sum = end == BlockEnd::head ? 0x9E3779B97F4A7C15ull : 0xC2B2AE3D27D4EB4Full;
  for (const std::uint64_t part : {identity.run, identity.offset, joined(identity.generation, identity.rank),
                                   std::uint64_t{identity.file}})
    sum = mix64(sum ^ part);
  return high(sum);
}

IdentityWords encode(const BlockIdentity& identity, BlockEnd end) {
  return {low(identity.run),   high(identity.run), low(identity.offset), high(identity.offset),
          identity.generation, identity.rank,      identity.file,        checksum(identity, end)};
}

std::size_t place_of(BlockEnd end) {
  return end == BlockEnd::head ? 0 : tail_at;
}

/// Difference between a block and its expected content.
struct Difference {
  std::size_t wrong = 0;  ///< number of words
  std::size_t first = 0;
  std::size_t bits = 0;
  std::uint32_t xor_or = 0;
  std::uint32_t xor_and = ~0u;

  /// True for flipped bits rather than other data.
  bool is_near() const { return wrong < sector_words || bits < few_bits_a_word * wrong || xor_or == xor_and; }
};

Difference compare(const std::uint32_t* block, const FileBlock& expected) {
  Difference found;
  for (std::size_t i = 0; i < file_block_words; ++i) {
    const std::uint32_t mask = block[i] ^ expected[i];
    if (mask == 0) continue;
    if (found.wrong++ == 0) found.first = i;
    found.bits += static_cast<std::size_t>(std::popcount(mask));
    found.xor_or |= mask;
    found.xor_and &= mask;
  }
  return found;
}

/// Number of words that belong to each of two rewrites of a block. Words equal in both are not counted.
struct Generations {
  std::size_t older = 0;
  std::size_t expected = 0;
};

Generations count_generations(const std::uint32_t* block, const FileBlock& expected, const FileBlock& older) {
  Generations count;
  for (std::size_t i = 0; i < file_block_words; ++i) {
    if (expected[i] == older[i]) continue;
    count.older += block[i] == older[i];
    count.expected += block[i] == expected[i];
  }
  return count;
}

/// Identities at the two ends of a block that differ from the expected one.
struct BlockIdentities {
  std::optional<BlockIdentity> head;
  std::optional<BlockIdentity> tail;

  std::optional<BlockIdentity> one() const { return head ? head : tail; }
  bool differ() const { return head && tail && *head != *tail; }
};

BlockIdentities identities_in(const std::uint32_t* block, const BlockIdentity& expected) {
  BlockIdentities found{identity_at(BlockEnd::head, block), identity_at(BlockEnd::tail, block)};
  if (found.head == expected) found.head.reset();
  if (found.tail == expected) found.tail.reset();
  return found;
}

/// Older content of this place: the rewrite that an identity in the block states, else the previous rewrite.
BlockIdentity older_than(const BlockIdentity& expected, const BlockIdentities& strangers) {
  for (const auto& end : {strangers.head, strangers.tail})
    if (end && end->same_place(expected)) return *end;
  BlockIdentity older = expected;
  --older.generation;
  return older;
}

FileFault kind_of_stranger(const BlockIdentity& stranger, const BlockIdentity& expected) {
  if (stranger.run != expected.run) return FileFault::lost;
  if (stranger.offset != expected.offset) return FileFault::misplaced;
  return stranger.same_place(expected) ? FileFault::stale : FileFault::swapped;
}

void report_apart(const std::uint32_t* block, const FileBlock& right, const BlockIdentity& expected,
                  const MakeBlock& make, const Difference& difference, BlockFinding& finding) {
  const BlockIdentities strangers = identities_in(block, expected);
  const BlockIdentity older = older_than(expected, strangers);
  if (older.generation > 0) {
    const Generations of = count_generations(block, right, make(older));
    // A single word could be a flipped bit of the rewrite number.
    if (of.older > 1 && 2 * of.older > difference.wrong) {
      finding.held = older;
      finding.kind = of.expected > 0 ? FileFault::torn : FileFault::stale;
      return;
    }
  }
  const bool in_part = file_block_words - difference.wrong >= part_words;
  finding.held = strangers.one();
  if (finding.held)
    finding.kind =
        in_part || strangers.differ() ? FileFault::torn : kind_of_stranger(*finding.held, expected);
  else if (difference.is_near())
    finding.kind = FileFault::bit;
  else
    finding.kind = in_part ? FileFault::torn : FileFault::lost;
}

}  // namespace

void stamp(std::uint32_t* block, const BlockIdentity& identity) {
  for (const BlockEnd end : {BlockEnd::head, BlockEnd::tail}) {
    const IdentityWords words = encode(identity, end);
    std::memcpy(block + place_of(end), words.data(), sizeof(words));
  }
}

bool carries(const std::uint32_t* block, const BlockIdentity& identity) {
  const IdentityWords head = encode(identity, BlockEnd::head);
  const IdentityWords tail = encode(identity, BlockEnd::tail);
  return std::memcmp(block, head.data(), sizeof(head)) == 0 &&
         std::memcmp(block + tail_at, tail.data(), sizeof(tail)) == 0;
}

std::optional<BlockIdentity> identity_at(BlockEnd end, const std::uint32_t* block) {
  const std::uint32_t* const words = block + place_of(end);
  const BlockIdentity identity{.run = joined(words[0], words[1]),
                               .offset = joined(words[2], words[3]),
                               .generation = words[4],
                               .rank = words[5],
                               .file = words[6]};
  if (words[7] != checksum(identity, end)) return std::nullopt;
  return identity;
}

void restore(std::uint32_t* block, const PatternFunction& pattern, std::uint64_t first_word) {
  for (const BlockEnd end : {BlockEnd::head, BlockEnd::tail})
    for (std::size_t i = place_of(end); i < place_of(end) + identity_words; ++i)
      block[i] = pattern(first_word + i);
}

const char* to_string(FileFault kind) {
  constexpr std::array names = {"file-bit",     "file-stale", "file-torn",      "file-misplaced",
                                "file-swapped", "file-lost",  "file-truncated", "file-copy"};
  static_assert(names.size() == file_fault_kinds);
  return names[static_cast<std::size_t>(kind)];
}

std::optional<BlockFinding> examine(const std::uint32_t* block, const BlockIdentity& expected,
                                    const MakeBlock& make) {
  const FileBlock right = make(expected);
  const Difference difference = compare(block, right);
  if (difference.wrong == 0) return std::nullopt;
  BlockFinding finding{.kind = FileFault::bit,
                       .offset = expected.offset,
                       .held = std::nullopt,
                       .wrong_words = difference.wrong,
                       .first_word = difference.first,
                       .expected = right[difference.first],
                       .actual = block[difference.first]};
  report_apart(block, right, expected, make, difference, finding);
  return finding;
}

}  // namespace egt
