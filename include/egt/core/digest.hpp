#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "egt/core/math/hd.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// A 128-bit digest of 32-bit words that depends on every bit and its position. It has two 64-bit halves.
/// Each is a sum modulo 2^64, so any order of summation (threads, blocks) gives the same value.
struct Digest {
  std::uint64_t a = 0;
  std::uint64_t b = 0;

  friend bool operator==(const Digest&, const Digest&) = default;
};

/// Adds the two terms of word `index` to the sums a and b of a digest. A term mixes the word with its
/// position by bijections and multiplies it by an odd number derived from the position, 32 x 32 to 64 bits.
/// Any change of a single word is thus detected. Changes of several words cancel with a probability of about
/// 2^-64 per sum. About 20 32-bit operations.
EGT_HD void add_to_digest(std::uint64_t& a, std::uint64_t& b, std::uint64_t index, std::uint32_t word) {
  const std::uint32_t low = static_cast<std::uint32_t>(index), high = static_cast<std::uint32_t>(index >> 32);
  std::uint32_t place = (low ^ high * 0x85EBCA6Bu) * 0x7FEB352Du + 0x68E31DA4u;
  place ^= place >> 15;
  const std::uint32_t place2 = low * 0x846CA68Bu + high * 0xC2B2AE35u + 0xB5297A4Du;
  std::uint32_t x = word ^ place;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x ^= x >> 15;
  a += std::uint64_t{x} * (place | 1u);
  std::uint32_t y = (x + place2) * 0x846CA68Bu;
  y ^= y >> 16;
  b += std::uint64_t{y} * (place2 | 1u);
}

/// A marker that replaces a digest: the words of a solid pattern with `number` as its parameter.
constexpr Digest stamp(std::uint32_t number) {
  const std::uint64_t twice = std::uint64_t{number} << 32 | number;
  return {twice, twice};
}

/// Recovers the word from the digest of a single word at index 0; std::nullopt for any other digest.
std::optional<std::uint32_t> only_word(const Digest& digest);

/// Digest of the bytes, zero-padded to a whole word.
Digest digest_of(std::string_view text);

/// Prepends the text's digest. `unsealed` checks and removes it; aborted: some bit has changed.
std::string sealed(std::string_view text);
Result<std::string> unsealed(std::string sealed);

/// As 32 hexadecimal digits.
std::string to_string(const Digest& digest);
/// Reverse of to_string; std::nullopt if `text` is not 32 hexadecimal digits.
std::optional<Digest> parse_digest(std::string_view text);

}  // namespace egt
