#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command/options/option_table.hpp"
#include "command/options/presets.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

using Rules = std::vector<OptionRule>;

std::string value_text(const OptionRule& rule) {
  const Json json = rule.value.to_config();
  return json.is_number_float() ? digits(json.get<double>())
                                : fmt::format("{}", fmt::join(rule.value.texts(), ","));
}

/// "(90%; host: 256MB)": the values that `command` uses if the option is not given. `conditions`: other
/// options that change the default, such as --quick. Empty: no default, or a flag.
std::string defaults_of(const OptionRule& rule, std::string_view command,
                        std::initializer_list<const char*> conditions = {}) {
  if (rule.value.placeholder.empty()) return {};
  const std::string first = value_text(rule);
  const auto text_with = [&](const char* backend, const std::string& condition) {
    Words words = {std::string(command), backend};
    if (!condition.empty()) words.insert(condition);
    if (command == "bench" && condition != "--ceilings") words.emplace("scaling");
    const Default* const one = default_for(rule, words);
    return one ? one->text : first;
  };
  std::string all = text_with("cuda", "");
  const auto add = [&all](std::string_view when, const std::string& text) {
    all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", when, text);
  };
  const std::string on_host = text_with("host", "");
  if (on_host != all) add("host", on_host);
  for (const char* condition : conditions) {
    const std::string cuda = text_with("cuda", condition), host = text_with("host", condition);
    if (cuda != text_with("cuda", "")) add(condition, cuda);
    if (host != on_host && host != cuda) add(fmt::format("host with {}", condition), host);
  }
  return all.empty() ? "" : fmt::format(" ({})", all);
}

std::string_view short_help(const OptionRule& rule) {
  return std::string_view(rule.help).substr(0, rule.help.find('\n'));
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

std::string injection_help(std::size_t columns) {
  std::string kinds;
  std::string behaviour;
  for (const InjectionRow& row : injection_rows)
    (row.changes_data() ? kinds : behaviour) += fmt::format(" {}", row.name);
  std::string text = "Injected faults:\n";
  for (const std::string& line :
       {std::string("--inject KIND:rank=R,step=S[,KEY=VALUE..]"),
        std::string("KEY: bit=B+B.., count=C, stride=T, layer=L, peer=P, ms=M, lasting=once|check|always"),
        fmt::format("KIND that corrupts data:{}", kinds), fmt::format("KIND that does not:{}", behaviour),
        std::string("Example: mpirun --quiet -np 3 extreme_gpu_trainer --steps 200 "
                    "--inject weight:rank=1,step=20,layer=3,bit=7")})
    text += fmt::format("  {}\n", wrapped(line, columns, 4, 2));
  return text;
}

std::string closing_words(std::size_t columns) {
  return wrapped(
      "Sizes take KB MB GB TB (powers of 1000) and KiB MiB GiB TiB (powers of 1024), and need their unit. "
      "A time without one is in seconds.\n"
      "Exit codes: 0 pass, 1 fault, 2 wrong usage, 3 environment error, 4 incomplete, 5 degraded, 6 "
      "interrupted.\n"
      "To stop a run cleanly: touch DIR/stop in its run directory, or send SIGUSR2 to mpirun.",
      columns, 2);
}

/// Options that most users need, as one group.
constexpr std::string_view common_options[] = {"duration", "preset", "quick",   "output", "memory",
                                               "no-io",    "serve",  "devices", "help",   "version"};

std::string option_line(const OptionRule& rule, std::string_view command, std::size_t columns) {
  constexpr std::size_t min_columns = 70, description = 30;
  const std::string left =
      fmt::format("  {}--{}{}{}", *rule.letter ? fmt::format("{}, ", rule.letter) : "", rule.name,
                  rule.value.placeholder.empty() ? "" : " ", rule.value.placeholder);
  const std::size_t indent = columns < min_columns ? 6 : description;
  const bool has_own_line = left.size() + 2 > indent;
  const std::string text = fmt::format("{}{}", short_help(rule), defaults_of(rule, command));
  return fmt::format("{:<{}}{}{}\n", left, has_own_line ? 0 : indent,
                     has_own_line ? "\n" + std::string(indent, ' ') : "",
                     wrapped(text, columns, indent, indent));
}

std::string help_lines(std::string_view command, std::size_t columns) {
  Options defaults;
  const Rules rules = option_rules(defaults);
  std::string text = "Common (defaults in parentheses):\n", group;
  const auto is_common = [](const OptionRule& rule) {
    return std::find(std::begin(common_options), std::end(common_options), rule.name) !=
           std::end(common_options);
  };
  for (const std::string_view name : common_options)
    if (const OptionRule& rule = *find_rule(rules, name, command); knows(command, rule.commands))
      text += option_line(rule, command, columns);
  for (const OptionRule& rule : rules) {
    if (!knows(command, rule.commands) || is_common(rule)) continue;
    if (group != rule.group) text += fmt::format("\n{}:\n", rule.group);
    group = rule.group;
    text += option_line(rule, command, columns);
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

std::string roff_options(const Rules& rules, std::string_view command) {
  std::string text;
  for (const OptionRule& rule : rules) {
    const std::string name = fmt::format("\\fB{}\\fR", roff("--" + rule.name).substr(2));
    const std::string letter = *rule.letter ? fmt::format("\\fB{}\\fR, ", roff(rule.letter).substr(2)) : "";
    const std::string value =
        rule.value.placeholder.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(rule.value.placeholder));
    const std::string_view detail = std::string_view(rule.help).substr(short_help(rule).size());
    text += fmt::format(
        ".TP\n{}{}{}\n{}\n", letter, name, value,
        roff(fmt::format("{}{}{}", short_help(rule),
                         defaults_of(rule, command, {"--quick", "--ceilings", "--load=train"}), detail)));
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
      ".SH SYNOPSIS\n\\fBmpirun \\-\\-quiet \\-np\\fR \\fIN\\fR \\fBextreme_gpu_trainer\\fR "
      "[\\fICOMMAND\\fR] "
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
  const auto add = [&](std::string_view heading, std::string_view command, const auto& is_here) {
    Rules rules;
    std::copy_if(all.begin(), all.end(), std::back_inserter(rules), is_here);
    if (!rules.empty()) text += fmt::format(".SS {}\n{}", heading, roff_options(rules, command));
  };
  add("Of every command", "burn", [](const OptionRule& rule) { return rule.commands == of_all; });
  for (const CommandRow& row : command_rows())
    add(fmt::format("Of {}", row.name), row.name,
        [&](const OptionRule& rule) { return rule.commands != of_all && (rule.commands & row.bit) != 0; });
  text += ".SH PRESETS\n";
  for (const Preset& preset : presets())
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(preset.name), roff(preset.help()));
  text += ".SH INJECTED FAULTS\n" + roff_block(injection_help(80)) + ".SH NOTES\n" +
          roff_block(closing_words(80));
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
           fmt::format("-l {} -d {}{}", rule.name, quoted(short_help(rule)), value));
    }
  }
  text.pop_back();
  return text;
}

}  // namespace

