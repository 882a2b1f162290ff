#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "report/log_level.hpp"

namespace egt {

/// Progress display: a bar redrawn in place, one line per 10 s, or only the verdict.
enum class ProgressStyle { automatic, bar, lines, none };

struct TerminalSize {
  int columns = 80;  ///< at least 2
  int lines = 0;     ///< 0: unknown
};

struct ConsoleStyle {
  ProgressStyle progress = ProgressStyle::lines;  ///< never automatic
  bool results_colour = false;                    ///< for standard output
  bool messages_colour = false;                   ///< for standard error, which also gets progress
  bool one_terminal = false;  ///< both are the same terminal: one stream keeps their order
  bool utf8 = false;          ///< emoji are allowed
  std::string terminal = {};  ///< terminal with the progress; empty: none, or fixed `size`
  TerminalSize size = {};
  std::string results_terminal = {};   ///< terminal with the results; empty: none, or fixed `results_columns`
  std::size_t results_columns = 0;     ///< its width; 0: lines have no limit
  LogLevel messages = LogLevel::info;  ///< min severity of messages; the verdict is always shown
};

/// The style for this process's stdout, stderr and environment (NO_COLOR, TERM, locale). Under mpirun, rank
/// 0's own streams are always mpirun's terminals or pipes, so mpirun's own streams are checked.
ConsoleStyle detect_console_style(ProgressStyle wanted);

/// Current size of the terminal at that path. It changes when its window is resized.
TerminalSize terminal_size(const std::string& terminal);

/// Width of standard output: COLUMNS if it is a whole number above 0, else the terminal's, else 80.
std::size_t results_columns();

/// The terminal of stream `file` (1: stdout, 2: stderr) of the launcher (mpirun) above process `pid`. Empty
/// if it is a file or a pipe, or without a launcher. `proc`: path of the process file system.
std::optional<std::string> launcher_terminal(const std::string& proc, int pid, int file);

}  // namespace egt
