#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Named sets of options: the files of presets/, which the build puts into the program.
namespace egt {

struct Preset {
  std::string name;
  std::string text;  ///< TOML; the first line is a comment that says what it is for

  std::string_view help() const { return std::string_view(text).substr(2, text.find('\n') - 2); }
};

/// All, by name.
const std::vector<Preset>& presets();

}  // namespace egt
