#include "command/options/option_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

namespace egt {

const std::vector<CommandRow>& command_rows() {
  static const std::vector<CommandRow> rows = {
      {"burn", of_burn, "train, fill memory, cycle files, exchange data, all verified (the default)",
       "mpirun --quiet -np 2 extreme_gpu_trainer burn --duration 1h --memory 90%", true, nullptr, run_burn},
      {"verify", of_verify, "30 seconds: does every device really compute, hold memory and exchange data?",
       "mpirun --quiet -np 4 extreme_gpu_trainer verify", true, make_verify},
      {"links", of_links, "bandwidth and latency of every pair of devices, of the host and of collectives",
       "mpirun --quiet -np 4 extreme_gpu_trainer links --size 1GB", true, make_links},
      {"bench", of_bench, "how training, voxelization and sensor fusion scale from one device to all",
       "mpirun --quiet -np 4 extreme_gpu_trainer bench --workload mlp,voxelize", true, make_bench},
      {"loadtest", of_loadtest,
       "train and run a simple CNN and a ResNet-18 at several batches, and search documents by a trained "
       "encoder",
       "mpirun --quiet -np 2 extreme_gpu_trainer loadtest --quick", true, make_loadtest},
      {"selftest", of_selftest,
       "inject every fault that the checks claim to detect, on every rank, and verify that each is detected",
       "mpirun --quiet -np 2 extreme_gpu_trainer selftest", true, make_selftest},
      {"compare", of_compare, "speed-up, efficiency, cost and regressions between result files",
       "extreme_gpu_trainer compare A.json B.json --tolerance 5%", false, nullptr, nullptr, run_compare,
       " FILE FILE.."},
      {"report", of_report,
       "judge the run of a directory from its journals, also after a crash, and write its result",
       "extreme_gpu_trainer report DIR", false, nullptr, nullptr, run_report, " DIR"},
      {"watch", of_watch, "show a running job in a terminal until it ends, from its run directory",
       "extreme_gpu_trainer watch DIR", false, nullptr, nullptr, run_watch, " DIR"},
      {"reproduce", of_reproduce,
       "repeat the kept operation of a fault on every rank's device: failed N of 100",
       "mpirun --quiet -np 2 extreme_gpu_trainer reproduce FILE", false, nullptr, run_reproduce, nullptr,
       " FILE"},
      {"devices", of_devices, "available devices, supported features, and the reason for each that is not",
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

const Default* default_for(const OptionRule& rule, const Words& words) {
  const auto applies = [&](const Default& one) {
    std::istringstream when(one.when);
    return std::all_of(std::istream_iterator<std::string>(when), {},
                       [&](const std::string& word) { return words.contains(word); });
  };
  const auto& all = rule.value.defaults;
  const auto found = std::find_if(all.rbegin(), all.rend(), applies);
  return found == all.rend() ? nullptr : &*found;
}

}  // namespace egt
