#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <type_traits>

#include "egt/core/record.hpp"

/// Reads records that may be truncated or from another program version: missing or wrong values never throw.
/// Writes JSON that may contain invalid UTF-8.
namespace egt {

/// The value of `key`, or null if there is none.
inline const Json& member(const Json& json, const std::string& key) {
  static const Json none;
  if (!json.is_object()) return none;
  const auto found = json.find(key);
  return found == json.end() ? none : *found;
}

/// The value of `key` as T, or std::nullopt if it is missing or of another type.
template <typename T>
std::optional<T> value_at(const Json& json, const std::string& key) {
  const Json& value = member(json, key);
  if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) return std::nullopt;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) return std::nullopt;
  } else {
    if (!value.is_number()) return std::nullopt;
    if (std::is_integral_v<T> && value.is_number_float()) return std::nullopt;
    if (!std::isfinite(value.get<double>())) return std::nullopt;
  }
  return value.get<T>();
}

inline std::string text_at(const Json& json, const std::string& key) {
  return value_at<std::string>(json, key).value_or("");
}

/// `json` on one line. Invalid UTF-8 is replaced; NaN and infinities become null.
inline std::string one_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The value, or null if there is none. Non-finite values become null when written.
template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace egt
