#pragma once

#include <cstdint>
#include <string>

#include "egt/core/hd.hpp"
#include "egt/core/pattern.hpp"

namespace egt {

/// A 128-bit digest of 32-bit words that depends on every bit and its place, and is summed modulo 2^64, so
/// any order of summation (threads, blocks) gives the same value.
struct Digest {
  std::uint64_t a = 0;
  std::uint64_t b = 0;

  friend bool operator==(const Digest&, const Digest&) = default;
};

/// The two terms that word `index` adds to a digest. Bijective in the word, so no single-word change is lost.
EGT_HD void add_to_digest(std::uint64_t& a, std::uint64_t& b, std::uint64_t index, std::uint32_t word) {
  const std::uint64_t h = mix64((index << 32 ^ index >> 32) + word + 0x9E3779B97F4A7C15ull);
  a += h;
  b += h * 0xD6E8FEB86659FD93ull ^ (h >> 29);
}

/// As 32 hexadecimal digits.
std::string to_string(const Digest& digest);

}  // namespace egt
