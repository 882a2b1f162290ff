#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "command/commands.hpp"
#include "command/options/option_values.hpp"
#include "command/options/options.hpp"

/// The single list of options, used by parsing, help, defaults, the config file and the result.
namespace egt {

constexpr Commands of_burn = 1, of_verify = 2, of_links = 4, of_bench = 8, of_selftest = 16, of_compare = 32,
                   of_report = 64, of_devices = 128, of_loadtest = 256, of_reproduce = 512, of_watch = 1024;
constexpr Commands of_all = 2047;
constexpr Commands of_load = of_burn | of_verify | of_selftest;       ///< commands that run all parts
constexpr Commands of_training = of_load | of_bench;                  ///< commands that train
constexpr Commands of_runs = of_training | of_links | of_loadtest;    ///< commands that measure or load
constexpr Commands of_injections = of_runs & ~Commands{of_selftest};  ///< selftest defines its own injections

/// "burn, verify, .."
std::string command_list();
/// False for an unknown command.
bool knows(std::string_view command, Commands commands);

/// Places in which an option can appear.
enum class Scope {
  result,        ///< on the command line, in a config file, and in the result
  config,        ///< not in the result, since it does not affect measurements
  command_line,  ///< only on the command line
};

struct OptionRule {
  std::string name;   ///< long name, without dashes
  Commands commands;  ///< commands that accept it
  /// The first line is for --help; the rest, which the manual page adds, has the details. The defaults follow
  /// from `value`.
  std::string help;
  OptionValue value;
  Scope scope = Scope::result;
  bool repeatable = false;
  Commands also_told = 0;   ///< commands that reject it, but whose result has its value
  const char* letter = "";  ///< short name, with its dash
  const char* group = "";   ///< heading in the help
};

/// Options of bench that select the scaled work; meaningless with --ceilings.
constexpr const char* scaling_options[] = {
    "workload", "mode",     "points",        "grid",   "batches",
    "streams",  "parallel", "micro-batches", "memory", "gradient-compression"};

/// Options of bench that only --ceilings uses.
constexpr const char* file_options[] = {"io-dir", "io-size", "no-io"};

/// All options, bound to `options`, which must outlive them.
std::vector<OptionRule> option_rules(Options& options);
/// Null if there is no option with that name. If commands have different ones, returns that of `command`.
const OptionRule* find_rule(const std::vector<OptionRule>& rules, std::string_view name,
                            std::string_view command);

using Words = std::set<std::string>;
/// The last default of which all words are in `words`; null: none.
const Default* default_for(const OptionRule& rule, const Words& words);

/// Help on the options of one command, in lines of at most `columns` if its words allow that. An empty
/// `command`: all commands, and the options of burn.
std::string help_text(std::string_view command, std::size_t columns = 80);
/// Manual page and shell completions for packages. `what`: "man" for the manual page in roff; "bash", "zsh"
/// or "fish" for that shell's completion. Has no final newline. Empty for other values.
std::optional<std::string> manual_text(std::string_view what, std::string_view version);

}  // namespace egt
