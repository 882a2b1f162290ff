#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "egt/command/options.hpp"

/// The one list of the program's options; parsing, help and the config file all read it.
namespace egt {

enum class OptionGroup {
  common,  ///< of every command
  load,    ///< what burn and selftest load the devices with
  burn,    ///< of burn alone
};

/// Every command that there is.
constexpr std::array<std::string_view, 4> command_names = {"burn", "selftest", "report", "devices"};
bool knows(std::string_view command, OptionGroup group);

struct OptionRule {
  std::string name;     ///< long, without dashes
  OptionGroup group;    ///< which commands know it
  const char* value;    ///< what stands for the value in the help; nullptr: a flag
  const char* help;     ///< with the default
  const char* allowed;  ///< completes "use ..": what is allowed
  bool (*parse)(std::string_view text, Options& options);  ///< false: not allowed
  bool in_config = true;
  bool repeatable = false;
  /// Where set: says what is wrong with a text that is not allowed, instead of `allowed`.
  std::string (*explain)(std::string_view text) = nullptr;

  bool is_flag() const { return value == nullptr; }
};

const std::vector<OptionRule>& option_rules();

/// `command`: only its options; empty: all.
std::string help_text(std::string_view command);

}  // namespace egt
