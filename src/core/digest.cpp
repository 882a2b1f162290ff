#include "egt/core/digest.hpp"

#include <fmt/format.h>

#include "egt/core/text_scan.hpp"

namespace egt {

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