std::string help_text(std::string_view command, std::size_t columns) {
  const CommandRow* const row = find_command(command);
  const std::string_view known = row ? row->name : "burn";
  const auto lines = [columns](const std::string& line, std::size_t indent, std::size_t at = 0) {
    return wrapped(line, columns, indent, at) + '\n';
  };
  std::string text;
  if (row) {
    text = lines(fmt::format("Usage: {}extreme_gpu_trainer {}{} [options]",
                             row->without_ranks ? "" : "mpirun --quiet -np N ", row->name, row->paths),
                 4) +
           lines(row->help, 0) + "\n";
    text += lines(fmt::format("Example: {}", row->example), 4) + "\n";
  } else {
    text = lines("Usage: mpirun --quiet -np N extreme_gpu_trainer [COMMAND] [options]", 4) +
           lines("Burns in GPU nodes, one device per rank, and verifies every result.", 0);
    text += "\nCommands:\n";
    for (const CommandRow& one : command_rows())
      text += fmt::format("  {:<9} {}\n", one.name, wrapped(one.help, columns, 12, 12));
    text += "\n" + lines(
                       "Options of burn, which runs without COMMAND, follow. COMMAND --help lists those of "
                       "another command.",
                       0);
    text += '\n';
  }
  text += help_lines(known, columns);
  if (known == "burn") {
    text += "Presets (--preset NAME):\n";
    for (const Preset& preset : presets())
      text += fmt::format("  {:<12} {}\n", preset.name, wrapped(preset.help(), columns, 15, 15));
    text += '\n';
  }
  if (knows(known, of_injections)) text += injection_help(columns) + '\n';
  text += lines(
      "Details of every option: extreme_gpu_trainer help man | man -l -. Shell completion: help bash, "
      "zsh or fish.",
      2);
  return text + closing_words(columns);
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
