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

/// A monotonic clock in seconds from an arbitrary origin, which tests may set. Thread-safe.
using SecondsClock = std::function<double()>;
/// `Clock` in seconds, as a SecondsClock.
inline double steady_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

/// Seconds since 1970 in UTC, rounded to milliseconds: "2026-01-31T23:59:59.123Z".
std::string utc_at(double unix_seconds);
/// The current time in the format of `utc_at`.
std::string utc_now();
/// The wall clock as seconds since 1970.
double unix_now();
/// The wall clock in UTC for file and folder names: "20260131T235959Z".
std::string utc_stamp();

}  // namespace egt
