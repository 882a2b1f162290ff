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

std::string text_of(WallTime time) {
  const auto milliseconds = time - std::chrono::floor<std::chrono::seconds>(time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", calendar(time), milliseconds.count());
}

}  // namespace

std::string utc_at(double unix_seconds) {
  return text_of(
      WallTime(std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(unix_seconds))));
}

std::string utc_now() {
  return text_of(wall_now());
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string utc_stamp() {
  return fmt::format("{:%Y%m%dT%H%M%S}Z", calendar(wall_now()));
}

}  // namespace egt
