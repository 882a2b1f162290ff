#include "egt/core/load_control.hpp"

#include <chrono>
#include <thread>

#include "egt/core/clock.hpp"

namespace egt {
namespace {

constexpr double look_seconds = 0.02;

}  // namespace

double LoadControl::rest_after(double worked_seconds) const {
  const double share = duty_;
  return std::min(worked_seconds * (1 - share) / share, longest_rest_seconds);
}

void LoadControl::rest(double worked_seconds, const std::function<bool()>& is_over) const {
  const double seconds = rest_after(worked_seconds);
  const Clock::time_point start = Clock::now();
  for (double left = seconds; left > 0 && !is_over(); left = seconds - seconds_since(start))
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, look_seconds)));
}

}  // namespace egt
