#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command/options/option_table.hpp"
#include "command/options/presets.hpp"

namespace egt {
namespace {

using Rules = std::vector<OptionRule>;

/// The default that the options start with, as the user would write it.
std::string first_default(const OptionValue& value) {
  const Json json = value.to_config();
  return json.is_number_float() ? digits(json.get<double>())
                                : fmt::format("{}", fmt::join(value.texts(), ","));
}

/// The help with the defaults in it. The rule is bound to options with the values that they start with.
std::string help_of(const OptionRule& rule) {
  std::string help = rule.help;
  const auto put = [&help](const std::string& name, const std::string& text) {
    if (const std::size_t at = help.find(name); at != std::string::npos) help.replace(at, name.size(), text);
  };
  if (help.find("{}") != std::string::npos) put("{}", first_default(rule.value));
  for (const Default& one : rule.value.defaults) put(fmt::format("{{{}}}", one.when), one.text);
  return help;
}

Rules rules_of(const CommandRow& command, const Rules& all) {
  Rules rules;
  for (const OptionRule& rule : all)
    if (knows(command.name, rule.commands)) rules.push_back(rule);
  return rules;
}

bool takes_path(const OptionRule& rule) {
  const std::string& placeholder = rule.value.placeholder;
  return placeholder == "PATH" || placeholder == "FILE" || placeholder == "DIR";
}

/// Possible values; empty: any value is possible. Capitals are placeholders for others.
std::vector<std::string> values_of(const OptionRule& rule) {
  std::vector<std::string> values;
  if (rule.name == "preset") {
    for (const Preset& preset : presets()) values.push_back(preset.name);
    return values;
  }
  std::string_view rest = rule.value.placeholder;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '|' || c == '-';
  };
  if (rest.find('|') == std::string_view::npos || !std::all_of(rest.begin(), rest.end(), is_word))
    return values;
  for (std::size_t end = 0; end != std::string_view::npos;
       rest.remove_prefix(std::min(end + 1, rest.size()))) {
    end = rest.find('|');
    values.emplace_back(rest.substr(0, end));
  }
  return values;
}

std::vector<std::string_view> command_names() {
  std::vector<std::string_view> names;
  for (const CommandRow& row : command_rows()) names.push_back(row.name);
  return names;
}

std::string injection_help() {
  std::string kinds;
  std::string behaviour;
  for (const InjectionRow& row : injection_rows)
    (row.changes_data() ? kinds : behaviour) += fmt::format(" {}", row.name);
  return fmt::format(
      "Injected faults: --inject "
      "KIND:rank=R,step=S[,bit=B+B..][,count=C][,stride=T][,layer=L][,peer=P][,ms=M][,lasting=L]\n"
      "  KIND is one of{}\n"
      "  or one that leaves data as they are:{}\n"
      "  mpirun -np 3 extreme_gpu_trainer --steps 200 --inject weight:rank=1,step=20,layer=3,bit=7\n",
      kinds, behaviour);
}

std::string closing_words() {
  return "Sizes take KB MB GB TB (powers of 1000) and KiB MiB GiB TiB (powers of 1024), and need their "
         "unit.\n"
         "A time without one is in seconds.\n"
         "Exit codes: 0 pass, 1 fault, 2 wrong usage, 3 the environment cannot, 4 incomplete, 5 degraded,\n"
         "6 interrupted. To stop a run cleanly: touch DIR/stop in its run directory, or SIGUSR2 to mpirun.";
}

std::string help_lines(std::string_view command) {
  std::string text = fmt::format("Options of {}, with their defaults in parentheses\n\n", command), group;
  Options defaults;
  for (const OptionRule& rule : option_rules(defaults)) {
    if (!knows(command, rule.commands)) continue;
    if (group != rule.group) text += fmt::format("{}{}:\n", group.empty() ? "" : "\n", rule.group);
    group = rule.group;
    const std::string left = fmt::format("--{} {}", rule.name, rule.value.placeholder);
    text += fmt::format("  {:<32} {}\n", left, help_of(rule));
  }
  return text + '\n';
}

// Manual page

/// Escapes text for roff.
std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '-') escaped += '\\';
    escaped += c;
    if (c == '\n') escaped += "\\&";  // no line starts a roff request
  }
  return "\\&" + escaped;
}

