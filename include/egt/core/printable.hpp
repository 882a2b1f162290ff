#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace egt {

/// Control characters would break a message's one line, or a terminal's state.
inline std::string printable(std::string_view text) {
  std::string shown(text);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return (c >= 0 && c < ' ') || c == 127; }, '?');
  return shown;
}

}  // namespace egt
