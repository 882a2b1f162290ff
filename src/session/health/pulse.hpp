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

/// Where a pulse stands. It is high for `duty` of each period, from the origin on.
struct PulsePhase {
  bool is_high = true;
  double since_edge = 0, until_edge = 0;  ///< seconds
};
/// `seconds`: since the origin, 0 or more.
PulsePhase phase_at(const PulseShape& shape, double seconds);

/// Steps a rank's device between idle and full, in phase with all ranks': a thread holds its work back from
/// each falling edge to the next rising one, by a clock that the ranks agreed on, and measures how late the
/// device begins again. It makes no call that another thread's could hold up: a full stream holds up all who
/// enqueue, and is held itself. Ends by itself, with nothing held, when the process is told to stop.
class Pulse {
 public:
  /// `device`, whose holds are allowed, outlives it. `origin`: the same moment on all ranks, within
  /// `clock_error_seconds`. Nothing is held before `start`.
  static Result<std::unique_ptr<Pulse>> create(Device& device, const PulseShape& shape,
                                               Clock::time_point origin, double clock_error_seconds);
  /// From the first edge behind the warm-up on; once. unavailable: there is no thread for it.
  Status start();
  /// Nothing is held any more.
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  /// Is the device in the later half of a high (true) or low (false) part, where its power may be read? None:
  /// neither, or the pulse is faster than sensors are. Any thread.
  std::optional<bool> settled_part() const;
  static constexpr double fastest_sensed_hertz = 2;
  /// How often a sensor is to be asked for a few samples in each part; seconds.
  double sample_seconds() const;

  /// {hertz, duty, rises, clock_error_ms, late_ms: {p50, p99, max}}: how long after the agreed moment the
  /// device began again, null before the first rise; of the rises for which a probe was enqueued in time. Any
  /// thread.
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
  Buffer answers_, answer_;  ///< what probes answer in turn, on the device; that of the last one, pinned
  std::unique_ptr<Stream> stream_;  ///< behind the buffers, which its work uses
  std::atomic<bool> is_warm_{false};
  std::atomic<std::uint64_t> falls_{0}, enqueued_{0};  ///< of the latter: probes
  mutable std::mutex mutex_;
  Histogram late_ms_;
  std::jthread probes_, edges_;  ///< last: they use all of the above
};

}  // namespace egt
