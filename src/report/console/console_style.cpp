#include "report/console/console_style.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "egt/core/text.hpp"

namespace egt {
namespace {

constexpr int max_ancestors = 16, min_columns = 2;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_launcher(std::string_view name) {
  constexpr std::string_view names[] = {"mpirun", "mpiexec", "orterun", "prterun", "prun", "hydra_pmi_proxy"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string process_name(const std::string& proc, int pid) {
  std::string name;
  std::getline(std::ifstream(proc + "/" + std::to_string(pid) + "/comm"), name);
  return name;
}

/// 0 if unknown.
int parent_of(const std::string& proc, int pid) {
  std::ifstream status(proc + "/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) return std::atoi(line.c_str() + 5);
  return 0;
}

std::optional<std::string> terminal_behind(const std::string& link) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(link, error);
  if (!error && (target.starts_with("/dev/pts/") || target.starts_with("/dev/tty"))) return target;
  return std::nullopt;
}

bool under_launcher() {
  return !environment("OMPI_COMM_WORLD_SIZE").empty() || !environment("PMI_RANK").empty();
}

/// The terminal that displays `file`.
std::optional<std::string> terminal_of(int file) {
  if (under_launcher()) return launcher_terminal("/proc", ::getpid(), file);
  return ::isatty(file) ? std::optional("/proc/self/fd/" + std::to_string(file)) : std::nullopt;
}

bool is_same_terminal(const std::string& one, const std::string& other) {
  struct stat a {
  }, b{};
  return ::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 && a.st_rdev == b.st_rdev;
}

/// The first variable that is set decides, as in POSIX.
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = environment(name);
    if (value.empty()) continue;
    value = to_lower(value);
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

TerminalSize terminal_size(const std::string& terminal) {
  TerminalSize result;
  const int file = ::open(terminal.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return result;
  winsize size{};
  if (::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    result = {std::max<int>(size.ws_col, min_columns), size.ws_row};
  ::close(file);
  return result;
}

namespace {

/// COLUMNS if it is a whole number, else 0.
std::size_t columns_variable() {
  std::size_t columns = 0;
  return parse_whole(environment("COLUMNS"), columns) ? columns : 0;
}

}  // namespace

std::size_t results_columns() {
  if (const std::size_t columns = columns_variable(); columns > 0) return columns;
  const std::optional<std::string> terminal = terminal_of(STDOUT_FILENO);
  return static_cast<std::size_t>((terminal ? terminal_size(*terminal) : TerminalSize()).columns);
}

std::optional<std::string> launcher_terminal(const std::string& proc, int pid, int file) {
  for (int i = 0; i < max_ancestors && pid > 1; ++i, pid = parent_of(proc, pid))
    if (is_launcher(process_name(proc, pid)))
      return terminal_behind(proc + "/" + std::to_string(pid) + "/fd/" + std::to_string(file));
  return std::nullopt;
}

ConsoleStyle detect_console_style(ProgressStyle wanted) {
  const std::optional<std::string> results = terminal_of(STDOUT_FILENO),
                                   messages = terminal_of(STDERR_FILENO);
  const bool can_draw = environment("TERM") != "dumb",
             has_colour = can_draw && environment("NO_COLOR").empty();
  ConsoleStyle style;
  style.progress = wanted;
  if (wanted == ProgressStyle::automatic)
    style.progress = messages && can_draw ? ProgressStyle::bar : ProgressStyle::lines;
  style.results_colour = results && has_colour;
  style.messages_colour = messages && has_colour;
  style.one_terminal = results && messages && is_same_terminal(*results, *messages);
  style.utf8 = locale_is_utf8();
  style.terminal = messages.value_or("");
  style.results_columns = columns_variable();
  if (results && style.results_columns == 0) style.results_terminal = *results;
  return style;
}

}  // namespace egt
