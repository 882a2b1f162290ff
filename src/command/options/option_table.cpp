#include "command/options/option_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "command/options/presets.hpp"

namespace egt {
namespace {

std::string help_lines(std::string_view command) {
  std::string text = fmt::format("Options of {}, with their defaults in parentheses\n\n", command), group;
  Options defaults;
  for (const OptionRule& rule : option_rules(defaults)) {
    if (!knows(command, rule.commands)) continue;
    if (group != rule.group) text += fmt::format("{}{}:\n", group.empty() ? "" : "\n", rule.group);
    group = rule.group;
    const std::string left = fmt::format("--{} {}", rule.name, rule.value.placeholder);
    text += fmt::format("  {:<32} {}\n", left, rule.help);
  }
  return text + '\n';
}

}  // namespace

const std::vector<CommandRow>& command_rows() {
  static const std::vector<CommandRow> rows = {
      {"burn", of_burn, "train, fill memory, cycle files, exchange data, all verified (the default)",
       "mpirun -np 2 extreme_gpu_trainer burn --duration 1h --memory 90%", true, nullptr, run_burn},
      {"verify", of_verify, "30 seconds: does every device really compute, hold memory and exchange data?",
       "mpirun -np 4 extreme_gpu_trainer verify", true, make_verify},
      {"links", of_links, "bandwidth and latency of every pair of devices, of the host and of collectives",
       "mpirun -np 4 extreme_gpu_trainer links --size 1GB", true, make_links},
      {"bench", of_bench, "how training, voxelization and sensor fusion scale from one device to all",
       "mpirun -np 4 extreme_gpu_trainer bench --workload mlp,voxelize", true, make_bench},
      {"loadtest", of_loadtest,
       "train and run a simple CNN and a ResNet-18 at several batches, and search documents by a trained "
       "encoder",
       "mpirun -np 2 extreme_gpu_trainer loadtest --quick", true, make_loadtest},
      {"selftest", of_selftest,
       "inject every fault that the checks claim to detect, on every rank, and verify that each is detected",
       "mpirun -np 2 extreme_gpu_trainer selftest", true, make_selftest},
      {"compare", of_compare, "speed-up, efficiency, cost and regressions between result files",
       "extreme_gpu_trainer compare A.json B.json --tolerance 5%", false, nullptr, nullptr, run_compare},
      {"report", of_report,
       "judge the run of a directory from its journals, also after a crash, and write its result",
       "extreme_gpu_trainer report DIR", false, nullptr, nullptr, run_report},
      {"reproduce", of_reproduce,
       "repeat the kept operation of a fault on every rank's device: failed N of 100",
       "mpirun -np 2 extreme_gpu_trainer reproduce FILE", false, nullptr, run_reproduce},
      {"devices", of_devices, "what is there, what each device supports, and why not",
       "extreme_gpu_trainer devices", false, nullptr, run_devices},
  };
  return rows;
}

const CommandRow* find_command(std::string_view name) {
  const auto& rows = command_rows();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](auto& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

std::string command_list() {
  std::string text;
  for (const CommandRow& row : command_rows())
    text += fmt::format("{}{}", text.empty() ? "" : ", ", row.name);
  return text;
}

/// The distance is the number of letters to insert, delete or replace (Levenshtein distance).
std::string nearest(std::string_view text, const std::vector<std::string>& names) {
  std::string best;
  std::size_t least = std::min<std::size_t>(2, text.size() / 2) + 1;
  for (const std::string& name : names) {
    std::vector<std::vector<std::size_t>> changes(text.size() + 1, std::vector<std::size_t>(name.size() + 1));
    for (std::size_t i = 0; i <= text.size(); ++i)
      for (std::size_t j = 0; j <= name.size(); ++j) {
        if (i == 0 || j == 0) {
          changes[i][j] = i + j;
          continue;
        }
        changes[i][j] = std::min({changes[i - 1][j] + 1, changes[i][j - 1] + 1,
                                  changes[i - 1][j - 1] + (text[i - 1] != name[j - 1])});
      }
    if (changes[text.size()][name.size()] >= least) continue;
    least = changes[text.size()][name.size()];
    best = name;
  }
  return best;
}

std::string suggestion(std::string_view text, const std::vector<std::string>& names) {
  const std::string name = nearest(text, names);
  return name.empty() ? "" : fmt::format("did you mean {}? ", name);
}

bool knows(std::string_view command, Commands commands) {
  const CommandRow* row = find_command(command);
  return row && (row->bit & commands) != 0;
}

const OptionRule* find_rule(const std::vector<OptionRule>& rules, std::string_view name,
                            std::string_view command) {
  const OptionRule* found = nullptr;
  for (const OptionRule& rule : rules)
    if (rule.name == name && (found == nullptr || knows(command, rule.commands))) found = &rule;
  return found;
}

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
    text += "It has smaller defaults of its own for what loads the devices, and says which.\n\n";
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

}  // namespace egt
