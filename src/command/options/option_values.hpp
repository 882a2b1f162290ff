#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "session/options.hpp"
#include "workload/bench/scaling_options.hpp"

/// Parsers and formatters for option values: one function per type of value, which defines the allowed range.
namespace egt {

using Text = std::string_view;  ///< text of an option's value

constexpr double no_limit = std::numeric_limits<double>::infinity();
constexpr double above_zero = std::numeric_limits<double>::min();

/// A default that replaces the value that the options start with.
struct Default {
  /// Words that must all apply: a command, "host" or "cuda", "--quick", "--ceilings" or "scaling" of bench,
  /// "--load=train". The last default that applies is used.
  std::string when;
  std::string text;  ///< as the user would write it
};

/// The value of one option, bound to a field of an Options object, which must outlive it.
struct OptionValue {
  std::string placeholder;  ///< value in the help; empty: a flag
  /// Parses a text. On error, returns what is wrong and what is allowed, and keeps the old value.
  std::function<std::string(std::string_view text)> set;
  std::function<Json()> json = {};    ///< the value in the result
  std::function<Json()> config = {};  ///< the value in a config file; unset: as in the result
  std::vector<Default> defaults = {};

  Json to_config() const { return config ? config() : json(); }
  /// The elements of the value for a config file, or the value itself; empty for null.
  std::vector<std::string> texts() const {
    std::vector<std::string> texts;
    const Json value = to_config();
    for (const Json& one : value.is_array() || value.is_null() ? value : Json::array({value}))
      texts.push_back(one.is_string() ? one.get<std::string>() : one.dump());
    return texts;
  }
};

inline OptionValue with_defaults(OptionValue value, std::vector<Default> defaults) {
  value.defaults = std::move(defaults);
  return value;
}

inline std::string digits(std::uint64_t value) {
  return std::to_string(value);
}
/// The shortest digits without exponent that parse to the same number.
inline std::string digits(double value) {
  std::array<char, 1100> text;  // the max is 1076
  return {text.data(),
          std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed).ptr};
}

/// "5m": the first unit with a whole number, else the last unit.
template <typename T>
std::string in_units(T value, std::initializer_list<std::pair<const char*, T>> units) {
  for (const auto& [name, factor] : units) {
    T count = value / factor;
    if constexpr (std::is_floating_point_v<T>) count = std::trunc(count);
    if (count >= 1 && count * factor == value) return digits(count) + name;
  }
  return digits(value) + std::prev(units.end())->first;
}

inline std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t one = 1, kilo = 1000;
  return in_units(bytes, {{"TB", kilo * kilo * kilo * kilo},
                          {"TiB", one << 40},
                          {"GB", kilo * kilo * kilo},
                          {"GiB", one << 30},
                          {"MB", kilo * kilo},
                          {"MiB", one << 20},
                          {"KB", kilo},
                          {"KiB", one << 10},
                          {"B", one}});
}

/// 15 digits restore the user's input, since rounding by the factor 100 affects only later digits.
inline std::string share_text(double share) {
  return fmt::format("{:.15g}%", 100 * share);
}

template <typename T>
Json reported(const T& value) {
  return value;
}
inline Json reported(const std::string& value) {
  return value.empty() ? Json() : Json(value);
}
inline Json reported(const SizeOrShare& value) {
  return value.is_share ? Json(fmt::format("{}%", value.share * 100)) : Json(value.bytes);
}
inline Json reported(const CorrectedLimit& value) {
  return value.per_hour ? Json(fmt::format("{}/h", value.errors)) : Json(value.errors);
}
inline Json reported(const GradientCompression& value) {
  return to_string(value);
}
template <typename T>
Json reported(const std::optional<T>& value) {
  return value ? reported(*value) : Json();
}
template <typename T>
Json reported(const std::vector<T>& values) {
  Json all = Json::array();
  for (const T& value : values)
    if constexpr (std::is_enum_v<T>)
      all.push_back(to_string(value));
    else
      all.push_back(value);
  return all;
}

/// `parse` returns the value of a text, or empty if the text is not `allowed`.
template <typename T, typename Parse>
OptionValue parsed(T& target, std::string placeholder, std::string allowed, Parse parse) {
  return {std::move(placeholder),
          [&target, allowed = std::move(allowed), parse](std::string_view text) -> std::string {
            auto value = parse(text);
            if (!value) return fmt::format("use {}", allowed);
            target = std::move(*value);
            return {};
          },
          [&target] { return reported(target); }};
}

template <typename T>
struct ValueOf {
  using Type = T;
};
template <typename T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};

/// Accepts only an integer or a finite number in [low, high].
template <typename T>
std::optional<T> parse_within(std::string_view text, T low, T high) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && stop == text.data() + text.size();
  return is_number && value >= low && value <= high ? std::optional(value) : std::nullopt;
}

template <typename T>
OptionValue whole(T& target, typename ValueOf<T>::Type low, typename ValueOf<T>::Type high) {
  return parsed(target, "N", fmt::format("a whole number of {} to {}", low, high),
                [=](std::string_view text) { return parse_within(text, low, high); });
}

template <typename T>
OptionValue number(T& target, std::string placeholder, std::string allowed, double low, double high) {
  return parsed(target, std::move(placeholder), std::move(allowed),
                [=](std::string_view text) { return parse_within(text, low, high); });
}

/// The value of `result` if it is in [low, high], else empty.
template <typename T>
std::optional<T> within(const Result<T>& result, T low, T high) {
  const bool is_within = result.ok() && result.value() >= low && result.value() <= high;
  return is_within ? std::optional(result.value()) : std::nullopt;
}

