#include <chrono>
#include <thread>

#include "command/commands.hpp"
#include "report/console/console.hpp"
#include "report/run_watch.hpp"

namespace egt {

Result<int> run_watch(const Options& options) {
  const auto console = open_console(detect_console_style(ProgressStyle::automatic));
  RunWatch watch(options.path, *console);
  while (true) {
    EGT_TRY_ASSIGN(const std::optional<int> code, watch.update());
    if (code) return *code;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace egt
