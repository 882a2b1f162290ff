#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Manual page and shell completions for packages, generated from the option table.
namespace egt {

/// `what`: "man" for the manual page in roff; "bash", "zsh" or "fish" for that shell's completion. Has no
/// final newline. Empty for other values.
std::optional<std::string> manual_text(std::string_view what, std::string_view version);

}  // namespace egt
