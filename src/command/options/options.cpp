#include "command/options/options.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command/options/option_table.hpp"
#include "command/options/presets.hpp"
#include "egt/core/text.hpp"
#include "judge/expectations.hpp"
#include "workload/collective/collective_judgement.hpp"

namespace egt {
namespace {

constexpr std::size_t largest_config = 1u << 20;  // bytes

/// The values of one option and their source.
struct Given {
  std::vector<std::string> values;  ///< all values, in the order given
  std::string where = {};           ///< "--config FILE: "; empty: the command line
};
using Rules = std::vector<OptionRule>;
using GivenByName = std::map<std::string, Given>;

Status wrong(std::string text) {
  return {StatusCode::invalid_argument, std::move(text)};
}

bool is_flag(const OptionRule& rule) {
  return rule.value.placeholder.empty();
}

/// The error message for an argument that CLI11 did not match.
Status unexpected(const Rules& rules, const std::string& argument) {
  if (argument.starts_with("-")) {
    std::vector<std::string> names;
    for (const OptionRule& rule : rules) names.push_back("--" + rule.name);
    return wrong(fmt::format("{}: unknown option; {}--help lists what is known", printable(argument),
                             suggestion(argument.substr(0, argument.find('=')), names)));
  }
  return wrong(fmt::format("'{}': unexpected argument; --help shows how to call", printable(argument)));
}

/// Splits the command line into texts by option name and positional arguments. CLI11 does not interpret the
/// values, so messages about values come from this file.
Status split_command_line(const Rules& rules, const std::vector<std::string>& arguments, GivenByName& given,
                          std::vector<std::string>& rest) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  for (const OptionRule& rule : rules) {
    if (app.get_option_no_throw("--" + rule.name) != nullptr) continue;  // an option of another command
    const std::string name = fmt::format("--{},{}", rule.name, rule.letter);
    auto* option = is_flag(rule) ? app.add_flag(name) : app.add_option(name);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ArgumentMismatch&) {
    return wrong(fmt::format("{}: a value is missing", printable(arguments.back())));
  } catch (const CLI::Error& error) {
    return wrong(printable(error.what()));
  }
  for (const OptionRule& rule : rules)
    if (auto* option = app.get_option(fmt::format("--{}", rule.name)); option->count() > 0)
      given[rule.name].values = option->results();
  rest = app.remaining();
  return {};
}

Status check_command(const std::string& name) {
  if (knows(name, of_all)) return {};
  std::vector<std::string> names;
  for (const CommandRow& row : command_rows()) names.emplace_back(row.name);
  return wrong(fmt::format("'{}': unknown command; {}use one of {}", printable(name), suggestion(name, names),
                           command_list()));
}

/// The first positional argument is the command, the second one is the path of report, watch or reproduce,
/// and compare uses all others as files. Additional ones are errors.
Status take_command(const Rules& rules, const std::vector<std::string>& rest, Options& options) {
  const auto is_option = [](const std::string& text) { return text.starts_with("-"); };
  if (const auto option = std::find_if(rest.begin(), rest.end(), is_option); option != rest.end())
    return unexpected(rules, *option);
  if (rest.empty()) return {};
  EGT_TRY(check_command(rest[0]));
  options.command = rest[0];
  if (options.command == "compare") {
    options.compare.files.assign(rest.begin() + 1, rest.end());
    return {};
  }
  const bool takes_file = options.command == "reproduce",
             takes_path = takes_file || options.command == "report" || options.command == "watch";
  const std::size_t most = takes_path ? 2 : 1;
  if (rest.size() > most) return unexpected(rules, rest[most]);
  if (!takes_path) return {};
  if (rest.size() < 2 || rest[1].empty())
    return wrong(takes_file
                     ? "reproduce: name a file of a run's folder reproduce, as in: extreme_gpu_trainer "
                       "reproduce FILE"
                     : fmt::format("{0}: name the directory of a run, as in: extreme_gpu_trainer {0} DIR",
                                   options.command));
  options.path = rest[1];
  return {};
}

/// Reads a file or a pipe (such as the shell's `<(..)`), without the byte order mark of some editors.
/// `option`: named in errors, "--config FILE: "; empty where the caller names it.
Result<std::string> read_text(const std::string& path, std::string_view option) {
  const std::string place = option.empty() ? "" : fmt::format("--{} {}: ", option, printable(path));
  std::ifstream file(path, std::ios::binary);
  std::string text(largest_config + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) return wrong(place + "cannot be read; name a readable TOML file");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > largest_config || text.find('\0') != std::string::npos)
    return wrong(place + "is no TOML file");
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  return text;
}

