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
#include "report/export/result_files.hpp"
#include "report/log_level.hpp"
#include "report/serve/serve_address.hpp"
#include "session/options.hpp"
#include "session/resumed_run.hpp"
#include "workload/bench/scaling_options.hpp"
#include "workload/options.hpp"

/// Options from the command line and the config file. The list in option_rules.cpp defines every option;
/// others are unknown.
namespace egt {

enum class Backend { automatic, cuda, host };

struct CommonOptions {
  Backend backend = Backend::automatic;
  std::vector<int> devices;  ///< indexed by local rank; empty: device = local rank
  std::string output;  ///< run directory, empty: a new one under extreme_gpu_trainer_runs; for compare the
                       ///< JSON file, empty: none
  std::uint64_t seed = 1;
  double metrics_sample_rate = 1.0;  ///< seconds between samples
  ProgressStyle progress = ProgressStyle::automatic;
  std::string config;  ///< file with further options; empty: none
  std::string preset;  ///< defaults that all other sources override; empty: none
  bool print_config = false;
  std::string log_file;  ///< empty: none
  RequestedFiles requested_files;
  std::string write_expect;  ///< file that devices writes; empty: none
  std::string history;       ///< directory of the GPUs' past runs; empty: none
  LogLevel log_level = LogLevel::info;
};

struct BurnOptions {
  /// The run ends at the first limit it reaches; at least one is set.
  std::optional<double> duration_seconds = 300.0;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> global_batch;  ///< samples of all ranks; replaces train.batch
  std::string precision = "cycle";           ///< "cycle", or a name known to parse_precision
  TrainOptions train;  ///< `precisions` stays empty, since "cycle" depends on the device
  CollectiveOptions collective;
  MemoryOptions memory;
  FileOptions file;
  std::optional<PulseShape> pulse;  ///< unset: steady load
  bool fail_fast = false;           ///< stop at the first fault
  std::string resume;               ///< directory of a truncated run to resume; empty: none
};

/// Options of every command that runs on devices.
struct RunOptions {
  GuardOptions guard;
  WatchOptions watch;
  std::vector<Injection> injections;  ///< injected faults of all ranks
  std::optional<ServeAddress> serve;  ///< address of rank 0's live page; unset: none
  std::string expect;                 ///< file or name of expectations; empty: none
  Json expected = Json::object();     ///< its values, see judge/expectations.hpp
};

struct CompareOptions {
  std::vector<std::string> files;  ///< result files or run directories; empty only with --history
  bool fleet = false;              ///< one row per node; `files` may also be directories of run directories
  ComparisonOptions comparison;
};

struct Options {
  std::string command = "burn";  ///< a name in command_rows of command/options/option_table.hpp
  std::string path;  ///< of "report" and "watch" the run directory, of "reproduce" the file; else empty
  std::optional<std::string>
      message;  ///< text of --help, --version or --print-config: print it with a newline and exit 0
  CommonOptions common;
  RunOptions run;
  BurnOptions burn;  ///< also the load of verify and selftest
  LinksOptions links;
  BenchOptions bench;  ///< its mlp uses the training options of `burn`
  LoadTestOptions loadtest;
  CompareOptions compare;
  ResumePoint resumed;                       ///< `part` 0: a new run. Not set by the command line
  std::vector<std::string> arguments;        ///< as typed, without the program name
  std::map<std::string, std::string> given;  ///< long name without dashes to value, including the config file
  std::vector<std::string> host_defaults;    ///< set by apply_defaults: "--batch 128"
  std::string command_defaults;              ///< set by apply_defaults: " --batch 16 --memory 48MB"
};

/// `version` is the text of --version. Errors are invalid_argument in one line with the option, its value and
/// the allowed values. Reads the config file, and nothing else besides its arguments. `columns`: width of the
/// help.
Result<Options> parse_options(int argc, const char* const* argv, const std::string& version,
                              std::size_t columns = 80);

/// Options of a resumed run: its original options `first`, overridden by `asked`, which has `burn.resume`.
/// Same errors as above.
Result<Options> resumed_options(const Options& asked, const std::vector<std::string>& first);

/// invalid_argument in one line: an option with its value, and why it is refused.
Status refuse(const std::string& option, std::string_view why);
Status refuse(const Injection& injection, std::string_view why);
/// Refuses a kind that `command` cannot inject, and any peer.
Status check_place(const Injection& injection, InjectionPlace place, std::string_view command);

/// invalid_argument if an injection is impossible with this number of ranks: its rank does not exist, or it
/// could not be detected. `one_rank_has_two_states`: a single rank compares its weights with those of its
/// second passes.
Status check_injections(const std::vector<Injection>& injections, int ranks,
                        bool one_rank_has_two_states = false);

/// Applies the defaults of the command and the backend to options that the user did not set. Those of the
/// command's options are stored: in `host_defaults` the smaller ones of the host for any command, in
/// `command_defaults` those of this command.
void apply_defaults(Options& options, Backend backend);

/// Applies --load to options that the user did not set. They count as given afterwards.
void apply_load(Options& options);

/// Every effective value by long name, for the result and for comparing ranks. Equal dumps mean equal
/// options.
Json effective_options(const Options& options);

/// The expectations of an --expect file, or of a node in presets/expect/ by its name. The error does not name
/// the option.
Result<Json> read_expectations(const std::string& name);

/// The effective options as a TOML file for --config. A default that depends on an unspecified device is a
/// comment. invalid_argument: TOML cannot represent a value.
Result<std::string> config_text(const Options& options);

}  // namespace egt
