#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string_view>

#include "command/commands.hpp"
#include "command/options/options.hpp"
#include "command/run/run.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "judge/version.hpp"
#include "ranks/mpi/launcher.hpp"
#include "ranks/mpi/mpi_control.hpp"
#include "ranks/mpi/mpi_session.hpp"
#include "report/console/console_style.hpp"
#include "session/stop_signal.hpp"

namespace {

using namespace egt;

constexpr double control_timeout_s = 300.0;  // a peer may still fill its memory or complete its file

/// The only place that prints why a run did not start or how a command failed. Ranks other than 0 have the
/// same error, except if communication failed.
int fail(const Status& status, int rank) {
  const bool is_own = rank > 0 && status.code() == StatusCode::aborted;
  if (rank == 0 || is_own)
    fmt::print(stderr, "extreme_gpu_trainer: {}{}\n", is_own ? fmt::format("rank {}: ", rank) : "",
               status.what());
  return exit_code_of(status);
}

/// Returns the exit code of a command whose result is its output: an error if standard output failed.
int printed(int code) {
  std::cout.flush();
  const bool is_lost = !std::cout.good() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  return code == 0 && is_lost ? fail({StatusCode::unavailable, "standard output cannot be written"}, 0)
                              : code;
}

/// Skips the exit handlers of libraries. If threads or memory are short, OpenBLAS would wait for a thread
/// that never started.
[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

/// Out of memory is no program error, so any thread prints one line and exits with the contract's code.
[[noreturn]] void end_without_memory() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc&) {
    static_cast<void>(write_all(STDERR_FILENO,
                                "extreme_gpu_trainer: the host has no memory left for this process; give it "
                                "more, or look at ulimit -v and the control group's limit\n"));
    std::_Exit(code_without_verdict);
  } catch (...) {
    __gnu_cxx::__verbose_terminate_handler();
  }
  std::abort();
}

int run(int argc, char** argv, Clock::time_point started) {
  const Launcher launcher = find_launcher();
  Result<Options> options = parse_options(argc, argv, program_version(), results_columns());
  // Printed once per node, since the config file may be wrong on a single node.
  if (!options.ok()) return fail(options.status(), launcher.local_rank);
  const CommandRow& command = *find_command(options.value().command);
  const bool has_message = options.value().message.has_value();
  if (has_message || !command.is_run) StopSignal::give_back();
  if (has_message) {  // needs no ranks
    if (!launcher.is_other_rank()) std::cout << *options.value().message << "\n";
    return printed(0);
  }
  if (command.without_ranks) {
    // A stale launcher variable must not suppress the comparison and return success.
    if (launcher.is_other_rank())
      return fail(
          {StatusCode::invalid_argument,
           fmt::format(
               "{} takes one process, but {}={} and this is rank {}: start it without {}, or unset that",
               command.name, launcher.variable, launcher.size, launcher.rank, launcher.name)},
          0);
    const Result<int> code = command.without_ranks(options.value());
    return code.ok() ? printed(code.value()) : fail(code.status(), 0);
  }
  Result<std::unique_ptr<MpiSession>> mpi = MpiSession::open(argc, argv);
  // Each rank reports it, since limits differ between nodes.
  if (!mpi.ok()) leave(fail({StatusCode::unavailable, mpi.status().what()}, 0));
  if (const Status all_here = check_world_size(launcher, mpi.value()->place().size); !all_here.ok())
    return fail(all_here, launcher.size > 0 ? launcher.rank : 0);
  if (command.is_run) StopSignal::keep();
  const int rank = mpi.value()->place().rank;
  Result<std::unique_ptr<Control>> control = open_mpi_control(*mpi.value(), control_timeout_s);
  if (!control.ok()) return fail(control.status(), rank);
  const Result<int> code =
      command.on_ranks
          ? command.on_ranks(options.value(), *mpi.value(), *control.value(), started)
          : execute(options.value(), *command.purpose(), *mpi.value(), *control.value(), started);
  if (!code.ok()) return fail(code.status(), rank);
  return command.is_run ? code.value() : printed(code.value());
}

/// A signal during library startup must not kill a rank either. The loader calls this after loading all
/// libraries and before initializing them.
void take_signals(int, char**, char**) {
  StopSignal::take();
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_all)(int, char**, char**) = take_signals;

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_without_memory);
  return run(argc, argv, egt::Clock::now());
}
