#pragma once

#include <optional>
#include <string>
#include <string_view>

/// What a package installs beside the program, made from the one list of options.
namespace egt {

/// `what`: "man": the manual page, in roff; "bash", "zsh" or "fish": that shell's completion. Without its
/// last newline. Nothing: there is no such thing.
std::optional<std::string> manual_text(std::string_view what, std::string_view version);

}  // namespace egt
