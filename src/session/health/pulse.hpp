#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "egt/core/clock.hpp"
#include "egt/core/histogram.hpp"
#include "egt/core/record.hpp"
#include "egt/device/device.hpp"
#include "session/options.hpp"

namespace egt {

/// State of a pulse, which is high for `duty` of each period, starting at the origin.
struct PulsePhase {
  bool is_high = true;
  double since_edge = 0, until_edge = 0;  ///< in seconds
};
/// `seconds`: since the origin, 0 or more.
PulsePhase phase_at(const PulseShape& shape, double seconds);

/// Toggles a rank's device between idle and full load, in phase with all ranks. A thread holds the device's
/// work at each falling edge and releases it at the next rising edge, by a clock that the ranks agreed on. It
/// measures how late the device resumes.
/// The thread makes no call that may block, as enqueueing to a full stream of held work would. When the
/// process is asked to stop, it releases all work and ends.
class Pulse {
 public:
  /// `device` outlives it and allows holds. `origin`: the same moment on all ranks, within
  /// `clock_error_seconds`. Nothing is held before `start`.
  static Result<std::unique_ptr<Pulse>> create(Device& device, const PulseShape& shape,
                                               Clock::time_point origin, double clock_error_seconds);
  /// Starts at the first edge after the warm-up. Call it once. unavailable if a thread cannot be created.
  Status start();
  /// Releases all held work.
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  /// Returns true in the later half of a high phase and false in that of a low one, when the power may be
  /// read. std::nullopt in the earlier halves, or if the pulse is faster than sensors. Any thread.
  std::optional<bool> settled_part() const;
  static constexpr double fastest_sensed_hertz = 2;
  /// Sensor period for a few samples in each high and low phase, in seconds.
  double sample_seconds() const;

  /// Returns {hertz, duty, rises, clock_error_ms, late_ms: {p50, p99, max}}. `late_ms` is the delay of the
  /// device after the agreed moment, null before the first rise. Only rises with a probe enqueued in time
  /// count. Any thread.
  Json figures() const;

 private:
  Pulse(Device& device, const PulseShape& shape, Clock::time_point origin, double clock_error_seconds)
      : device_(device), shape_(shape), origin_(origin), clock_error_seconds_(clock_error_seconds) {}
  void run(const std::stop_token& stop);
  void run_probes(const std::stop_token& stop);
  bool wait_until_edge(double seconds, const std::stop_token& stop) const;
  Status enqueue_probe();
  bool is_done(std::uint64_t probe) const;
  void await_probe(std::uint64_t probe, double planned_seconds);
  double seconds() const { return seconds_since(origin_); }

  Device& device_;
  const PulseShape shape_;
  const Clock::time_point origin_;
  const double clock_error_seconds_;
  Buffer answers_, answer_;         ///< values 0 and 1 on the device; pinned: the value of the last probe
  std::unique_ptr<Stream> stream_;  ///< declared after the buffers, which its work uses
  std::atomic<bool> is_warm_{false};
  std::atomic<std::uint64_t> falls_{0}, enqueued_{0};  ///< falling edges; enqueued probes
  mutable std::mutex mutex_;
  Histogram late_ms_;
  std::jthread probes_, edges_;  ///< last, since they use all of the above
};

}  // namespace egt
