#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "egt/core/math/hd.hpp"
#include "egt/core/pattern.hpp"

namespace egt {

/// A 128-bit digest of 32-bit words that depends on every bit and its place, and is summed modulo 2^64, so
/// any order of summation (threads, blocks) gives the same value.
struct Digest {
  std::uint64_t a = 0;
  std::uint64_t b = 0;

  friend bool operator==(const Digest&, const Digest&) = default;
};

/// The two terms that word `index` adds to a digest: the word, mixed with its place by bijections, times an
/// odd number of its place, 32 x 32 to 64 bits. So no change of a single word is lost, and differences of
/// several cancel only by a chance of about 2^-64 in each sum. About 20 operations of 32 bits.
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

/// The word of a digest of a single word, at index 0; nothing where `digest` is of none or of several.
std::optional<std::uint32_t> only_word(const Digest& digest);

/// Of its bytes, and zeros up to a whole word.
Digest digest_of(std::string_view text);

/// As 32 hexadecimal digits.
std::string to_string(const Digest& digest);
/// The reverse; nothing where `text` is anything but 32 hexadecimal digits.
std::optional<Digest> parse_digest(std::string_view text);

}  // namespace egt
