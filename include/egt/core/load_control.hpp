#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

#include "egt/core/types.hpp"

namespace egt {

/// What most of the device is left to: the extreme terms of training, with the patrol of the memory beside
/// them, or large products over memory, beside which the extreme terms have a part of the device only. So
/// every unit is at its limit, and verified there, for a part of the time.
enum class LoadLead { extreme, products };

/// Of so many epochs products have the first ones, so that a short run has them, too: more than half of the
/// time on an H200, since the steps last four times as long beside them. Seven, so that they meet each
/// precision of any cycle.
constexpr std::int64_t epochs_a_round = 7, epochs_of_products = 2;
/// The same on all ranks. `epoch_steps`: above 0.
constexpr LoadLead lead_of(std::int64_t step, std::int64_t epoch_steps) {
  return step / epoch_steps % epochs_a_round < epochs_of_products ? LoadLead::products : LoadLead::extreme;
}

/// How hard a rank may work: a guard turns it down, all that makes load looks at it. Any thread.
class LoadControl {
 public:
  LoadLead lead() const { return lead_; }
  void set_lead(LoadLead lead) { lead_ = lead; }
  /// Of training now, and of the products over memory that begin.
  Precision precision() const { return precision_; }
  void set_precision(Precision precision) { precision_ = precision; }

  /// The share of the time in which products over memory run where extreme terms lead, 0 to 1; where products
  /// lead they always do.
  double products_duty() const { return products_duty_; }
  void set_products_duty(double duty) { products_duty_ = std::clamp(duty, 0.0, 1.0); }

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
  std::atomic<LoadLead> lead_{LoadLead::extreme};
  std::atomic<Precision> precision_{Precision::fp32};
  std::atomic<double> products_duty_{1.0}, duty_{1.0}, memory_share_{1.0};
};

}  // namespace egt
