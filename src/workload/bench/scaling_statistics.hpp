#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace egt {

/// Milliseconds an iteration, over the chunks of a trial: exact, since 1 % is what scaling is judged by.
struct ScalingTimes {
  double min = 0, p50 = 0, p95 = 0, max = 0;

  /// From the fastest to the slowest chunk, in percent of the middle one.
  double spread_percent() const { return p50 > 0 ? 100 * (max - min) / p50 : 0; }
};

/// Of each chunk's milliseconds an iteration; at least one. p50 between the two middle ones; p95: the lowest
/// that 95 % do not exceed.
ScalingTimes step_times(std::vector<double> ms);

/// Untimed rounds before a measurement, each longer than the one before up to what a chunk takes: until two
/// of that length agree, or some time has passed. The same decisions from the same times.
class WarmUp {
 public:
  static constexpr double agreement = 0.02, most_seconds = 0.3;
  static constexpr int fewest_rounds = 2;
  /// A round is at most so many times as long as the one before: a few iterations may have been lucky, on a
  /// host that does much else.
  static constexpr std::int64_t growth = 8;

  /// Iterations are in multiples of `multiple`.
  WarmUp(double trial_seconds, std::int64_t multiple) : trial_seconds_(trial_seconds), multiple_(multiple) {}

  /// Of the next round.
  std::int64_t iterations() const { return iterations_.value_or(multiple_); }
  /// What it took, an iteration, on the slowest device.
  void add(double step_ms);
  bool is_over() const { return over_; }
  /// Of the last round.
  double step_ms() const { return step_ms_; }

 private:
  const double trial_seconds_;
  const std::int64_t multiple_;
  std::optional<std::int64_t> iterations_;
  double step_ms_ = 0, spent_ms_ = 0;
  int rounds_ = 0;
  bool over_ = false;
};

}  // namespace egt
