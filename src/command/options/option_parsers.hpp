#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/units.hpp"

/// How the values of options are read: each gives false, or nothing, for a text that is not allowed, and
/// then leaves the value as it was.
namespace egt {

/// A whole number in [low, high] and nothing else.
template <typename T>
bool parse_integer(std::string_view text, T low, T high, T& value) {
  T parsed{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || stop != text.data() + text.size() || parsed < low || parsed > high)
    return false;
  value = parsed;
  return true;
}

/// A finite number in [low, high].
inline std::optional<double> parse_number(std::string_view text, double low, double high) {
  double parsed = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || stop != text.data() + text.size() || !std::isfinite(parsed))
    return std::nullopt;
  if (parsed < low || parsed > high) return std::nullopt;
  return parsed;
}

/// "1,2,3", each in [low, high].
template <typename T>
bool parse_list(std::string_view text, T low, T high, std::vector<T>& values) {
  std::vector<T> parsed;
  while (true) {
    const std::size_t comma = text.find(',');
    if (!parse_integer(text.substr(0, comma), low, high, parsed.emplace_back())) return false;
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  values = std::move(parsed);
  return true;
}

/// One of some names.
template <typename T, std::size_t N>
bool parse_name(std::string_view text, const std::array<std::pair<std::string_view, T>, N>& names, T& value) {
  for (const auto& [name, meaning] : names)
    if (name == text) {
      value = meaning;
      return true;
    }
  return false;
}

inline bool parse_text(std::string_view text, std::string& value) {
  if (text.empty() || text.find('\0') != std::string_view::npos) return false;
  value = text;
  return true;
}

constexpr const char* flag_allowed = "it without a value, or true or false in a config file";

/// Every flag is given bare, or in a config file as true; false there is as if it were not given.
inline bool parse_flag(std::string_view text) {
  return text == "true";
}

/// Of an option that takes a unit: what is wrong with the one in `text`, where that can be told.
/// `if_missing`: what a number without unit may be meant as, with "{0}" for the number; nullptr: it needs
/// none.
inline std::string explain_unit(std::string_view text, const char* allowed, std::string_view units,
                                const char* if_missing) {
  const auto unit = unit_in(text);
  if (unit && unit->empty() && if_missing)
    return fmt::format("a unit is missing ({}): use {}", fmt::format(fmt::runtime(if_missing), text),
                       allowed);
  const std::string known = fmt::format(" {} ", units), own = fmt::format(" {} ", unit.value_or(""));
  if (unit && !unit->empty() && known.find(own) == std::string::npos)
    return fmt::format("{} is no unit: use {}", *unit, allowed);
  return fmt::format("use {}", allowed);
}

constexpr std::string_view size_units = "B KB MB GB TB KiB MiB GiB TiB";

inline std::string explain_size(std::string_view text, const char* allowed) {
  return explain_unit(text, allowed, size_units, "{0}GB or {0}GiB?");
}

inline std::string explain_share_or_size(std::string_view text, const char* allowed) {
  return explain_unit(text, allowed, fmt::format("% {}", size_units), "{0}% or {0}GB?");
}

inline std::string explain_duration(std::string_view text, const char* allowed) {
  return explain_unit(text, allowed, "s m h d", nullptr);
}

/// A share in [low, 100 %].
inline bool parse_share(std::string_view text, double low, double& value) {
  const auto share = parse_percent(text);
  if (!share.ok() || share.value() < low) return false;
  value = share.value();
  return true;
}

}  // namespace egt
