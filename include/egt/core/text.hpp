#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

/// Parses and escapes foreign text: hostnames, names of devices and files, text of users, libraries and
/// programs.
namespace egt {

/// Replaces invalid UTF-8 by U+FFFD.
std::string valid_utf8(std::string_view text);

/// For one line of a message or table. Control characters, which would break the line or a terminal's state,
/// become `instead`. Other bytes stay, UTF-8 or not.
std::string printable(std::string_view text, char instead = '?');

/// ASCII letters in lower case; other bytes stay.
std::string to_lower(std::string_view text);

/// For an HTML element or quoted attribute: valid UTF-8; control characters except newline become `?`.
std::string html_text(std::string_view text);

/// For files that other programs read: valid UTF-8 without control characters except tab and newline, and
/// without U+FFFE and U+FFFF, which XML forbids. U+FFFD replaces all of them.
std::string plain_text(std::string_view text);
/// `plain_text` for an element of XML.
std::string xml_text(std::string_view text);
/// `plain_text` for an XML attribute in double quotes. Unescaped tabs and newlines would be read as spaces.
std::string xml_attribute(std::string_view text);
/// `plain_text` for a label value of Prometheus' text format, in double quotes.
std::string label_text(std::string_view text);

/// "did you mean X? " with the element of `names` that has the smallest edit distance to `text`; empty if
/// none is close.
std::string suggestion(std::string_view text, const std::vector<std::string>& names);

/// Consumes an integer, with no sign except a minus, from the front of `text`. If there is none, returns
/// false and the text is unchanged. The functions below do the same.
template <typename Number>
bool take_number(std::string_view& text, Number& number, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// True if the whole text is one number, which is then stored in `number`.
template <typename Number>
bool parse_whole(std::string_view text, Number& number, int base = 10) {
  return take_number(text, number, base) && text.empty();
}

inline bool take_char(std::string_view& text, char expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace egt
