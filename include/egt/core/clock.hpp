#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace egt {

using Clock = std::chrono::steady_clock;

/// Seconds since `start`.
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A clock that tests may set: monotonic, in seconds from some moment. Safe from any thread.
using SecondsClock = std::function<double()>;
/// That of `Clock`.
inline double steady_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

/// Seconds since 1970 in UTC, as "2026-01-31T23:59:59.123Z": the nearest millisecond.
std::string utc_at(double unix_seconds);
/// The wall clock in that form.
std::string utc_now();
/// The wall clock as seconds since 1970.
double unix_now();
/// The wall clock in UTC for names of files and folders, as "20260131T235959Z".
std::string utc_stamp();

}  // namespace egt
