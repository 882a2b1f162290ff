#include "workload/bench/bench_measurement.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "workload/bench/scaling_plan.hpp"

namespace egt {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::optional<double> told(double figure) {
  return std::isnan(figure) ? std::nullopt : std::optional(figure);
}

double or_none(const std::optional<double>& figure) {
  return figure.value_or(none);
}

/// The largest of all ranks' i-th figure.
double largest(const std::vector<std::vector<double>>& ranks, std::size_t i) {
  double most = 0;
  for (const std::vector<double>& figures : ranks) most = std::max(most, figures[i]);
  return most;
}

}  // namespace

void DeviceMeans::Mean::add(const std::optional<double>& figure) {
  if (!figure) return;
  sum += *figure;
  ++count;
}

std::optional<double> DeviceMeans::Mean::value() const {
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

void DeviceMeans::add(const SensorReading& reading) {
  utilization_.add(reading.gpu_utilization_percent);
  power_.add(reading.power_w);
  clock_.add(reading.sm_clock_mhz);
}

DeviceFigures DeviceMeans::figures() const {
  return {.memory_bytes = {},
          .gpu_utilization_percent = utilization_.value(),
          .power_w = power_.value(),
          .sm_clock_mhz = clock_.value()};
}

Result<std::vector<std::vector<double>>> BenchTrialMaker::meet(const std::vector<double>& own,
                                                               const char* phase) {
  std::vector<double> figures = own;
  figures.push_back(surroundings_.stopping() ? 1 : 0);
  EGT_TRY_ASSIGN(const auto all, surroundings_.share(figures, phase));
  std::vector<std::vector<double>> ranks;
  for (auto at = all.begin(); at != all.end(); at += static_cast<std::ptrdiff_t>(figures.size())) {
    ranks.emplace_back(at, at + static_cast<std::ptrdiff_t>(figures.size()));
    if (ranks.back().back() > 0) measured_.interrupted = true;
  }
  return ranks;
}

Result<Measured> BenchTrialMaker::make(BenchJob* job) {
  measured_ = {};
  EGT_TRY(warm_up(job));
  if (!measured_.interrupted) EGT_TRY(measure(job));
  if (!measured_.interrupted) EGT_TRY(conclude(job));
  return std::move(measured_);
}

Status BenchTrialMaker::warm_up(BenchJob* job) {
  WarmUp warm_up(surroundings_.trial_seconds, multiple_);
  while (!warm_up.is_over() && !measured_.interrupted) {
    double own = 0;
    if (job != nullptr) {
      EGT_TRY_ASSIGN(const BurstTimes times, job->burst(1, warm_up.iterations()));
      own = times.chunk_ms.front() / static_cast<double>(warm_up.iterations());
    }
    EGT_TRY_ASSIGN(const auto ranks, meet({own}, "bench: warms up"));
    warm_up.add(largest(ranks, 0));
  }
  step_ms_ = warm_up.step_ms();
  return {};
}

Status BenchTrialMaker::measure(BenchJob* job) {
  const LoopPlan plan = plan_loop(step_ms_, surroundings_.trial_seconds, multiple_);
  std::vector<double> steps;
  while (static_cast<int>(steps.size()) < plan.chunks && !measured_.interrupted) {
    const int chunks = std::min(plan.per_burst, plan.chunks - static_cast<int>(steps.size()));
    std::vector<double> own(static_cast<std::size_t>(chunks), 0.0);
    if (job != nullptr) {
      EGT_TRY_ASSIGN(BurstTimes times, job->burst(chunks, plan.per_chunk));
      device_.add(surroundings_.reading());
      own = std::move(times.chunk_ms);
      const double busy_ms = times.busy_ms / static_cast<double>(chunks * plan.per_chunk);
      busy_ms_ = std::min(busy_ms_.value_or(busy_ms), busy_ms);
    }
    EGT_TRY_ASSIGN(const auto ranks, meet(own, "bench: measures"));
    for (std::size_t chunk = 0; chunk < own.size(); ++chunk)
      steps.push_back(largest(ranks, chunk) / static_cast<double>(plan.per_chunk));
  }
  measured_.step = step_times(std::move(steps));
  return {};
}

Status BenchTrialMaker::conclude(BenchJob* job) {
  DeviceFigures device;
  if (job != nullptr) {
    device = device_.figures();
    device.memory_bytes = surroundings_.memory_bytes();
    EGT_TRY_ASSIGN(measured_.own, job->check());
  }
  const std::vector<double> own = {measured_.own.failure.empty() ? 0.0 : 1.0,
                                   or_none(busy_ms_),
                                   or_none(measured_.own.copy_ms),
                                   or_none(device.memory_bytes),
                                   or_none(device.gpu_utilization_percent),
                                   or_none(device.power_w),
                                   or_none(device.sm_clock_mhz)};
  EGT_TRY_ASSIGN(const auto ranks, meet(own, "bench: checks the results"));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<double>& figures = ranks[rank];
    if (figures[0] > 0) measured_.failed.push_back(static_cast<int>(rank));
    measured_.busy_ms.push_back(figures[1]);
    measured_.copy_ms.push_back(figures[2]);
    measured_.devices.push_back({.memory_bytes = told(figures[3]),
                                 .gpu_utilization_percent = told(figures[4]),
                                 .power_w = told(figures[5]),
                                 .sm_clock_mhz = told(figures[6])});
  }
  measured_.interrupted = false;  // all is measured: the next step tells of the stop
  return {};
}

}  // namespace egt
