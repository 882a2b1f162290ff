#include "command/options/option_table.hpp"

namespace egt {
namespace {

/// verify is burn with defaults of its own: it tells all that loads the devices.
bool is_told(const OptionRule& rule, std::string_view command) {
  const Commands loads = (rule.commands & of_burn) != 0 ? of_verify : 0;
  return rule.scope == Scope::result && knows(command, rule.commands | rule.also_told | loads);
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

}  // namespace egt
