#pragma once

#include <optional>
#include <string>

#include "egt/report/log_level.hpp"

namespace egt {

/// How the console shows that the run goes on: a bar redrawn in place, one line an epoch, or only the
/// verdict.
enum class ProgressStyle { automatic, bar, lines, none };

struct ConsoleStyle {
  ProgressStyle progress = ProgressStyle::lines;  ///< never automatic
  bool colour = false;
  bool utf8 = false;                   ///< emoji are welcome
  int width = 80;                      ///< columns of the terminal
  LogLevel messages = LogLevel::info;  ///< which faults and notices are told; the verdict always is
};

/// What suits this process's output and environment (NO_COLOR, TERM, the locale). Under mpirun rank 0's own
/// output is always a terminal or a pipe of mpirun's making, so mpirun's is looked at.
ConsoleStyle detect_console_style(ProgressStyle wanted);

/// The terminal that the standard output of the launcher (mpirun) above process `pid` goes to; nothing where
/// it is a file or a pipe or there is no launcher. `proc`: where the process file system is.
std::optional<std::string> launcher_terminal(const std::string& proc, int pid);

}  // namespace egt
