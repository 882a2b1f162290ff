#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "egt/core/status.hpp"

/// Sizes, durations and shares as people type and read them.
namespace egt {

/// "72GB" (10^9), "10GiB" (2^30), "512B"; B KB MB GB TB KiB MiB GiB TiB in any case, "72G" is "72GB";
/// fractions are allowed ("1.5GB"). The unit is required except for "0", since 90 may mean 90 % or 90 GB.
/// Result in bytes. The error states the allowed values, not the option's name. Spaces may precede any unit.
Result<std::uint64_t> parse_size(std::string_view text);

/// "90s", "5m" or "5min", "1.5h", "3d", "1h30m"; a plain number is in seconds. Result in seconds, above 0.
Result<double> parse_duration(std::string_view text);

/// "20Gb/s" (10^9 bits), "2.5GB/s" (bytes); b/s Kb/s Mb/s Gb/s Tb/s and B/s KB/s MB/s GB/s TB/s; "0". Result
/// in bits per second.
Result<double> parse_bit_rate(std::string_view text);

/// "90%" to 0.9; 0 to 100 %.
Result<double> parse_percent(std::string_view text);

/// The text after the leading number and spaces: "ms" of "100 ms"; std::nullopt if there is no leading
/// number.
std::optional<std::string_view> unit_in(std::string_view text);

/// A share of a total ("90%") or a size ("72GB", "0").
struct SizeOrShare {
  double share = 0;         ///< used when is_share, 0 to 1
  std::uint64_t bytes = 0;  ///< used otherwise
  bool is_share = false;

  std::uint64_t of(std::uint64_t total) const;
  /// True if it is zero for every total.
  bool is_zero() const { return is_share ? share <= 0 : bytes == 0; }
};
Result<SizeOrShare> parse_size_or_share(std::string_view text);

/// "1.50 GB", powers of 10^3, three significant digits.
std::string format_bytes(double bytes);
template <std::integral Integer>
std::string format_bytes(Integer bytes) {
  return format_bytes(static_cast<double>(bytes));
}
/// "83.33 M", powers of 10^3, four significant digits; with a unit "83.33 MFLOP" and "8 FLOP".
std::string format_amount(double value, std::string_view unit = "");
/// "1 word", "5 words"; `noun` is in the singular and has a regular plural.
std::string counted(std::uint64_t count, std::string_view noun);
/// "25 Gb/s", "1.5 Gb/s", powers of 10^3, three significant digits.
std::string format_bit_rate(double bits_per_second);
/// "1 m 05 s", "42 s", "3 h 07 m".
std::string format_duration(double seconds);

}  // namespace egt
