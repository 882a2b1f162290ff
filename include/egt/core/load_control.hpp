#pragma once

#include <algorithm>
#include <atomic>
#include <stop_token>

namespace egt {

/// How hard a rank may work: a guard turns it down, all that makes load looks at it. Any thread.
class LoadControl {
 public:
  static constexpr double least_duty = 0.05;

  /// The share of the time that may be spent working, least_duty to 1.
  double duty() const { return duty_; }
  void set_duty(double duty) { duty_ = std::clamp(duty, least_duty, 1.0); }
  /// After `worked_seconds` of work: sleeps until the duty is kept, at most some seconds; a stop ends it.
  void rest(double worked_seconds, const std::stop_token& stop = {}) const;

  /// The share of its planned memory that the fill may hold, 0 to 1.
  double memory_share() const { return memory_share_; }
  void set_memory_share(double share) { memory_share_ = std::clamp(share, 0.0, 1.0); }

 private:
  std::atomic<double> duty_{1.0}, memory_share_{1.0};
};

}  // namespace egt
