#include "report/escaped_text.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "egt/core/record.hpp"

namespace egt {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string valid_utf8(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  const Json quoted = std::string(text);
  return Json::parse(quoted.dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

bool is_control(char c) {
  return (c >= 0 && c < ' ' && c != '\t' && c != '\n') || c == 127;
}

std::string replaced(std::string_view text,
                     std::initializer_list<std::pair<char, std::string_view>> replacements) {
  std::string all;
  for (const char c : text) {
    const auto* const found = std::find_if(replacements.begin(), replacements.end(),
                                           [c](const auto& one) { return one.first == c; });
    if (found == replacements.end())
      all += c;
    else
      all += found->second;
  }
  return all;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string valid = valid_utf8(text);
  std::replace_if(
      valid.begin(), valid.end(), [](char c) { return is_control(c) || c == '\t'; }, '?');
  return replaced(valid, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}});
}

std::string plain_text(std::string_view text) {
  const std::string valid = valid_utf8(text);
  std::string plain;
  for (std::size_t i = 0; i < valid.size();) {
    const std::string_view three = std::string_view(valid).substr(i, 3);
    const bool is_nothing = three == "\xEF\xBF\xBE" || three == "\xEF\xBF\xBF";
    if (is_nothing || is_control(valid[i]))
      plain += replacement;
    else
      plain += valid[i];
    i += is_nothing ? 3 : 1;
  }
  return plain;
}

std::string xml_text(std::string_view text) {
  return replaced(plain_text(text), {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}});
}

std::string xml_attribute(std::string_view text) {
  return replaced(
      plain_text(text),
      {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\n', "&#10;"}, {'\t', "&#9;"}});
}

std::string label_text(std::string_view text) {
  return replaced(plain_text(text), {{'\\', "\\\\"}, {'"', "\\\""}, {'\n', "\\n"}});
}

}  // namespace egt
