#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

#include "egt/core/types.hpp"

namespace egt {

/// Work that gets most of the device. `extreme`: training's transcendental chains, concurrently with the
/// memory test. `products`: memory-resident GEMMs, which leave the chains only a part of the device. Each
/// unit of the device thus reaches its limit, and is verified at it, for part of the time.
enum class LoadLead { extreme, products };

/// In each round of `epochs_a_round` epochs, GEMMs lead the first `epochs_of_products`, so that a short run
/// has them too. Their steps last four times as long, so this is more than half of the time on an H200. A
/// round has seven epochs, so that GEMMs coincide with each precision of any cycle.
constexpr std::int64_t epochs_a_round = 7, epochs_of_products = 2;
/// The work that leads in a step, the same on all ranks. `epoch_steps`: above 0.
constexpr LoadLead lead_of(std::int64_t step, std::int64_t epoch_steps) {
  return step / epoch_steps % epochs_a_round < epochs_of_products ? LoadLead::products : LoadLead::extreme;
}

/// Load limits of a rank. The thermal and memory limiter lowers them, load generators read them. Any thread.
class LoadControl {
 public:
  LoadLead lead() const { return lead_; }
  void set_lead(LoadLead lead) { lead_ = lead; }
  /// Current precision of training. Memory-resident GEMMs that start use it, or an 8-bit precision.
  Precision precision() const { return precision_; }
  void set_precision(Precision precision) { precision_ = precision; }

  /// Time share of memory-resident GEMMs while chains lead, 0 to 1; while GEMMs lead they always run.
  double products_duty() const { return products_duty_; }
  void set_products_duty(double duty) { products_duty_ = std::clamp(duty, 0.0, 1.0); }

  static constexpr double min_duty = 0.05;

  /// Duty cycle: max share of the time spent working, min_duty to 1.
  double duty() const { return duty_; }
  void set_duty(double duty) { duty_ = std::clamp(duty, min_duty, 1.0); }
  static constexpr double longest_rest_seconds = 5;
  /// Pause in seconds after `worked_seconds` of work that keeps the duty cycle, up to longest_rest_seconds.
  double rest_after(double worked_seconds) const;
  /// Pauses for rest_after(worked_seconds). Ends within 20 ms once `is_over` (polled here) returns true.
  void rest(double worked_seconds, const std::function<bool()>& is_over) const;

  /// Share of the planned memory that the fill may hold, 0 to 1.
  double memory_share() const { return memory_share_; }
  void set_memory_share(double share) { memory_share_ = std::clamp(share, 0.0, 1.0); }

 private:
  std::atomic<LoadLead> lead_{LoadLead::extreme};
  std::atomic<Precision> precision_{Precision::fp32};
  std::atomic<double> products_duty_{1.0}, duty_{1.0}, memory_share_{1.0};
};

}  // namespace egt
