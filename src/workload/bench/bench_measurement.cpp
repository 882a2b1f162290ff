#include "workload/bench/bench_measurement.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

namespace egt {
namespace {

/// RankFigures as an array of doubles, which is how the ranks share them.
using Figures = std::array<double, sizeof(RankFigures) / sizeof(double)>;

/// Max step times kept to estimate their deviation. Bounds the memory of a trial of one hour.
constexpr std::size_t max_kept_steps = 1 << 16;

constexpr double normal_quantile_95 = 1.6448536269514722;  // in standard deviations above the mean

}  // namespace

Result<Meeting> BenchTrialMaker::meet(std::span<const double> own, const char* phase) {
  EGT_TRY_ASSIGN(Meeting met, context_.meet(own, phase));
  measured_.interrupted = met.interrupted;
  return met;
}

Result<Measured> BenchTrialMaker::make(BenchJob* job) {
  EGT_TRY(warm_up(job));
  if (!measured_.interrupted) EGT_TRY(measure(job));
  if (!measured_.interrupted) EGT_TRY(make_up(job));
  if (!measured_.interrupted) EGT_TRY(conclude(job));
  return std::move(measured_);
}

Status BenchTrialMaker::warm_up(BenchJob* job) {
  WarmUp warm_up(context_.trial_seconds, multiple_);
  while (!warm_up.is_over() && !measured_.interrupted) {
    double own = 0;
    if (job != nullptr) {
      EGT_TRY_ASSIGN(const BurstTimes times, job->burst(1, warm_up.iterations()));
      own = times.chunk_ms.front() / static_cast<double>(warm_up.iterations());
    }
    EGT_TRY_ASSIGN(const Meeting met, meet(std::array{own}, "bench: warms up"));
    warm_up.add(met.max(0));
  }
  step_ms_ = warm_up.step_ms();
  return {};
}

Status BenchTrialMaker::measure(BenchJob* job) {
  const LoopPlan plan = plan_loop(step_ms_, context_.trial_seconds, multiple_);
  std::vector<double> steps;
  while (static_cast<int>(steps.size()) < plan.chunks && !measured_.interrupted) {
    const int chunks = std::min(plan.per_burst, plan.chunks - static_cast<int>(steps.size()));
    std::vector<double> own(static_cast<std::size_t>(chunks), 0.0);
    if (job != nullptr) {
      EGT_TRY_ASSIGN(BurstTimes times, job->burst(chunks, plan.per_chunk));
      const SensorReading reading = context_.reading();
      utilization_.add(reading.gpu_utilization_percent);
      power_.add(reading.power_w);
      clock_.add(reading.sm_clock_mhz);
      own = std::move(times.chunk_ms);
      const std::size_t kept = std::min(times.step_ms.size(), max_kept_steps - steps_.size());
      steps_.insert(steps_.end(), times.step_ms.begin(),
                    times.step_ms.begin() + static_cast<std::ptrdiff_t>(kept));
      // The first value replaces NaN, because fmin ignores NaN.
      busy_ms_ = std::fmin(busy_ms_, times.busy_ms / static_cast<double>(chunks * plan.per_chunk));
    }
    EGT_TRY_ASSIGN(const Meeting met, meet(own, "bench: measures"));
    for (std::size_t chunk = 0; chunk < own.size(); ++chunk)
      steps.push_back(met.max(chunk) / static_cast<double>(plan.per_chunk));
  }
  measured_.step = step_times(std::move(steps));
  return {};
}

Status BenchTrialMaker::make_up(BenchJob* job) {
  const LoopPlan plan = plan_loop(step_ms_, context_.trial_seconds, multiple_);
  while (!measured_.interrupted) {
    const double own = job != nullptr ? static_cast<double>(job->missing()) : 0;
    EGT_TRY_ASSIGN(const Meeting met, meet(std::array{own}, "bench: continues"));
    if (met.max(0) == 0) return {};
    if (job != nullptr) EGT_TRY(job->burst(1, plan.per_chunk * plan.per_burst).status());
  }
  return {};
}

Status BenchTrialMaker::conclude(BenchJob* job) {
  RankFigures& own = measured_.own.figures;
  if (job != nullptr) {
    const auto memory_bytes = context_.memory_bytes();  // the check may allocate more
    EGT_TRY_ASSIGN(measured_.own, job->check());
    own.failures = measured_.own.failure.empty() ? 0 : 1;
    own.busy_ms = busy_ms_;
    own.memory_bytes = memory_bytes.value_or(RankFigures::unknown);
    own.gpu_utilization_percent = utilization_.value().value_or(RankFigures::unknown);
    own.power_w = power_.value().value_or(RankFigures::unknown);
    own.sm_clock_mhz = clock_.value().value_or(RankFigures::unknown);
    if (!steps_.empty()) {
      const ScalingTimes steps = step_times(std::move(steps_));
      own.sigma_ms = (steps.p95 - steps.p50) / normal_quantile_95;
    }
  }
  // The trial is complete, so a stop request no longer matters here. The next step handles it.
  EGT_TRY_ASSIGN(const Meeting met, context_.meet(std::bit_cast<Figures>(own), "bench: checks the results"));
  for (const std::vector<double>& figures : met.figures) {
    Figures of_rank;
    std::copy_n(figures.begin(), of_rank.size(), of_rank.begin());
    measured_.ranks.push_back(std::bit_cast<RankFigures>(of_rank));
  }
  return {};
}

}  // namespace egt
