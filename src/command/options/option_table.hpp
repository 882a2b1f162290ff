#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command/options/options.hpp"

/// The one list of the program's options; parsing, help and the config file all read it.
namespace egt {

/// A set of commands: which of them know an option.
using Commands = unsigned;
constexpr Commands of_burn = 1, of_verify = 2, of_links = 4, of_bench = 8, of_selftest = 16, of_compare = 32,
                   of_report = 64, of_devices = 128;
constexpr Commands of_all = 255;
constexpr Commands of_load = of_burn | of_verify | of_selftest;  ///< those that load devices with all parts
constexpr Commands of_training = of_load | of_bench;             ///< those that train
constexpr Commands of_runs = of_training | of_links;             ///< those that measure or load
constexpr Commands of_injections = of_runs & ~Commands{of_selftest};  ///< selftest makes its own

struct CommandRow {
  std::string_view name;
  Commands bit;
  const char* help;     ///< what it does, in one line
  const char* example;  ///< how to call it
};
/// Every command that there is, in the order of the help.
const std::vector<CommandRow>& command_rows();
/// The one of `names` that `text` is a slip of the keyboard away from; empty: none is that near.
std::string nearest(std::string_view text, const std::vector<std::string>& names);
/// "burn, verify, .."
std::string command_list();
/// False for a command that there is not.
bool knows(std::string_view command, Commands commands);

struct OptionRule {
  std::string name;     ///< long, without dashes
  Commands commands;    ///< which know it
  const char* value;    ///< what stands for the value in the help; nullptr: a flag
  const char* help;     ///< with the default
  const char* allowed;  ///< completes "use ..": what is allowed
  bool (*parse)(std::string_view text, Options& options);  ///< false: not allowed
  bool in_config = true;
  bool repeatable = false;
  /// Where set: says what is wrong with a text that is not allowed, and what to do; else that is "use
  /// `allowed`".
  std::string (*explain)(std::string_view text, const char* allowed) = nullptr;

  bool is_flag() const { return value == nullptr; }
};

/// The parts of the list, by what they are about.
std::vector<OptionRule> load_rules();     ///< what loads the devices: training, memory, files, checks
std::vector<OptionRule> safety_rules();   ///< what a run does about its surroundings and its peers
std::vector<OptionRule> measure_rules();  ///< of links and bench
std::vector<OptionRule> compare_rules();
std::vector<OptionRule> common_rules();

const std::vector<OptionRule>& option_rules();

/// `command`: only its options; empty: those of burn.
std::string help_text(std::string_view command);

}  // namespace egt
