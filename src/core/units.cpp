#include "egt/core/units.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "egt/core/text.hpp"

namespace egt {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

/// Compared without case.
constexpr Unit size_units[] = {{"B", 1},
                               {"K", 1'000},
                               {"KB", 1'000},
                               {"M", 1'000'000},
                               {"MB", 1'000'000},
                               {"G", 1'000'000'000},
                               {"GB", 1'000'000'000},
                               {"T", 1'000'000'000'000},
                               {"TB", 1'000'000'000'000},
                               {"KiB", 1ull << 10},
                               {"MiB", 1ull << 20},
                               {"GiB", 1ull << 30},
                               {"TiB", 1ull << 40}};
/// The case matters, as an M is not a minute elsewhere.
constexpr Unit duration_units[] = {{"", 1},     {"s", 1},    {"sec", 1},  {"m", 60},
                                   {"min", 60}, {"h", 3600}, {"d", 86400}};
constexpr Unit rate_units[] = {
    {"b/s", 1}, {"Kb/s", 1'000}, {"Mb/s", 1'000'000}, {"Gb/s", 1'000'000'000}, {"Tb/s", 1'000'000'000'000},
    {"B/s", 8}, {"KB/s", 8'000}, {"MB/s", 8'000'000}, {"GB/s", 8'000'000'000}, {"TB/s", 8'000'000'000'000}};
constexpr double longest_duration = 3650.0 * 86400;

constexpr const char* size_allowed =
    "0, or a number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB is allowed, such as 72GB, and less than 16 "
    "EiB";
constexpr const char* duration_allowed =
    "a time above 0 in s, m, h or d is allowed, such as 90s, 5min or 1h30m, and at most 3650d";
constexpr const char* rate_allowed =
    "0, or a number with b/s, Kb/s, Mb/s, Gb/s, Tb/s (bits) or B/s, KB/s, MB/s, GB/s, TB/s (bytes), is "
    "allowed, as 20Gb/s";
constexpr const char* percent_allowed = "0% to 100% is allowed, as 90%";
constexpr const char* size_or_share_allowed =
    "0% to 100%, or a number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, as 90% or 72GB, is allowed";

Status not_allowed(std::string_view text, const char* allowed) {
  return {StatusCode::invalid_argument, fmt::format("'{}' is not valid: {}", printable(text), allowed)};
}

/// A decimal number without sign or exponent, and the text after it, without the spaces between them.
struct Quantity {
  double value = 0;
  std::optional<std::uint64_t> whole;  ///< exact value, if there is no fraction and it fits
  std::string_view suffix;
};

std::optional<Quantity> parse_quantity(std::string_view text) {
  const std::size_t length = std::min(text.find_first_not_of("0123456789."), text.size());
  const char* const end = text.data() + length;
  Quantity quantity;
  quantity.suffix = text.substr(std::min(text.find_first_not_of(' ', length), text.size()));
  const auto [stop, error] = std::from_chars(text.data(), end, quantity.value, std::chars_format::fixed);
  if (error != std::errc() || stop != end) return std::nullopt;
  std::uint64_t whole = 0;
  const auto [whole_stop, whole_error] = std::from_chars(text.data(), end, whole);
  if (whole_error == std::errc() && whole_stop == end) quantity.whole = whole;
  return quantity;
}

template <std::size_t N, typename Equal = std::equal_to<>>
std::optional<std::uint64_t> factor_of(std::string_view suffix, const Unit (&units)[N], Equal equal = {}) {
  for (const Unit& unit : units)
    if (equal(unit.name, suffix)) return unit.factor;
  return std::nullopt;
}

bool is_same_word(std::string_view a, std::string_view b) {
  return to_lower(a) == to_lower(b);
}

/// `quantity` times `factor`, exact for integers; std::nullopt if it does not fit or is a fraction of a byte.
std::optional<std::uint64_t> bytes_of(const Quantity& quantity, std::uint64_t factor) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  if (quantity.whole) {
    if (*quantity.whole > most / factor) return std::nullopt;
    return *quantity.whole * factor;
  }
  const double bytes = quantity.value * static_cast<double>(factor);
  if (bytes >= 0x1p64 || (factor == 1 && bytes != std::floor(bytes))) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto quantity = parse_quantity(text);
  if (quantity && quantity->suffix.empty() && quantity->value == 0) return std::uint64_t{0};
  if (quantity)
    if (const auto factor = factor_of(quantity->suffix, size_units, is_same_word))
      if (const auto bytes = bytes_of(*quantity, *factor)) return *bytes;
  return not_allowed(text, size_allowed);
}

Result<double> parse_duration(std::string_view text) {
  double seconds = 0;
  std::string_view rest = text;
  if (rest.ends_with(' ')) return not_allowed(text, duration_allowed);
  // Several parts have descending units, so that a typing error is no time.
  for (std::uint64_t previous = std::numeric_limits<std::uint64_t>::max(); !rest.empty();) {
    const auto quantity = parse_quantity(rest);
    if (!quantity) return not_allowed(text, duration_allowed);
    const std::string_view unit = quantity->suffix.substr(0, quantity->suffix.find_first_of("0123456789. "));
    const auto factor = factor_of(unit, duration_units);
    const bool is_part = rest.size() < text.size();
    if (!factor || *factor >= previous || (is_part && unit.empty()))
      return not_allowed(text, duration_allowed);
    seconds += quantity->value * static_cast<double>(*factor);
    previous = *factor;
    rest = quantity->suffix.substr(unit.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  }
  if (seconds > 0 && seconds <= longest_duration) return seconds;
  return not_allowed(text, duration_allowed);
}

Result<double> parse_bit_rate(std::string_view text) {
  if (text == "0") return 0.0;
  if (const auto quantity = parse_quantity(text))
    if (const auto factor = factor_of(quantity->suffix, rate_units)) {
      const double rate = quantity->value * static_cast<double>(*factor);
      if (std::isfinite(rate)) return rate;
    }
  return not_allowed(text, rate_allowed);
}

Result<double> parse_percent(std::string_view text) {
  const auto quantity = parse_quantity(text);
  if (quantity && quantity->suffix == "%" && quantity->value <= 100) return quantity->value / 100;
  return not_allowed(text, percent_allowed);
}

std::optional<std::string_view> unit_in(std::string_view text) {
  const auto quantity = parse_quantity(text);
  return quantity ? std::optional(quantity->suffix) : std::nullopt;
}

std::uint64_t SizeOrShare::of(std::uint64_t total) const {
  if (!is_share) return bytes;
  if (share >= 1) return total;
  return static_cast<std::uint64_t>(share * static_cast<double>(total));
}

Result<SizeOrShare> parse_size_or_share(std::string_view text) {
  if (const auto share = parse_percent(text); share.ok())
    return SizeOrShare{.share = share.value(), .bytes = 0, .is_share = true};
  if (const auto bytes = parse_size(text); bytes.ok())
    return SizeOrShare{.share = 0, .bytes = bytes.value(), .is_share = false};
  return not_allowed(text, size_or_share_allowed);
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string format_amount(double value, std::string_view unit) {
  constexpr const char* powers[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t power = 0;
  for (; value >= 1000 && power + 1 < std::size(powers); ++power) value /= 1000;
  const std::string name = fmt::format("{}{}", powers[power], unit);
  return fmt::format("{:.4g}{}{}", value, name.empty() ? "" : " ", name);
}

std::string format_bytes(double bytes) {
  if (!std::isfinite(bytes)) return fmt::format("{} B", bytes);
  if (bytes < 0) return fmt::format("-{}", format_bytes(-bytes));
  if (std::round(bytes) < 1000) return fmt::format("{:.0f} B", bytes);
  constexpr const char* names[] = {"KB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  double value = bytes / 1000;
  // 999.5 would be shown as 1000 with three digits.
  for (; value >= 999.5 && unit + 1 < std::size(names); ++unit) value /= 1000;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, names[unit]);
}

std::string format_bit_rate(double bits_per_second) {
  constexpr const char* names[] = {"b/s", "Kb/s", "Mb/s", "Gb/s", "Tb/s"};
  std::size_t unit = 0;
  for (; bits_per_second >= 999.5 && unit + 1 < std::size(names); ++unit) bits_per_second /= 1000;
  return fmt::format("{:.3g} {}", bits_per_second, names[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{} s", seconds);
  if (seconds < 0) return fmt::format("-{}", format_duration(-seconds));
  const auto s = static_cast<std::uint64_t>(std::llround(std::min(seconds, 1e15)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} m {:02} s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{} h {:02} m", s / 3600, s / 60 % 60);
  return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
}

}  // namespace egt