std::string roff_options(const Rules& rules) {
  std::string text;
  for (const OptionRule& rule : rules) {
    const std::string name = fmt::format("\\fB{}\\fR", roff("--" + rule.name).substr(2));
    const std::string letter = *rule.letter ? fmt::format("\\fB{}\\fR, ", roff(rule.letter).substr(2)) : "";
    const std::string value =
        rule.value.placeholder.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(rule.value.placeholder));
    text += fmt::format(".TP\n{}{}{}\n{}\n", letter, name, value, roff(help_of(rule)));
  }
  return text;
}

std::string roff_block(std::string_view text) {
  return fmt::format(".nf\n{}\n.fi\n", roff(text));
}

std::string manual_page(std::string_view version) {
  Options defaults;
  const Rules all = option_rules(defaults);
  std::string text = fmt::format(
      ".TH EXTREME_GPU_TRAINER 1 \"\" \"extreme_gpu_trainer {}\" \"User Commands\"\n"
      ".SH NAME\nextreme_gpu_trainer \\- burns in GPU nodes and proves every result\n"
      ".SH SYNOPSIS\n\\fBmpirun \\-np\\fR \\fIN\\fR \\fBextreme_gpu_trainer\\fR [\\fICOMMAND\\fR] "
      "[\\fIoptions\\fR]\n"
      ".SH DESCRIPTION\nEach rank binds one GPU and loads all of it: training, transcendental functions, "
      "GEMMs "
      "over tested memory, exchange with the other ranks, and files. All results are checked bit for bit. "
      "At the "
      "end it prints pass or fail, and identifies the faulty GPU. If no GPU responds, the same runs on the "
      "host's cores.\n"
      ".SH COMMANDS\n",
      version);
  for (const CommandRow& row : command_rows())
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n.br\n{}\n", row.name, roff(row.help), roff(row.example));
  text += ".SH OPTIONS\nDefaults are in parentheses.\n";
  const auto add = [&](std::string_view heading, const auto& is_here) {
    Rules rules;
    std::copy_if(all.begin(), all.end(), std::back_inserter(rules), is_here);
    if (!rules.empty()) text += fmt::format(".SS {}\n{}", heading, roff_options(rules));
  };
  add("Of every command", [](const OptionRule& rule) { return rule.commands == of_all; });
  for (const CommandRow& row : command_rows())
    add(fmt::format("Of {}", row.name),
        [&](const OptionRule& rule) { return rule.commands != of_all && (rule.commands & row.bit) != 0; });
  text += ".SH PRESETS\n";
  for (const Preset& preset : presets())
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(preset.name), roff(preset.help()));
  text +=
      ".SH INJECTED FAULTS\n" + roff_block(injection_help()) + ".SH NOTES\n" + roff_block(closing_words());
  text.pop_back();
  return text;
}

// Completion

