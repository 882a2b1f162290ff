#include "egt/core/digest.hpp"

#include <fmt/format.h>

#include <charconv>

namespace egt {

std::string to_string(const Digest& digest) {
  return fmt::format("{:016x}{:016x}", digest.a, digest.b);
}

namespace {

/// 16 hexadecimal digits and nothing else.
std::optional<std::uint64_t> parse_half(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Digest> parse_digest(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const auto a = parse_half(text.substr(0, 16)), b = parse_half(text.substr(16));
  if (!a || !b) return std::nullopt;
  return Digest{*a, *b};
}

}  // namespace egt
