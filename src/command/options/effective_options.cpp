#include <algorithm>
#include <cassert>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command/options/option_table.hpp"
#include "egt/core/text.hpp"

namespace egt {
namespace {

/// Whether the result of `command` has the option. verify is burn, so its result has all load options.
bool is_told(const OptionRule& rule, std::string_view command) {
  const Commands loads = (rule.commands & of_burn) != 0 ? of_verify : 0;
  return rule.scope == Scope::result && knows(command, rule.commands | rule.also_told | loads);
}

template <typename Names>
bool is_one_of(const std::string& name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// Whether other options make the option ineffective, so that it has no default.
bool is_replaced(const OptionRule& rule, const Options& options) {
  return rule.name == "batch" ? options.burn.global_batch.has_value()
                              : options.bench.ceilings && is_one_of(rule.name, scaling_options);
}

/// Whether the option was not given and would be rejected, since the other options make it ineffective.
bool is_left_out(const OptionRule& rule, const Options& options) {
  if (options.given.contains(rule.name)) return false;
  if (rule.name == "check-budget") return options.burn.train.check_every > 0;
  if (rule.name == "device") return true;  // --backend already determines it
  return is_replaced(rule, options) ||
         (options.command == "bench" && !options.bench.ceilings && is_one_of(rule.name, file_options));
}

/// Applies the defaults for `words` to options that the user did not set, and reports each.
template <typename Report>
void put(Options& options, const Words& words, Report report) {
  const auto rules = option_rules(options);
  for (const OptionRule& rule : rules) {
    const Default* const one = default_for(rule, words);
    if (one == nullptr || options.given.contains(rule.name) || is_replaced(rule, options)) continue;
    if (find_rule(rules, rule.name, options.command) != &rule) continue;  // an option of another command
    [[maybe_unused]] const std::string wrong = rule.value.set(one->text);
    assert(wrong.empty());  // the unit tests parse every default
    report(rule, *one);
  }
}

/// The value as TOML; empty: none. Some texts cannot be read back, since CLI11 treats any # as a comment.
Result<std::string> toml_of(const OptionRule& rule) {
  const Json value = rule.value.to_config();
  const std::vector<std::string> texts = rule.value.texts();
  if (texts.empty()) return std::string();
  std::vector<std::string> quoted = texts;
  const bool is_text = value.is_string() || (value.is_array() && value.front().is_string());
  for (std::string& text : quoted) {
    const char quote = text.find_first_of("\"\\") == std::string::npos ? '"' : '\'';
    if (is_text) text = quote + text + quote;
  }
  std::string all = fmt::format("{}", fmt::join(quoted, ", "));
  if (value.is_array()) all = fmt::format("[{}]", all);
  std::istringstream line(fmt::format("{} = {}", rule.name, all));
  const auto items = CLI::ConfigTOML().from_config(line);
  if (items.size() == 1 && items[0].inputs == texts) return all;
  return Status(StatusCode::invalid_argument,
                fmt::format("--print-config: --{} {} cannot stand in a config file; leave it out", rule.name,
                            printable(all)));
}

}  // namespace

void apply_defaults(Options& options, Backend backend) {
  const bool is_host = backend == Backend::host;
  Words words = {options.command, is_host ? "host" : "cuda"};
  if (options.loadtest.quick) words.insert("--quick");
  if (options.command == "bench") words.insert(options.bench.ceilings ? "--ceilings" : "scaling");
  put(options, words, [&](const OptionRule& rule, const Default& one) {
    const std::string text = fmt::format("--{} {}", rule.name, one.text);
    if (one.when != "host")
      options.command_defaults += " " + text;
    else if (knows(options.command, rule.commands))
      options.host_defaults.push_back(text);
  });
  if (!is_host) return;
  // Together with the host defaults, a step takes about 40 ms on one core: GEMMs of 0.36 GFLOP, and 0.34
  // million iterations of extreme compute.
  options.burn.train.epoch_steps = 10;
  options.burn.collective.every = 10;
  options.burn.collective.elements = 1u << 18;
}

void apply_load(Options& options) {
  if (options.burn.train.load != LoadKind::train) return;
  put(options, {"--load=train"},
      [&](const OptionRule& rule, const Default& one) { options.given.emplace(rule.name, one.text); });
}

Json effective_options(const Options& options) {
  Options bound = options;
  Json json = {{"command", options.command}};
  for (const OptionRule& rule : option_rules(bound))
    if (is_told(rule, options.command)) json[rule.name] = rule.value.json();
  if (options.burn.global_batch && json.contains("batch")) json["batch"] = nullptr;
  if (knows(options.command, of_burn | of_verify)) json["epoch-steps"] = options.burn.train.epoch_steps;
  return json;
}

Result<std::string> config_text(const Options& options) {
  const auto is_of = [&](Backend backend) {
    return options.common.backend == Backend::automatic ? backend : options.common.backend;
  };
  Options on_gpu = options, on_host = options;
  apply_defaults(on_gpu, is_of(Backend::cuda));
  apply_defaults(on_host, is_of(Backend::host));
  const auto gpu_rules = option_rules(on_gpu), host_rules = option_rules(on_host);
  const bool bench_chooses_mode = options.command == "bench" && !options.given.contains("mode");
  std::string set, open;
  for (std::size_t i = 0; i < gpu_rules.size(); ++i) {
    const OptionRule& rule = gpu_rules[i];
    if (!knows(options.command, rule.commands) || rule.scope == Scope::command_line ||
        is_left_out(rule, options))
      continue;
    EGT_TRY_ASSIGN(const std::string value, toml_of(rule));
    EGT_TRY_ASSIGN(const std::string of_host, toml_of(host_rules[i]));
    const bool is_of_ranks = bench_chooses_mode && rule.name == "mode";
    if (is_of_ranks || value != of_host)
      open += fmt::format("# {} = {}  # {}\n", rule.name, value,
                          is_of_ranks ? "one rank: single" : "host: " + of_host);
    else if (!value.empty())
      set += fmt::format("{} = {}\n", rule.name, value);
  }
  if (!open.empty())
    open =
        "# Defaults that depend on the device, here of a GPU; --backend cuda or host puts them in:\n" + open;
  std::string text = fmt::format("# extreme_gpu_trainer {} --config FILE\n{}{}", options.command, set, open);
  text.pop_back();
  return text;
}

}  // namespace egt
