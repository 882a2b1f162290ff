#pragma once

#include <optional>
#include <string>

#include "report/log_level.hpp"

namespace egt {

/// How the console shows that the run goes on: a bar redrawn in place, one line an epoch, or only the
/// verdict.
enum class ProgressStyle { automatic, bar, lines, none };

struct TerminalSize {
  int columns = 80;  ///< at least 2
  int lines = 0;     ///< 0: not known
};

struct ConsoleStyle {
  ProgressStyle progress = ProgressStyle::lines;  ///< never automatic
  bool results_colour = false;                    ///< of standard output
  bool messages_colour = false;                   ///< of standard error, where progress goes too
  bool one_terminal = false;  ///< both are the same one: a single stream keeps their order
  bool utf8 = false;          ///< emoji are welcome
  std::string terminal = {};  ///< that shows progress; empty: none, or its `size` stays
  TerminalSize size = {};
  LogLevel messages = LogLevel::info;  ///< which faults and notices are told; the verdict always is
};

/// What suits this process's output, error and environment (NO_COLOR, TERM, the locale). Under mpirun rank
/// 0's own are always terminals or pipes of mpirun's making, so mpirun's are looked at.
ConsoleStyle detect_console_style(ProgressStyle wanted);

/// Of the terminal at that path, now: it changes when its window does.
TerminalSize terminal_size(const std::string& terminal);

/// The terminal that `file` (1: standard output, 2: error) of the launcher (mpirun) above process `pid` goes
/// to; nothing where it is a file or a pipe or there is no launcher. `proc`: where the process file system
/// is.
std::optional<std::string> launcher_terminal(const std::string& proc, int pid, int file);

}  // namespace egt
