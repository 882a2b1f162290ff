#include "session/injection/injecting_sensor.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "egt/core/clock.hpp"

namespace egt {
namespace {

constexpr double default_seconds = 10;
constexpr double hot_c = 92;
constexpr double min_excess_c = 5;
constexpr double rise_seconds = 4;
constexpr double pressed_share = 0.97;
constexpr std::uint64_t nominal_memory_bytes = std::uint64_t{64} << 30;  ///< used if the total is unknown
constexpr unsigned double_bit_xid = 48;

std::function<double()> steady_clock() {
  return [start = Clock::now()] { return seconds_since(start); };
}

InjectingSensor::Settings with_clock(InjectingSensor::Settings settings) {
  if (!settings.seconds) settings.seconds = steady_clock();
  return settings;
}

}  // namespace

InjectingSensor::InjectingSensor(std::shared_ptr<Sensor> sensor, Injector& injector, Settings settings)
    : sensor_(std::move(sensor)), injector_(injector), settings_(with_clock(std::move(settings))) {}

SensorLimits InjectingSensor::limits() {
  return sensor_ ? sensor_->limits() : SensorLimits{};
}

void InjectingSensor::Lasting::begin(const Injection& injection, double now) {
  active = true;
  began = now;
  is_counted = injection.count > 1;
  readings = injection.count;
  seconds = injection.ms ? *injection.ms / 1e3 : default_seconds;
}

bool InjectingSensor::Lasting::covers(double now) const {
  return active && (is_counted ? readings > 0 : now - began < seconds);
}

void InjectingSensor::take_lasting(InjectionKind kind, Lasting& lasting, const std::string& where) {
  const std::int64_t step = settings_.step();
  while (const auto injection = injector_.take(kind, step)) {
    lasting.begin(*injection, settings_.seconds());
    injector_.report(*injection, step, where);
  }
}

/// Asks the injector first, since the real sensor's driver may hang forever.
Result<SensorReading> InjectingSensor::read() {
  take_lasting(InjectionKind::temperature, heat_, "the sensor's temperature");
  take_lasting(InjectionKind::memory_pressure, pressure_, "the sensor's memory in use");
  auto read = sensor_ ? sensor_->read() : Result<SensorReading>(SensorReading{});
  if (!read.ok()) return read;
  SensorReading reading = std::move(read.value());
  const double now = settings_.seconds();
  if (heat_.covers(now)) heat(reading, now);
  if (pressure_.covers(now)) press(reading);
  return reading;
}

void InjectingSensor::heat(SensorReading& reading, double now) {
  const double limit = settings_.temperature_limit_c;
  const double top = std::max(hot_c, limit + min_excess_c);
  const double risen = std::clamp((now - heat_.began) / rise_seconds, 0.0, 1.0);
  const double shown = limit + 1 + (top - limit - 1) * risen;
  reading.temperature_c = std::max(shown, reading.temperature_c.value_or(shown));
  if (heat_.is_counted) --heat_.readings;
}

void InjectingSensor::press(SensorReading& reading) const {
  if (!reading.memory_total_bytes) reading.memory_total_bytes = nominal_memory_bytes;
  const double used = pressed_share * static_cast<double>(*reading.memory_total_bytes);
  reading.memory_used_bytes =
      std::max(static_cast<std::uint64_t>(used), reading.memory_used_bytes.value_or(0));
}

void InjectingSensor::take_counted() {
  const std::int64_t step = settings_.step();
  while (const auto injection = injector_.take(InjectionKind::ecc, step)) {
    ++uncorrected_;
    injector_.report(*injection, step, "the sensor's uncorrectable ECC errors");
  }
  while (const auto injection = injector_.take(InjectionKind::ecc_corrected, step)) {
    corrected_per_reading_ += injection->count;
    injector_.report(*injection, step, "the sensor's corrected ECC errors");
  }
  corrected_ += corrected_per_reading_;
  while (const auto injection = injector_.take(InjectionKind::xid, step)) {
    xids_.push_back({.xid = double_bit_xid, .time = unix_now(), .detail = {}});
    injector_.report(*injection, step, fmt::format("the driver's events: Xid {}", double_bit_xid));
  }
}

Result<SensorCounters> InjectingSensor::counters() {
  take_counted();
  auto read = sensor_ ? sensor_->counters() : Result<SensorCounters>(SensorCounters{});
  if (!read.ok()) return read;
  SensorCounters counters = std::move(read.value());
  if (injector_.plans(InjectionKind::ecc))
    counters.ecc_uncorrected = counters.ecc_uncorrected.value_or(0) + uncorrected_;
  if (injector_.plans(InjectionKind::ecc_corrected))
    counters.ecc_corrected = counters.ecc_corrected.value_or(0) + corrected_;
  if (injector_.plans(InjectionKind::xid)) {
    counters.xids_told = true;
    counters.xids.insert(counters.xids.end(), xids_.begin(), xids_.end());
  }
  return counters;
}

}  // namespace egt
