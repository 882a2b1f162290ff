#include <algorithm>
#include <iterator>
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

/// Whether the option was not given and would be rejected, since the other options make it ineffective.
bool is_left_out(const OptionRule& rule, const Options& options) {
  const auto is_one_of = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), rule.name) != std::end(names);
  };
  if (options.given.contains(rule.name)) return false;
  if (rule.name == "batch") return options.burn.global_batch.has_value();
  if (rule.name == "check-budget") return options.burn.train.check_every > 0;
  if (options.command == "bench")
    return options.bench.ceilings ? is_one_of(scaling_options) : is_one_of(file_options);
  return rule.name == "device";  // --backend already determines it
}

/// The value's elements, or the value itself; empty for null.
std::vector<std::string> elements(const Json& value) {
  std::vector<std::string> texts;
  const auto add = [&](const Json& one) {
    texts.push_back(one.is_string() ? one.get<std::string>() : one.dump());
  };
  if (value.is_array())
    std::for_each(value.begin(), value.end(), add);
  else if (!value.is_null())
    add(value);
  return texts;
}

/// The value as TOML; empty: none. Some texts cannot be read back, since CLI11 treats any # as a comment.
Result<std::string> toml_of(const OptionRule& rule) {
  const Json value = rule.value.config ? rule.value.config() : rule.value.json();
  const std::vector<std::string> texts = elements(value);
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

/// Adds the defaults of the command and of the host backend for a device of `backend`.
Options with_defaults(Options options, Backend backend) {
  if (backend == Backend::host) apply_host_defaults(options);
  apply_command_defaults(options, backend);
  return options;
}

}  // namespace

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
  Options on_gpu = with_defaults(options, is_of(Backend::cuda)),
          on_host = with_defaults(options, is_of(Backend::host));
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
