#include "egt/core/clock.hpp"

#include <fmt/chrono.h>

namespace egt {
namespace {

using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;

WallTime wall_now() {
  return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

std::tm calendar(WallTime time) {
  return fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time)));
}

}  // namespace

std::string utc_now() {
  const WallTime now = wall_now();
  const auto milliseconds = now - std::chrono::floor<std::chrono::seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", calendar(now), milliseconds.count());
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string utc_stamp() {
  return fmt::format("{:%Y%m%dT%H%M%S}Z", calendar(wall_now()));
}

}  // namespace egt
