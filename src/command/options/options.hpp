#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "egt/core/injection.hpp"
#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "report/compare/comparison.hpp"
#include "report/console/console_style.hpp"
#include "report/log_level.hpp"
#include "report/serve/serve_address.hpp"
#include "session/options.hpp"
#include "session/resumed_run.hpp"
#include "workload/bench/scaling_options.hpp"
#include "workload/options.hpp"

/// What the user asks for on the command line and in a config file. One list in option_rules.cpp says all of
/// every option; what is not in it is unknown.
namespace egt {

enum class Backend { automatic, cuda, host };

struct CommonOptions {
  Backend backend = Backend::automatic;
  std::vector<int> devices;  ///< by local rank; empty: local rank = device
  std::string output;  ///< the run directory, empty: a new one under extreme_gpu_trainer_runs; of compare the
                       ///< JSON file, empty: none
  std::uint64_t seed = 1;
  double metrics_sample_rate = 1.0;  ///< seconds between samples
  ProgressStyle progress = ProgressStyle::automatic;
  std::string config;  ///< the file that more options are read from; empty: none
  std::string preset;  ///< whose options are in effect where nothing else gives them; empty: none
  bool print_config = false;
  std::string log_file;    ///< empty: none
  std::string nodes_file;  ///< likewise
  LogLevel log_level = LogLevel::info;
};

struct BurnOptions {
  /// The run ends at whichever comes first; at least one is set.
  std::optional<double> duration_seconds = 300.0;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> global_batch;  ///< samples of all ranks; replaces train.batch
  std::string precision = "cycle";           ///< "cycle", or a name that parse_precision knows
  TrainOptions train;  ///< `precisions` is left empty: what "cycle" means depends on the device
  CollectiveOptions collective;
  MemoryOptions memory;
  FileOptions file;
  std::optional<PulseShape> pulse;  ///< none: the load is steady
  bool fail_fast = false;           ///< the first fault ends the run
  std::string resume;               ///< the directory of a run that was cut, to go on with; empty: none
};

/// Of every command that runs on devices.
struct RunOptions {
  GuardOptions guard;
  WatchOptions watch;
  std::vector<Injection> injections;  ///< faults on purpose, of all ranks
  std::optional<ServeAddress> serve;  ///< where rank 0 serves a page of the run; none: nowhere
};

struct CompareOptions {
  std::vector<std::string> files;  ///< result files or directories of runs; of "compare" never empty
  ComparisonOptions comparison;
};

struct Options {
  std::string command = "burn";  ///< one of command_rows in command/options/option_table.hpp
  std::string directory;         ///< of "report" only, and then never empty: the run directory
  std::optional<std::string>
      message;  ///< --help, --version, --print-config: print this, which ends without a newline, and exit 0
  CommonOptions common;
  RunOptions run;
  BurnOptions burn;  ///< of verify and selftest too: what they load the devices with
  LinksOptions links;
  BenchOptions bench;  ///< its mlp is trained as `burn` says
  LoadTestOptions loadtest;
  CompareOptions compare;
  ResumePoint resumed;                       ///< `part` 0: a new run. Not from the command line
  std::vector<std::string> arguments;        ///< as the user typed them, without the program's name
  std::map<std::string, std::string> given;  ///< long name without dashes to value; config file included
  std::vector<std::string> host_defaults;    ///< what apply_host_defaults put: "--batch 128"
};

/// `version` is what --version prints. An error is invalid_argument and one line that names the option, its
/// value and what is allowed. Reads the config file; looks at nothing else outside its arguments.
Result<Options> parse_options(int argc, const char* const* argv, const std::string& version);

/// The options of a run that goes on: those that it began with, `first`, and over them what `asked` (with
/// `burn.resume`) gives anew. Errors as above.
Result<Options> resumed_options(const Options& asked, const std::vector<std::string>& first);

/// invalid_argument where one of the injections cannot be in a run of so many ranks: its rank is not there,
/// or it could not be found. `one_rank_has_two_states`: one rank compares its weights with those of its
/// second passes.
Status check_injections(const std::vector<Injection>& injections, int ranks,
                        bool one_rank_has_two_states = false);

/// Names of options, and values as the user would write them.
using Defaults = std::vector<std::pair<const char*, const char*>>;

/// The built-in defaults of `command` on a backend, or with no command those that all have there. Each has
/// its option, which takes it.
Defaults built_in_defaults(std::string_view command, Backend backend);

/// Puts those of the options' command where the user gave no value of his own. Those that it put:
/// " --batch 16 --memory 48MB".
std::string apply_command_defaults(Options& options, Backend backend);

/// What --load asks for, where the user gave no value of his own; counts as given from here on.
void apply_load(Options& options);

/// The smaller defaults of the host backend, likewise; those of the command's options become
/// `host_defaults`.
void apply_host_defaults(Options& options);

/// Every value in effect, by long name: for the result, and to compare ranks (equal dumps: equal options).
Json effective_options(const Options& options);

/// The same as a TOML file that --config reads back to them. Where a default depends on the device and
/// nothing says which, the line is a comment. invalid_argument: a value that cannot stand in such a file.
Result<std::string> config_text(const Options& options);

}  // namespace egt
