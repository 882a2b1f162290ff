#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "egt/core/status.hpp"

/// Sizes, durations and shares as people type and read them.
namespace egt {

/// "72GB" (10^9), "10GiB" (2^30), "512" (bytes); B KB MB GB TB KiB MiB GiB TiB, a fraction is allowed
/// ("1.5GB"). Result in bytes. The error says what is allowed, not the option's name.
Result<std::uint64_t> parse_size(std::string_view text);

/// "90s", "5m", "1.5h", "3d", a plain number is seconds. Result in seconds, above 0.
Result<double> parse_duration(std::string_view text);

/// "90%" to 0.9; 0 to 100 %.
Result<double> parse_percent(std::string_view text);

/// A share of a total ("90%") or a size ("72GB", "0").
struct SizeOrShare {
  double share = 0;         ///< used when is_share, 0 to 1
  std::uint64_t bytes = 0;  ///< used otherwise
  bool is_share = false;

  std::uint64_t of(std::uint64_t total) const;
};
Result<SizeOrShare> parse_size_or_share(std::string_view text);

/// "1.50 GB", powers of 10^3, three significant digits.
std::string format_bytes(double bytes);
/// "1 m 05 s", "42 s", "3 h 07 m".
std::string format_duration(double seconds);

}  // namespace egt
