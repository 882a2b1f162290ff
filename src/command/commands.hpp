#pragma once

#include <memory>
#include <string_view>

#include "command/options/options.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "ranks/mpi/mpi_session.hpp"

/// The commands. A new one needs a row in `command_rows`, and a function or a RunPurpose.
namespace egt {

class RunPurpose;

/// A set of commands.
using Commands = unsigned;

/// A command. All ranks return the same exit code or Status. Exactly one of the last three members is set.
struct CommandRow {
  std::string_view name;
  Commands bit;
  const char* help;     ///< one line
  const char* example;  ///< a command line
  bool is_run;          ///< true: a run with a verdict; false: the printed output is the result
  std::unique_ptr<RunPurpose> (*purpose)() = nullptr;
  /// `started`: start time of the process.
  Result<int> (*on_ranks)(const Options& options, MpiSession& mpi, Control& control,
                          Clock::time_point started) = nullptr;
  Result<int> (*without_ranks)(const Options& options) = nullptr;
  const char* paths = "";  ///< positional arguments in the usage, each after a blank
};
/// In help order; the first is the default.
const std::vector<CommandRow>& command_rows();
/// Null if there is none.
const CommandRow* find_command(std::string_view name);

Result<int> run_burn(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);
std::unique_ptr<RunPurpose> make_verify();
std::unique_ptr<RunPurpose> make_links();
std::unique_ptr<RunPurpose> make_bench();
std::unique_ptr<RunPurpose> make_loadtest();
std::unique_ptr<RunPurpose> make_selftest();
Result<int> run_compare(const Options& options);
Result<int> run_report(const Options& options);
Result<int> run_watch(const Options& options);
Result<int> run_reproduce(const Options& options, MpiSession& mpi, Control& control,
                          Clock::time_point started);
Result<int> run_devices(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);

}  // namespace egt