std::string bash_completion() {
  Options defaults;
  const Rules all = option_rules(defaults);
  const std::string names = fmt::format("{}", fmt::join(command_names(), " "));
  std::string values, options;
  for (const CommandRow& row : command_rows()) {
    options += fmt::format("    {}) words=\"", row.name);
    for (const OptionRule& rule : rules_of(row, all)) {
      options += fmt::format("--{} ", rule.name);
      if (rule.value.placeholder.empty()) continue;
      const std::vector<std::string> words = values_of(rule);
      const std::string action = !words.empty()     ? fmt::format("compgen -W \"{}\"", fmt::join(words, " "))
                                 : takes_path(rule) ? "compgen -f"
                                                    : "";
      values += fmt::format("    '{} --{}') {}return ;;\n", row.name, rule.name,
                            action.empty() ? "" : fmt::format("COMPREPLY=($({} -- \"$current\")); ", action));
    }
    options.back() = '"';
    options += " ;;\n";
  }
  return fmt::format(
      "_extreme_gpu_trainer() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= word words\n"
      "  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n"
      "    [[ -z $command && \" {0} \" == *\" $word \"* ]] && command=$word\n"
      "  done\n"
      "  COMPREPLY=()\n"
      "  case \"${{command:-burn}} $before\" in\n{1}  esac\n"
      "  case \"${{command:-burn}}\" in\n{2}  esac\n"
      "  if [[ $current == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  elif [[ -z $command ]]; then\n"
      "    COMPREPLY=($(compgen -W \"{0}\" -- \"$current\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"$current\"))\n"
      "  fi\n"
      "}}\n"
      "complete -o filenames -F _extreme_gpu_trainer extreme_gpu_trainer",
      names, values, options);
}

std::string fish_completion() {
  Options defaults;
  const Rules all = option_rules(defaults);
  const auto quoted = [](std::string_view text) {
    std::string result;
    for (const char c : text) result += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
    return "'" + result + "'";
  };
  const std::string names = fmt::format("{}", fmt::join(command_names(), " "));
  const std::string first = fmt::format("not __fish_seen_subcommand_from {}", names);
  std::string text;
  const auto line = [&](const std::string& condition, const std::string& rest) {
    text += fmt::format("complete -c extreme_gpu_trainer -n {} {}\n", quoted(condition), rest);
  };
  for (const CommandRow& row : command_rows()) {
    line(first, fmt::format("-f -a {} -d {}", row.name, quoted(row.help)));
    const std::string here = fmt::format("__fish_seen_subcommand_from {}", row.name);
    for (const OptionRule& rule : rules_of(row, all)) {
      const std::vector<std::string> words = values_of(rule);
      const std::string value =
          rule.value.placeholder.empty() ? ""
          : !words.empty()   ? fmt::format(" -x -a {}", quoted(fmt::format("{}", fmt::join(words, " "))))
          : takes_path(rule) ? " -r -F"
                             : " -x";
      line(row.name == "burn" ? fmt::format("{}; or {}", first, here) : here,
           fmt::format("-l {} -d {}{}", rule.name, quoted(help_of(rule)), value));
    }
  }
  text.pop_back();
  return text;
}

}  // namespace

std::string help_text(std::string_view command) {
  const std::string_view known = find_command(command) ? command : "burn";
  std::string text =
      "mpirun -np N extreme_gpu_trainer [COMMAND] [options]\n"
      "Burns in GPU nodes, one device per rank, and proves every result.\n\n"
      "Commands:\n";
  for (const CommandRow& row : command_rows())
    text += fmt::format("  {:<9} {}\n  {:<9} {}\n", row.name, row.help, "", row.example);
  text += '\n';
  if (known != "burn" && knows(known, of_load))
    text += "It has its own smaller defaults for the load, and prints them.\n\n";
  text += help_lines(known);
  if (known == "burn") {
    text += "Presets (--preset NAME):\n";
    for (const Preset& preset : presets()) text += fmt::format("  {:<12} {}\n", preset.name, preset.help());
    text += '\n';
  }
  if (knows(known, of_injections)) text += injection_help() + '\n';
  text +=
      "COMMAND --help lists another command's options; help man, bash, zsh or fish prints the manual page "
      "or\n"
      "the completion of a shell.\n";
  return text + closing_words();
}

std::optional<std::string> manual_text(std::string_view what, std::string_view version) {
  if (what == "man") return manual_page(version);
  if (what == "bash") return bash_completion();
  if (what == "zsh")  // zsh also supports bash completions
    return "#compdef extreme_gpu_trainer\nautoload -U +X bashcompinit && bashcompinit\n" + bash_completion();
  if (what == "fish") return fish_completion();
  return std::nullopt;
}

}  // namespace egt
