#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "egt/device/sensor.hpp"
#include "egt/workload/injector.hpp"

namespace egt {

/// Sensor that applies the injected faults due on this rank to the real readings:
/// - temperature: rises from the limit to 92 C (or to 5 above the limit), stays there for `ms` (10 s), and
///   returns to the real one. With count=C above 1 it lasts for C readings instead.
/// - memory-pressure: shows 97 % of the memory in use, for 10 s.
/// - xid: the driver reports Xid 48, a double-bit ECC error.
/// - ecc: one more uncorrectable error is counted.
/// - ecc-corrected: from then on, `count` more corrected errors are counted with each reading.
/// An injection is reported when it becomes due, before the real sensor is read, because its driver may hang.
/// Missing values (no temperature on this node, no counter) are emulated while such a fault is planned for
/// the run. One thread at a time, as for all sensors.
class InjectingSensor final : public Sensor {
 public:
  struct Settings {
    double temperature_limit_c = 85;       ///< limit of the thermal limiter
    std::function<std::int64_t()> step;    ///< current training step; called on the sensor's thread
    std::function<double()> seconds = {};  ///< a monotonic clock; empty: the steady clock
  };

  /// `injector` outlives the last call. A null `sensor` behaves like one that reports nothing.
  InjectingSensor(std::shared_ptr<Sensor> sensor, Injector& injector, Settings settings);

  SensorLimits limits() override;
  Result<SensorReading> read() override;
  Result<SensorCounters> counters() override;

 private:
  /// An injection that lasts for a time or for a number of readings.
  struct Lasting {
    double began = 0;
    double seconds = 0;
    std::uint64_t readings = 0;  ///< remaining readings; used only if `is_counted`
    bool is_counted = false;
    bool active = false;

    void begin(const Injection& injection, double now);
    bool covers(double now) const;
  };

  void take_lasting(InjectionKind kind, Lasting& lasting, const std::string& where);
  void take_counted();
  void heat(SensorReading& reading, double now);
  void press(SensorReading& reading) const;

  const std::shared_ptr<Sensor> sensor_;
  Injector& injector_;
  const Settings settings_;
  Lasting heat_, pressure_;
  std::uint64_t uncorrected_ = 0, corrected_ = 0, corrected_per_reading_ = 0;
  std::vector<XidEvent> xids_;
};

}  // namespace egt
