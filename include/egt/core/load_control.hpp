#pragma once

#include <algorithm>
#include <atomic>
#include <functional>

namespace egt {

/// How hard a rank may work: a guard turns it down, all that makes load looks at it. Any thread.
class LoadControl {
 public:
  static constexpr double least_duty = 0.05;

  /// The share of the time that may be spent working, least_duty to 1.
  double duty() const { return duty_; }
  void set_duty(double duty) { duty_ = std::clamp(duty, least_duty, 1.0); }
  static constexpr double longest_rest_seconds = 5;
  /// How long to rest after `worked_seconds` of work for the duty to be kept, seconds; 0: not at all.
  double rest_after(double worked_seconds) const;
  /// Sleeps so long; ends within 20 ms where `is_over` (asked often, on this thread) says that there is
  /// nothing to rest for any more.
  void rest(double worked_seconds, const std::function<bool()>& is_over) const;

  /// The share of its planned memory that the fill may hold, 0 to 1.
  double memory_share() const { return memory_share_; }
  void set_memory_share(double share) { memory_share_ = std::clamp(share, 0.0, 1.0); }

 private:
  std::atomic<double> duty_{1.0}, memory_share_{1.0};
};

}  // namespace egt
