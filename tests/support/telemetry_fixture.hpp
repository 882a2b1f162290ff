#pragma once

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "session/health/telemetry.hpp"

/// A sensor controlled by the test, and the targets of a limiting telemetry.
namespace egt::test {

/// Returns power 100, 200, 300 .. W by sample; can be lost, can hang, and reports error counts set by the
/// test.
class FakeSensor final : public Sensor {
 public:
  SensorLimits limits() override {
    SensorLimits limits;
    limits.power_limit_w = 700;
    limits.untold = {"Xid events: Not Supported"};
    return limits;
  }
  Result<SensorReading> read() override {
    while (hang) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (lost) return Status(StatusCode::aborted, "lost");
    SensorReading reading;
    if (reads < static_cast<int>(begun.size())) begun[static_cast<std::size_t>(reads)] = Clock::now();
    const int n = ++reads;
    reading.power_w = 100.0 * n;
    if (counts_energy) reading.energy_j = 1000.0 + joules_a_read * n;
    reading.gpu_utilization_percent = n >= 3 ? 95.0 : 10.0;
    reading.event_reasons = 0x4 | 0x20;
    reading.memory_used_bytes = 1u << 20;
    reading.memory_clock_mhz = 2619;
    reading.fan_percent = 40;
    if (hot) reading.temperature_c = 88;
    return reading;
  }
  Result<SensorCounters> counters() override {
    while (counters_hang) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (lost) return Status(StatusCode::aborted, "lost");
    SensorCounters counters;
    counters.pcie_replay = static_cast<std::uint64_t>(reads * 2);
    counters.ecc_uncorrected = uncorrected;
    counters.remap_pending = pending;
    counters.xids_told = true;
    if (xid != 0) counters.xids.push_back({.xid = xid, .time = 1e9, .detail = {}});
    return counters;
  }

  std::atomic<int> reads{0};
  /// Start of each read; valid after the telemetry stopped.
  std::array<Clock::time_point, 1024> begun{};
  std::atomic<std::uint64_t> uncorrected{3};
  std::atomic<unsigned> xid{0};
  std::atomic<double> joules_a_read{5};
  std::atomic<bool> lost{false}, hang{false}, counters_hang{false}, hot{false}, pending{false},
      counts_energy{true};
};

inline void wait_for_reads(const FakeSensor& sensor, int reads) {
  const Clock::time_point start = Clock::now();
  while (sensor.reads < reads && seconds_since(start) < 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

/// Targets of a limiting telemetry.
struct Guarded {
  LoadControl load;
  RecordQueue records{2};
  ProgressBoard board;
  std::atomic<double> now{100};  ///< of `guarding_by_clock`

  Guarding guarding() {
    return {.options = {},
            .device = {2, "node7", "GPU-2"},
            .load = load,
            .records = records,
            .board = board,
            .planned_seconds = {}};
  }
  Guarding guarding_by_clock() {
    Guarding guarding = this->guarding();
    guarding.seconds = [this] { return now.load(); };
    return guarding;
  }
  void wait_for_fault() const {
    const Clock::time_point start = Clock::now();
    while (!records.has_fault() && seconds_since(start) < 10)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::vector<Json> reported(RecordKind kind) {
    std::vector<Json> bodies;
    for (const Record& record : drained())
      if (record.kind == kind) bodies.push_back(record.body);
    return bodies;
  }

 private:
  const std::vector<Record>& drained() {
    for (Record& record : records.drain()) all_.push_back(std::move(record));
    return all_;
  }
  std::vector<Record> all_;
};

}  // namespace egt::test
