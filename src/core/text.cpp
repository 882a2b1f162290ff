#include "egt/core/text.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

/// Replaces characters of `escapes` by their texts, and control characters except `kept` ones by `control`.
std::string escaped(std::string_view text, std::string_view kept, std::string_view control,
                    std::initializer_list<std::pair<char, std::string_view>> escapes = {}) {
  std::string all;
  for (const char c : text) {
    const auto* const found =
        std::find_if(escapes.begin(), escapes.end(), [c](const auto& one) { return one.first == c; });
    if (found != escapes.end())
      all += found->second;
    else if (((c >= 0 && c < ' ') || c == 127) && kept.find(c) == std::string_view::npos)
      all += control;
    else
      all += c;
  }
  return all;
}

std::string escaped_plain(std::string_view text,
                          std::initializer_list<std::pair<char, std::string_view>> escapes = {}) {
  std::string valid = valid_utf8(text);
  const auto next = [&](std::size_t from) { return valid.find("\xEF\xBF", from); };
  for (std::size_t at = next(0); at != std::string::npos; at = next(at + 3))
    if (valid[at + 2] == '\xBE' || valid[at + 2] == '\xBF') valid.replace(at, 3, replacement);
  return escaped(valid, "\t\n", replacement, escapes);
}

/// The name with the least letters to insert, delete or replace (Levenshtein distance); empty: none is close.
std::string nearest(std::string_view text, const std::vector<std::string>& names) {
  std::string best;
  std::size_t least = std::min<std::size_t>(2, text.size() / 2) + 1;
  for (const std::string& name : names) {
    std::vector<std::vector<std::size_t>> changes(text.size() + 1, std::vector<std::size_t>(name.size() + 1));
    for (std::size_t i = 0; i <= text.size(); ++i)
      for (std::size_t j = 0; j <= name.size(); ++j) {
        if (i == 0 || j == 0) {
          changes[i][j] = i + j;
          continue;
        }
        changes[i][j] = std::min({changes[i - 1][j] + 1, changes[i][j - 1] + 1,
                                  changes[i - 1][j - 1] + (text[i - 1] != name[j - 1])});
      }
    if (changes[text.size()][name.size()] >= least) continue;
    least = changes[text.size()][name.size()];
    best = name;
  }
  return best;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    return std::string(text);
  return Json::parse(one_line(std::string(text))).get<std::string>();
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::string printable(std::string_view text, char instead) {
  return escaped(text, "", {&instead, 1});
}

std::string html_text(std::string_view text) {
  return escaped(valid_utf8(text), "\n", "?",
                 {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}});
}

std::string plain_text(std::string_view text) {
  return escaped_plain(text);
}

std::string xml_text(std::string_view text) {
  return escaped_plain(text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}});
}

std::string xml_attribute(std::string_view text) {
  return escaped_plain(
      text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\n', "&#10;"}, {'\t', "&#9;"}});
}

std::string label_text(std::string_view text) {
  return escaped_plain(text, {{'\\', "\\\\"}, {'"', "\\\""}, {'\n', "\\n"}});
}

std::string suggestion(std::string_view text, const std::vector<std::string>& names) {
  const std::string name = nearest(text, names);
  return name.empty() ? "" : fmt::format("did you mean {}? ", name);
}

}  // namespace egt
