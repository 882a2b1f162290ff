#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

/// Texts of others (names of hosts, devices and files, words of users, libraries and other programs): taken
/// apart from their front, and made fit for where they are shown.
namespace egt {

/// With U+FFFD in the place of what is no UTF-8.
std::string valid_utf8(std::string_view text);

/// In one line, for a message or a table: control characters, which would break the line or a terminal's
/// state, are replaced by `instead`. Other bytes stay, UTF-8 or not.
std::string printable(std::string_view text, char instead = '?');

/// For an element or a quoted attribute of HTML: valid UTF-8, control characters but newline are `?`.
std::string html_text(std::string_view text);

/// For files that other programs read: valid UTF-8 without control characters but tab and newline, and
/// without U+FFFE and U+FFFF, which XML forbids: U+FFFD stands for all of them.
std::string plain_text(std::string_view text);
/// `plain_text` for an element of XML.
std::string xml_text(std::string_view text);
/// And for an attribute in double quotes, where readers else make spaces of tabs and newlines.
std::string xml_attribute(std::string_view text);
/// `plain_text` for the value of a label of Prometheus' text format, in double quotes.
std::string label_text(std::string_view text);

/// Takes a whole number without a sign before it but a minus from the front of `text`; where there is none,
/// the text stays as it was. So do the functions below.
template <typename Number>
bool take_number(std::string_view& text, Number& number, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// The same where the whole text is one, without changing it.
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
