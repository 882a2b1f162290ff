#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The presets: sets of options from the files in presets/, embedded by the build.
namespace egt {

struct Preset {
  std::string name;
  std::string text;  ///< TOML; the first line is a comment with the purpose

  std::string_view help() const { return std::string_view(text).substr(2, text.find('\n') - 2); }
};

/// All presets, by name.
const std::vector<Preset>& presets();
/// The files in presets/expect/ for --expect: what a node with these GPUs has.
const std::vector<Preset>& expected_nodes();

}  // namespace egt