/// CLI11 would merge the values of a duplicate key into a list, so duplicates are rejected.
Status check_keys(const Rules& rules, const std::string& text, const std::string& where) {
  std::istringstream lines(text);
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
    const std::size_t end = line.find_first_of(" \t=#\"", begin);
    if (end == std::string::npos || line.find_first_not_of(" \t", end) != line.find('=', end)) continue;
    const std::string name = line.substr(begin, end - begin);
    const OptionRule* rule = find_rule(rules, name, "");
    if (rule && !rule->repeatable && !seen.insert(name).second)
      return wrong(fmt::format("{}--{}: given twice; give it once", where, name));
  }
  return {};
}

/// Adds values of a TOML text that are not in `given`. Existing values have precedence.
Status read_toml(const Rules& rules, const std::string& text, const std::string& where,
                 const Options& options, GivenByName& given) {
  EGT_TRY(check_keys(rules, text, where));
  std::istringstream stream(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(stream);
  } catch (const CLI::Error&) {
    return wrong(where + "is no TOML; write options by their long names, as in: duration = \"24h\"");
  }
  GivenByName found;
  for (const CLI::ConfigItem& item : items) {
    if (!item.parents.empty())
      return wrong(fmt::format("{}section [{}]: write the long names of options without sections", where,
                               printable(item.parents.front())));
    const OptionRule* rule = find_rule(rules, item.name, options.command);
    if (!rule || rule->scope == Scope::command_line)
      return wrong(fmt::format("{}unknown key {}; use the long names of options, without sections", where,
                               printable(item.name)));
    Given& given_here = found[item.name];
    given_here.where = where;
    if (is_flag(*rule) && item.inputs == std::vector<std::string>{"false"}) continue;
    if (rule->repeatable)
      given_here.values.insert(given_here.values.end(), item.inputs.begin(), item.inputs.end());
    else
      given_here.values.push_back(CLI::detail::join(item.inputs, ","));
  }
  for (auto& [name, values] : found) given.try_emplace(name, std::move(values));
  return {};
}

Status read_config(const Rules& rules, const Options& options, GivenByName& given) {
  const std::string& path = options.common.config;
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return wrong(fmt::format("--config {}: is a directory; name a TOML file", printable(path)));
  EGT_TRY_ASSIGN(const std::string text, read_text(path, "config"));
  return read_toml(rules, text, fmt::format("--config {}: ", printable(path)), options, given);
}

Status read_preset(const Rules& rules, const Options& options, GivenByName& given) {
  const std::string& name = options.common.preset;
  const auto& all = presets();
  const auto preset = std::find_if(all.begin(), all.end(), [&](auto& one) { return one.name == name; });
  const bool ends_by_steps = given.contains("steps") && !given.contains("duration");
  EGT_TRY(read_toml(rules, preset->text, fmt::format("--preset {}: ", name), options, given));
  if (ends_by_steps) given.erase("duration");  // steps replace the duration
  return {};
}

