#pragma once

#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>

/// Reading a text from its front, as names of files are made. What is taken is gone from the text; where
/// nothing fits, it stays as it was.
namespace egt {

/// A whole number without a sign before it but a minus.
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
