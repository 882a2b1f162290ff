#include "egt/core/digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "egt/core/text_scan.hpp"

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