/// "links has", "burn, verify and 4 others have"
std::string commands_with(const Rules& rules, std::string_view option) {
  std::vector<std::string_view> names;
  for (const CommandRow& row : command_rows())
    if (knows(row.name, find_rule(rules, option, row.name)->commands)) names.push_back(row.name);
  if (names.size() == 1) return fmt::format("{} has", names[0]);
  if (names.size() <= 3)
    return fmt::format("{} and {} have", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
  return fmt::format("{}, {} and {} others have", names[0], names[1], names.size() - 2);
}

/// Parses one option's text into `options`.
Status apply(const Rules& rules, const std::string& name, const Given& given, Options& options) {
  const OptionRule& rule = *find_rule(rules, name, options.command);
  if (given.values.empty()) return {};  // a flag that is false in a file
  if (given.values.size() > 1 && !rule.repeatable)
    return wrong(fmt::format("{}--{}: given twice; give it once", given.where, rule.name));
  if (!knows(options.command, rule.commands))
    return wrong(fmt::format("{}--{}: the command {} has no such option ({})", given.where, rule.name,
                             options.command, commands_with(rules, name)));
  for (const std::string& value : given.values) {
    if (const std::string why = rule.value.set(value); !why.empty())
      return wrong(fmt::format("{}--{} {}: {}", given.where, rule.name, printable(value), printable(why)));
  }
  options.given[rule.name] = fmt::format("{}", fmt::join(given.values, " "));
  return {};
}

/// Whether the injection has a target with these options.
Status check_target(const Injection& injection, const BurnOptions& burn) {
  const bool is_collective = injection.kind == InjectionKind::collective;
  const auto layers = static_cast<int>(burn.train.layers.size()) - 1;
  const std::pair<unsigned, bool> met[] = {{needs_memory, !burn.memory.fill.is_zero()},
                                           {needs_mix, burn.train.load != LoadKind::train},
                                           {needs_files, burn.file.enabled},
                                           {needs_coverage, burn.train.covers_all()},
                                           {needs_extreme, burn.train.extreme_iterations > 0},
                                           {needs_hidden_layers, layers > 1}};
  unsigned missing = 0;
  for (const auto& [need, is_met] : met) missing |= is_met ? 0 : need;
  if (const InjectionNeedRow* const unmet = unmet_need(injection.kind, missing))
    return refuse(injection, unmet->refusal);
  if (is_collective && injection.layer.value_or(1) > collective_kinds + 1)
    return refuse(injection,
                  fmt::format("of a collective, use layer 1 to {}: what is received of the "
                              "all-reduce, broadcast, reduce-scatter or all-gather, or the injected value",
                              collective_kinds + 1));
  if (injection.kind == InjectionKind::host_copy && injection.layer.value_or(1) > host_copy_to_host)
    return refuse(injection, "of a host copy, use layer 1 (to the device) or 2 (to the host)");
  if (injection.peer && (!is_collective || burn.train.load == LoadKind::train))
    return refuse(injection, "pairs of ranks are measured by links alone; leave peer out");
  if (injection.peer && injection.layer)
    return refuse(injection, "a copy from a peer is no collective with a layer; leave one of them out");
  const bool is_vote = injection.kind == InjectionKind::multiprocessor;
  if (is_vote && injection.layer.value_or(1) > layer_of_pattern)
    return refuse(injection, fmt::format("of a multiprocessor, use layer 1 to {} (the units in the "
                                         "table of docs/checks.md) or {} (the memory test's pattern)",
                                         compute_units, layer_of_pattern));
  if (is_vote && injection.layer == layer_of_pattern && burn.memory.fill.is_zero())
    return refuse(injection, "no memory is tested; leave out --memory 0");
  if (injection.layer && !is_collective && !is_vote && *injection.layer > layers)
    return refuse(injection, fmt::format("the network has {} layers; use 1 to {}", layers, layers));
  if (burn.steps && injection.step >= *burn.steps)
    return refuse(injection,
                  fmt::format("the last step is {}; use that or less, or more --steps", *burn.steps - 1));
  return {};
}

/// Scaling and ceilings have separate options.
Status check_bench(const Options& options) {
  if (options.command != "bench") return {};
  const auto given = [&](const char* name) { return options.given.contains(name); };
  if (options.bench.ceilings) {
    for (const char* name : scaling_options)
      if (given(name))
        return wrong(
            fmt::format("--{}: is of scaling, and --ceilings measures none; leave one of them out", name));
    return {};
  }
  for (const char* name : file_options)
    if (given(name))
      return wrong(
          fmt::format("--{}: bench writes files with --ceilings only; add it, or leave this out", name));
  return {};
}

/// compare reads either result files or the history of GPUs.
Status check_compare(const Options& options) {
  if (options.command != "compare") return {};
  const auto& files = options.compare.files;
  if (options.common.history.empty() &&
      (files.empty() || std::find(files.begin(), files.end(), "") != files.end()))
    return wrong(
        "compare: name result files or directories of runs, as in: extreme_gpu_trainer compare A.json "
        "B.json");
  if (options.compare.fleet && options.given.contains("price"))
    return wrong("--price: --fleet compares no cost; leave one of them out");
  if (options.common.history.empty()) return {};
  if (!files.empty())
    return wrong(
        fmt::format("--history and '{}' are mutually exclusive: compare the history of GPUs, or results",
                    printable(files.front())));
  for (const char* name : {"fleet", "tolerance", "price"})
    if (options.given.contains(name))
      return wrong(
          fmt::format("--{}: is for results; --history has limits of its own; leave one of them out", name));
  if (options.common.output.ends_with(".html"))
    return wrong(fmt::format("--output {}: --history writes JSON only; name another file",
                             printable(options.common.output)));
  return {};
}

/// Checks combinations of options.
Status check_together(Options& options) {
  const auto given = [&](const char* name) { return options.given.contains(name); };
  if (given("batch") && given("global-batch"))
    return wrong("--batch and --global-batch are mutually exclusive: give one of them");
  EGT_TRY(check_bench(options));
  EGT_TRY(check_compare(options));
  apply_load(options);
  if (options.burn.pulse)  // the pulse may hold memory work for most of the time
    options.burn.memory.starvation_seconds = std::numeric_limits<double>::infinity();
  if (given("steps") && !given("duration")) options.burn.duration_seconds.reset();
  if (given("check-budget") && options.burn.train.check_every > 0)
    return wrong("--check-budget and --check-every are mutually exclusive: give one of them");
  if (given("resume") && given("output"))
    return wrong("--resume and --output are mutually exclusive: the run continues in its own directory");
  if (given("resume") && given("print-config"))
    return wrong(
        "--resume and --print-config are mutually exclusive: the run continues with its own options");
  const double timeout_ms = 1000 * options.run.watch.collective_timeout_seconds;
  for (const Injection& injection : options.run.injections)
    if (row_of(injection.kind).found_by == FoundBy::stall && injection.ms && *injection.ms < timeout_ms)
      return refuse(
          injection,
          fmt::format("shorter than --collective-timeout, so it is not detected; use ms={:.0f} or more",
                      timeout_ms));
  if (knows(options.command, of_load))
    for (const Injection& injection : options.run.injections) EGT_TRY(check_target(injection, options.burn));
  std::vector<int> sorted = options.common.devices;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    return wrong(fmt::format("--devices {}: device {} is given twice; give each once",
                             options.given.at("devices"), *twice));
  return {};
}

/// Adds the values of the config file, then those of the preset.
Status add_files(const Rules& rules, Options& options, GivenByName& given) {
  const auto applied = [&](const char* name) -> Result<bool> {
    const auto found = given.find(name);
    if (found == given.end()) return false;
    EGT_TRY(apply(rules, name, found->second, options));
    return true;
  };
  if (options.command == "burn" && given.contains("quick")) {
    if (given.contains("preset"))
      return wrong("--quick and --preset are mutually exclusive: --quick is --preset quick");
    given["preset"].values = {"quick"};
  }
  EGT_TRY_ASSIGN(const bool has_config, applied("config"));
  if (has_config) EGT_TRY(read_config(rules, options, given));
  EGT_TRY_ASSIGN(const bool has_preset, applied("preset"));
  return has_preset ? read_preset(rules, options, given) : Status();
}

Status apply_all(const Rules& rules, const GivenByName& given, Options& options) {
  for (const auto& [name, values] : given) EGT_TRY(apply(rules, name, values, options));
  return check_together(options);
}

}  // namespace

