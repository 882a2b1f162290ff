#include "egt/core/load_control.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace egt {
namespace {

constexpr double longest_rest_s = 5;

}  // namespace

void LoadControl::rest(double worked_seconds, const std::stop_token& stop) const {
  const double share = duty_;
  const double seconds = std::min(worked_seconds * (1 - share) / share, longest_rest_s);
  if (seconds <= 0) return;
  std::mutex mutex;
  std::condition_variable_any nobody;
  std::unique_lock lock(mutex);
  nobody.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
}

}  // namespace egt
