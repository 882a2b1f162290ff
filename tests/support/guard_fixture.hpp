#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/health/guard.hpp"

/// A limiter of a GPU with simulated readings.
namespace egt::test {

constexpr double slowdown_c = 90, shutdown_c = 95;

inline SensorLimits limits_of_a_gpu() {
  SensorLimits limits;
  limits.power_limit_w = 700;
  limits.slowdown_temperature_c = slowdown_c;
  limits.shutdown_temperature_c = shutdown_c;
  return limits;
}

/// A limiter, its readings and its output so far; one reading per second.
struct Watched {
  explicit Watched(GuardOptions options = {}, SensorLimits limits = limits_of_a_gpu(),
                   std::optional<double> planned_seconds = {})
      : guard(options, limits, {.rank = 1, .hostname = "node7", .device_uuid = "GPU-1"}, planned_seconds) {}

  void look(std::optional<SensorReading> reading, HostLoad host = {}) {
    last = guard.look({.seconds = now, .device = std::move(reading), .host = host});
    now += 1;
    min_duty = std::min(min_duty, last.duty);
    for (auto& text : last.warnings) warnings.push_back(text);
    for (auto& text : last.notices) notices.push_back(text);
    for (auto& finding : last.findings) findings.push_back(finding);
  }
  void finish() {
    for (auto& finding : guard.finish()) findings.push_back(finding);
  }
  std::vector<std::string> kinds() const {
    std::vector<std::string> all;
    for (const Finding& finding : findings) all.push_back(finding.kind);
    return all;
  }

  Guard guard;
  double now = 1000;
  GuardDecision last;
  double min_duty = 1;
  std::vector<std::string> warnings, notices;
  std::vector<Finding> findings;
};

}  // namespace egt::test