Result<Json> read_expectations(const std::string& name) {
  const auto& known = expected_nodes();
  const auto node =
      std::find_if(known.begin(), known.end(), [&](auto& one) { return one.name == to_lower(name); });
  std::string text = node != known.end() ? node->text : std::string();
  if (text.empty()) {
    EGT_TRY_ASSIGN(text, read_text(name, ""));
  }
  std::istringstream stream(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(stream);
  } catch (const CLI::Error&) {
    return wrong("is no TOML; write lines such as nvlinks = 18");
  }
  Json expected = Json::object();
  for (const CLI::ConfigItem& item : items) {
    if (!item.parents.empty()) return wrong("has a section; write the keys without sections");
    if (expected.contains(item.name)) return wrong(fmt::format("{}: given twice; give it once", item.name));
    const std::string why = add_expectation(expected, item.name, CLI::detail::join(item.inputs, ","));
    if (!why.empty()) return wrong(why);
  }
  if (expected.empty()) return wrong("expects nothing; devices --write-expect FILE writes such a file");
  return expected;
}

Result<Options> parse_options(int argc, const char* const* argv, const std::string& version,
                              std::size_t columns) {
  Options options;
  if (argc > 1) options.arguments.assign(argv + 1, argv + argc);
  const Rules rules = option_rules(options);
  GivenByName given;
  std::vector<std::string> rest;
  EGT_TRY(split_command_line(rules, options.arguments, given, rest));
  const bool asks_help = !rest.empty() && rest[0] == "help";  // as a command: "help burn"
  if (asks_help) rest.erase(rest.begin());
  if (asks_help || given.contains("help")) {
    if (asks_help && !rest.empty()) options.message = manual_text(rest[0], version);
    if (!options.message && !rest.empty()) EGT_TRY(check_command(rest[0]));
    if (!options.message) options.message = help_text(rest.empty() ? "" : rest[0], columns);
    return options;
  }
  if (given.contains("version") || (!rest.empty() && rest[0] == "version")) {
    options.message = fmt::format("extreme_gpu_trainer {}", version);
    return options;
  }
  EGT_TRY(take_command(rules, rest, options));
  EGT_TRY(add_files(rules, options, given));
  EGT_TRY(apply_all(rules, given, options));
  if (options.common.print_config) {
    EGT_TRY_ASSIGN(options.message, config_text(options));
  }
  return options;
}