/// A share in [low, 100 %]. An empty `allowed` is generated from `low`.
inline OptionValue share(double& target, double low, std::string allowed = {}) {
  if (allowed.empty()) allowed = fmt::format("a share of {} to 100 %", std::lround(100 * low));
  OptionValue value = parsed(target, "SHARE", std::move(allowed),
                             [=](std::string_view text) { return within(parse_percent(text), low, 1.0); });
  value.config = [&target] { return share_text(target); };
  return value;
}

/// Extends the value's error message if the unit is invalid or missing. `units`: all valid units.
/// `if_missing`: hint for a number without a unit, with "{0}" for the number; nullptr: no unit is required.
inline OptionValue with_units(OptionValue value, const std::string& units, const char* if_missing) {
  value.set = [set = value.set, known = to_lower(fmt::format(" {} ", units)),
               if_missing](std::string_view text) {
    const std::string wrong = set(text);
    const auto unit = unit_in(text);
    if (wrong.empty() || !unit) return wrong;
    if (unit->empty() && if_missing)
      return fmt::format("a unit is missing ({}): {}", fmt::format(fmt::runtime(if_missing), text), wrong);
    const bool is_known =
        unit->empty() || known.find(to_lower(fmt::format(" {} ", *unit))) != std::string::npos;
    return is_known ? wrong : fmt::format("{} is no unit: {}", *unit, wrong);
  };
  return value;
}

constexpr const char* size_units = "B K KB M MB G GB T TB KiB MiB GiB TiB";

/// Bytes in [low, high].
template <typename T>
OptionValue size(T& target, std::string allowed, std::uint64_t low, std::uint64_t high) {
  const auto parse = [=](std::string_view text) { return within(parse_size(text), low, high); };
  OptionValue value =
      with_units(parsed(target, "SIZE", std::move(allowed), parse), size_units, "{0}GB or {0}GiB?");
  value.config = [&target] {
    const std::optional<std::uint64_t> bytes = target;
    return bytes ? Json(size_text(*bytes)) : Json();
  };
  return value;
}

/// Seconds in [low, high].
template <typename T>
OptionValue duration(T& target, std::string allowed, double low, double high) {
  const auto parse = [=](std::string_view text) { return within(parse_duration(text), low, high); };
  OptionValue value =
      with_units(parsed(target, "TIME", std::move(allowed), parse), "s sec m min h d", nullptr);
  value.config = [&target] {
    const std::optional<double> seconds = target;
    return seconds ? Json(in_units(*seconds, {{"h", 3600.0}, {"m", 60.0}, {"s", 1.0}})) : Json();
  };
  return value;
}

/// A non-empty text; null in the result if not given.
inline OptionValue text(std::string& target, std::string placeholder, std::string allowed) {
  return parsed(target, std::move(placeholder), std::move(allowed), [](std::string_view text) {
    const bool is_text = !text.empty() && text.find('\0') == std::string_view::npos;
    return is_text ? std::optional(std::string(text)) : std::nullopt;
  });
}

/// Without a value, or true in a config file, sets the target to `if_given`. false in a config file has no
/// effect.
inline OptionValue flag(bool& target, bool if_given) {
  return {"",
          [&target, if_given](std::string_view text) -> std::string {
            if (text != "true") return "use it without a value, or true or false in a config file";
            target = if_given;
            return {};
          },
          [&target, if_given] { return Json(target == if_given); }};
}

/// One of several names. An empty `placeholder` lists all names.
template <typename T>
OptionValue choice(T& target, const std::vector<std::pair<const char*, T>>& names,
                   std::string placeholder = {}) {
  std::string allowed, all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    all += fmt::format("{}{}", i == 0 ? "" : "|", names[i].first);
    allowed += fmt::format("{}{}", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i].first);
  }
  OptionValue value = parsed(target, placeholder.empty() ? all : std::move(placeholder), allowed,
                             [names](std::string_view text) -> std::optional<T> {
                               for (const auto& [name, meaning] : names)
                                 if (name == text) return meaning;
                               return std::nullopt;
                             });
  value.json = [&target, names]() -> Json {
    for (const auto& [name, meaning] : names)
      if (meaning == target) return name;
    return {};
  };
  return value;
}

struct ListLimits {
  std::size_t least = 1, most = SIZE_MAX;  ///< elements
  bool distinct = true;                    ///< no duplicates
};

/// "1,2,3"; `one` parses an element, or returns empty.
template <typename T, typename One>
OptionValue list(std::vector<T>& target, std::string placeholder, std::string allowed, ListLimits limits,
                 One one) {
  const auto parse = [=](std::string_view text) -> std::optional<std::vector<T>> {
    std::vector<T> values;
    for (std::size_t comma = 0; comma != std::string_view::npos; text.remove_prefix(comma + 1)) {
      comma = text.find(',');
      const std::optional<T> value = one(text.substr(0, comma));
      if (!value) return std::nullopt;
      if (limits.distinct && std::find(values.begin(), values.end(), *value) != values.end())
        return std::nullopt;
      values.push_back(*value);
      if (comma == std::string_view::npos) break;
    }
    if (values.size() < limits.least || values.size() > limits.most) return std::nullopt;
    return values;
  };
  return parsed(target, std::move(placeholder), std::move(allowed), parse);
}

/// Integers in [low, high].
template <typename T>
OptionValue wholes(std::vector<T>& target, std::string placeholder, std::string allowed, ListLimits limits,
                   T low, T high) {
  return list(target, std::move(placeholder), std::move(allowed), limits,
              [=](std::string_view text) { return parse_within(text, low, high); });
}

}  // namespace egt
