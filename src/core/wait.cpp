#include "egt/core/wait.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

namespace egt {
namespace {

constexpr double spin_seconds = 20e-6;
constexpr std::chrono::microseconds first_sleep{10};
constexpr std::chrono::microseconds longest_sleep{1000};

Status why_ended(const WaitLimits& limits, double elapsed) {
  if (limits.stop.stop_requested())
    return {StatusCode::stopped, fmt::format("{}: a stop was asked for while waiting", limits.what)};
  // Written so that a deadline that is not a number counts as passed.
  if (!(elapsed < limits.seconds))
    return {StatusCode::timeout, fmt::format("{} did not end within {:g} s", limits.what, limits.seconds)};
  return {};
}

}  // namespace

Status wait_until(const std::function<Result<bool>()>& done, const WaitLimits& limits) {
  const Clock::time_point start = Clock::now();
  std::chrono::microseconds sleep = first_sleep;
  for (;;) {
    EGT_TRY_ASSIGN(const bool is_done, done());
    if (is_done) return {};
    const double elapsed = seconds_since(start);
    EGT_TRY(why_ended(limits, elapsed));
    if (elapsed < spin_seconds) continue;
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, longest_sleep);
  }
}

}  // namespace egt