Result<Options> resumed_options(const Options& asked, const std::vector<std::string>& first) {
  GivenByName given, anew;
  std::vector<std::string> rest;
  Options options;
  const Rules rules = option_rules(options);
  options.arguments = asked.arguments;
  for (auto& [arguments, found] : {std::pair(&first, &given), std::pair(&asked.arguments, &anew)}) {
    EGT_TRY(split_command_line(rules, *arguments, *found, rest));
    EGT_TRY(add_files(rules, options, *found));
  }
  given.erase("output");
  given.erase("config");
  for (auto& [name, values] : anew) given[name] = std::move(values);
  EGT_TRY(apply_all(rules, given, options));
  return options;
}

Status refuse(const std::string& option, std::string_view why) {
  return wrong(fmt::format("{}: {}", option, why));
}

Status refuse(const Injection& injection, std::string_view why) {
  return refuse(fmt::format("--inject {}", to_text(injection)), why);
}

Status check_place(const Injection& injection, InjectionPlace place, std::string_view command) {
  if ((row_of(injection.kind).places & place) != 0 && !injection.peer) return {};
  return refuse(injection, fmt::format("{} has no place for it; use {}, without a peer", command,
                                       kinds_with_place(place)));
}

Status check_injections(const std::vector<Injection>& injections, int ranks, bool one_rank_has_two_states) {
  unsigned missing = 0;
  if (ranks < 2) missing |= needs_peers;
  if (ranks < 2 && !one_rank_has_two_states) missing |= needs_states;
  for (const Injection& injection : injections) {
    if (injection.rank >= ranks)
      return refuse(injection, fmt::format("rank {} is not in this run; use 0 to {}, or more ranks",
                                           injection.rank, ranks - 1));
    if (const InjectionNeedRow* const unmet = unmet_need(injection.kind, missing))
      return refuse(injection, unmet->refusal);
  }
  return {};
}

}  // namespace egt
