#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "egt/device/sensor.hpp"
#include "workload/common/injector.hpp"

namespace egt {

/// A sensor whose real readings are changed by the faults on purpose that are due on this rank:
/// - temperature: it rises from the limit to 92 C (or to 5 above the limit), is there for `ms` (10 s), and is
///   the real one again; with count=C above 1, for C readings instead of a time;
/// - memory-pressure: 97 % of the memory are shown in use, for 10 s;
/// - xid: the driver reports Xid 48, a double-bit ECC error;
/// - ecc: one more uncorrectable error is counted.
/// Each is reported when the first reading shows it. Where there is no real figure (no temperature on this
/// host, no counter), there is one as long as such a fault is planned for the run. For one thread at a time,
/// as all sensors.
class InjectingSensor final : public Sensor {
 public:
  struct Settings {
    double temperature_limit_c = 85;       ///< the guard's
    std::function<std::int64_t()> step;    ///< of training, now; from the sensor's thread
    std::function<double()> seconds = {};  ///< a clock that never falls; empty: the steady clock
  };

  /// `injector` outlives the last call. `sensor` may be null: then all is as if nothing were known.
  InjectingSensor(std::shared_ptr<Sensor> sensor, Injector& injector, Settings settings);

  SensorLimits limits() override;
  Result<SensorReading> read() override;
  Result<SensorCounters> counters() override;

 private:
  /// A strike that lasts: until a time, or for a number of readings.
  struct Lasting {
    double began = 0;
    double seconds = 0;
    std::uint64_t readings = 0;  ///< left, where they are counted; else 0
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
  std::uint64_t uncorrected_ = 0;
  std::vector<XidEvent> xids_;
};

}  // namespace egt
