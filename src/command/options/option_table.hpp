#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "command/options/option_values.hpp"
#include "command/options/options.hpp"

/// The one list of the program's options; parsing, help, defaults, the config file and the result read it.
namespace egt {

/// A set of commands: which of them know an option.
using Commands = unsigned;
constexpr Commands of_burn = 1, of_verify = 2, of_links = 4, of_bench = 8, of_selftest = 16, of_compare = 32,
                   of_report = 64, of_devices = 128, of_loadtest = 256;
constexpr Commands of_all = 511;
constexpr Commands of_load = of_burn | of_verify | of_selftest;  ///< those that load devices with all parts
constexpr Commands of_training = of_load | of_bench;             ///< those that train
constexpr Commands of_runs = of_training | of_links | of_loadtest;    ///< those that measure or load
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
/// "did you mean X? ", or nothing.
std::string suggestion(std::string_view text, const std::vector<std::string>& names);
/// "burn, verify, .."
std::string command_list();
/// False for a command that there is not.
bool knows(std::string_view command, Commands commands);

/// Where an option has its place.
enum class Scope {
  result,        ///< on the command line, in a config file, and in the result
  config,        ///< not in the result: it changes nothing of what is measured
  command_line,  ///< only there
};

struct OptionRule {
  std::string name;   ///< long, without dashes
  Commands commands;  ///< which know it
  const char* help;   ///< with the default
  OptionValue value;
  Scope scope = Scope::result;
  bool repeatable = false;
  Commands also_told = 0;   ///< commands that do not know it, but whose result tells its value
  const char* letter = "";  ///< its short name, with its dash
  const char* group = "";   ///< the heading that the help has it under
};

/// Of bench: what says which work is scaled; with --ceilings they have no meaning.
constexpr const char* scaling_options[] = {
    "workload", "mode",     "points",        "grid",   "batches",
    "streams",  "parallel", "micro-batches", "memory", "gradient-compression"};

/// Of bench: what only --ceilings has a use for.
constexpr const char* file_options[] = {"io-dir", "io-size", "no-io"};

/// All, bound to `options`, which outlives them.
std::vector<OptionRule> option_rules(Options& options);
/// null: there is none of that name. Where commands have different ones of a name, that of `command`.
const OptionRule* find_rule(const std::vector<OptionRule>& rules, std::string_view name,
                            std::string_view command);

/// `command`: only its options; empty: those of burn.
std::string help_text(std::string_view command);
/// Parts of it: what --inject takes; what holds for all values, exit codes and how to stop.
std::string injection_help();
std::string closing_words();

}  // namespace egt
