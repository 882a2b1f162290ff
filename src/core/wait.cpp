#include "egt/core/wait.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

namespace egt {
namespace {

constexpr double spin_seconds = 20e-6, first_sleep_s = 10e-6;
/// Sleeps double up to 1 ms, so that a short wait ends promptly. In a longer wait, a sleep is 1/16 of the
/// elapsed time, up to 4 ms, so that the thread wakes at most 250 times per second.
constexpr double longest_sleep_s = 1e-3, share_of_wait = 1.0 / 16, longest_in_long_wait_s = 4e-3;

Status why_ended(const WaitLimits& limits, double elapsed) {
  if (limits.stop.stop_requested())
    return {StatusCode::stopped, fmt::format("{}: a stop was asked for while waiting", limits.what)};
  // Written so that a NaN deadline counts as passed.
  if (!(elapsed < limits.seconds))
    return {StatusCode::timeout, fmt::format("{} did not end within {:g} s", limits.what, limits.seconds)};
  return {};
}

}  // namespace

Status wait_until(const std::function<Result<bool>()>& done, const WaitLimits& limits) {
  const Clock::time_point start = Clock::now();
  double sleep_s = first_sleep_s;
  for (;;) {
    EGT_TRY_ASSIGN(const bool is_done, done());
    if (is_done) return {};
    const double elapsed = seconds_since(start);
    EGT_TRY(why_ended(limits, elapsed));
    if (elapsed < spin_seconds) continue;
    std::this_thread::sleep_for(std::chrono::duration<double>(sleep_s));
    sleep_s =
        std::min(2 * sleep_s, std::clamp(share_of_wait * elapsed, longest_sleep_s, longest_in_long_wait_s));
  }
}

}  // namespace egt
