#include "egt/core/digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "egt/core/text.hpp"

namespace egt {

Digest digest_of(std::string_view text) {
  Digest digest;
  for (std::size_t i = 0; i < text.size(); i += sizeof(std::uint32_t)) {
    std::uint32_t word = 0;
    std::memcpy(&word, text.data() + i, std::min(sizeof word, text.size() - i));
    add_to_digest(digest.a, digest.b, i / sizeof word, word);
  }
  return digest;
}

std::optional<std::uint32_t> only_word(const Digest& digest) {
  // Inverts add_to_digest at index 0.
  std::uint32_t place = 0x68E31DA4u;
  place ^= place >> 15;
  std::uint32_t inverse = 0x7FEB352Du;
  for (int correct_bits = 3; correct_bits < 32; correct_bits *= 2) inverse *= 2u - 0x7FEB352Du * inverse;
  auto x = static_cast<std::uint32_t>(digest.a / (place | 1u));
  x ^= (x >> 15) ^ (x >> 30);
  x *= inverse;
  x ^= x >> 16;
  const std::uint32_t word = x ^ place;
  Digest again;
  add_to_digest(again.a, again.b, 0, word);
  return again == digest ? std::optional(word) : std::nullopt;
}

std::string sealed(std::string_view text) {
  return to_string(digest_of(text)).append(text);
}

Result<std::string> unsealed(std::string sealed) {
  constexpr std::size_t digits = 32;
  std::string text = sealed.size() < digits ? std::string() : sealed.substr(digits);
  sealed.resize(std::min(sealed.size(), digits));
  if (sealed != to_string(digest_of(text))) return Status(StatusCode::aborted, "a text changed in transit");
  return text;
}

std::string to_string(const Digest& digest) {
  return fmt::format("{:016x}{:016x}", digest.a, digest.b);
}

std::optional<Digest> parse_digest(std::string_view text) {
  Digest digest;
  if (text.size() != 32 || !parse_whole(text.substr(0, 16), digest.a, 16) ||
      !parse_whole(text.substr(16), digest.b, 16))
    return std::nullopt;
  return digest;
}

}  // namespace egt
