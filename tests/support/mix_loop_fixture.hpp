#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "session/health/mix_control.hpp"
#include "tests/support/guard_fixture.hpp"

/// The mix controller in a closed loop with a simulated GPU and the limiter.
namespace egt::test {

constexpr std::uint64_t power_cap = 0x4, sw_thermal = 0x20;

/// A GPU under the mixed load. Power as a fraction of its limit.
struct Card {
  double limit_w = 700;
  double extreme = 0.8;              ///< without GEMMs, while extreme compute leads
  double products = 0.5;             ///< added by GEMMs there
  double products_lead = 1.2;        ///< while GEMMs lead
  std::optional<double> cap = 0.99;  ///< power cap by clocks; none: uncapped
  double peaks_from = 9;             ///< power above which peaks are capped, though the mean is not
  double lag_s = 0;                  ///< of its sensor
  double rise_c = 40;                ///< temperature rise at the limit, above 30 C
  double slows_c = 95;               ///< temperature at which its clocks are throttled

  double watts = 0, shown_w = 0, joules = 0, c = 30;
  std::uint64_t reasons = 0;

  /// The share of GEMMs that reaches the limit.
  double needed() const { return std::clamp((0.985 - extreme) / products, 0.0, 1.0); }

  void go_on(LoadLead lead, double products_duty, double guard_duty, double seconds) {
    double share = lead == LoadLead::products ? products_lead : extreme + products * products_duty;
    share = 0.1 + (share - 0.1) * guard_duty;
    const bool capped = cap && share > *cap, slowed = c > slows_c;
    if (capped) share = *cap;
    if (slowed) share *= 0.7;
    reasons = ((capped || share > peaks_from) && !slowed ? power_cap : 0) | (slowed ? sw_thermal : 0);
    watts = share * limit_w;
    shown_w += (watts - shown_w) * (lag_s > 0 ? 1 - std::exp(-seconds / lag_s) : 1);
    joules += watts * seconds;
    c += (30 + rise_c * share - c) * (1 - std::exp(-seconds / 20));
  }
  SensorReading reading() const {
    SensorReading reading;
    reading.gpu_utilization_percent = 99;
    reading.power_w = shown_w;
    reading.energy_j = joules;
    reading.temperature_c = c;
    reading.event_reasons = reasons;
    return reading;
  }
};

using Show = std::function<std::optional<SensorReading>(double, const SensorReading&)>;

inline SensorReading without_energy(SensorReading reading) {
  reading.energy_j.reset();
  return reading;
}

inline std::optional<SensorReading> as_it_is(double, const SensorReading& reading) {
  return reading;
}

/// A GPU, the limiter and the controller, sampled once per second.
struct Loop {
  explicit Loop(const Card& a_card) : card(a_card), guard(guard_of(a_card)), mix(card.limit_w, "", 0) {}

  static Guard guard_of(const Card& card) {
    SensorLimits limits = limits_of_a_gpu();
    limits.power_limit_w = card.limit_w;
    return Guard({}, limits, {.rank = 1, .hostname = "node7", .device_uuid = "GPU-1"});
  }

  void look(const Show& show) {
    const auto reading = show(now, card.reading());
    const double guard_duty = guard.look({.seconds = now, .device = reading, .host = {}}).duty;
    const double before = mix.products_duty();
    const std::string warning = mix.look(now, reading, lead(), guard_duty);
    if (!warning.empty()) warnings.push_back(warning);
    duty = guard_duty;
    if (mix.products_duty() == before) return;
    changed_at.push_back(now);
    if (guard_duty < 0.99 || (card.reasons & sw_thermal) != 0) ++moves_while_held;
  }

  LoadLead lead() const {
    const double within = std::fmod(now, products_s + extreme_s);
    return within < products_s ? LoadLead::products : LoadLead::extreme;
  }

  void run(double seconds, const Show& show = as_it_is) {
    constexpr double tick = 0.05;
    const double end = now + seconds;
    double power_s = 0, ten_w = 0;
    min_ten = std::numeric_limits<double>::infinity();
    for (int i = 0; now < end; ++i, now += tick) {
      if (i % 20 == 0) look(show);
      card.go_on(lead(), mix.products_duty(), duty, tick);
      power_s += card.watts * tick;
      ten_w += card.watts / 200;
      if (i % 200 != 199) continue;
      min_ten = std::min(min_ten, ten_w / card.limit_w);
      ten_w = 0;
    }
    mean = power_s / seconds / card.limit_w;
  }
  std::int64_t changes_since(double moment) const {
    return std::count_if(changed_at.begin(), changed_at.end(), [&](double at) { return at >= moment; });
  }

  Card card;
  Guard guard;
  MixControl mix;
  double products_s = 18, extreme_s = 42;
  double now = 0, duty = 1;
  std::vector<double> changed_at;
  std::vector<std::string> warnings;
  int moves_while_held = 0;
  double mean = 0, min_ten = 0;  ///< fraction of the limit in the last `run`; min_ten: over ten seconds
};

}  // namespace egt::test
