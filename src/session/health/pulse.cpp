#include "session/health/pulse.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "egt/core/process_limits.hpp"
#include "session/stop_signal.hpp"

namespace egt {
namespace {

constexpr double longest_sleep_s = 0.02;  ///< max delay until a stop is detected
constexpr double preparation_seconds = 30;
constexpr double spun_s = 0.0005;  ///< busy wait before an edge; a sleep ends late by a fraction of it

}  // namespace

PulsePhase phase_at(const PulseShape& shape, double seconds) {
  const double period = 1 / shape.hertz, high = shape.duty * period;
  const double within = seconds - std::floor(seconds / period) * period;
  if (within < high) return {.is_high = true, .since_edge = within, .until_edge = high - within};
  return {.is_high = false, .since_edge = within - high, .until_edge = period - within};
}

Result<std::unique_ptr<Pulse>> Pulse::create(Device& device, const PulseShape& shape,
                                             Clock::time_point origin, double clock_error_seconds) {
  std::unique_ptr<Pulse> pulse(new Pulse(device, shape, origin, clock_error_seconds));
  constexpr std::array<std::uint32_t, 2> answers{0, 1};
  EGT_TRY_ASSIGN(pulse->answers_, device.allocate(sizeof(answers)));
  EGT_TRY_ASSIGN(pulse->answer_, device.allocate_pinned(sizeof(answers)));
  std::copy(answers.begin(), answers.end(), pulse->answer_.as<std::uint32_t>());
  EGT_TRY_ASSIGN(pulse->stream_, device.create_stream(StreamPriority::high, StreamUse::without_products));
  EGT_TRY(device.copy(pulse->answers_.data(), pulse->answer_.data(), sizeof(answers), *pulse->stream_));
  EGT_TRY(device.synchronize(*pulse->stream_, preparation_seconds));
  return pulse;
}

Status Pulse::start() {
  EGT_TRY_ASSIGN(probes_, start_thread<std::jthread>("the pulse's probes",
                                                     [this](std::stop_token stop) { run_probes(stop); }));
  EGT_TRY_ASSIGN(edges_,
                 start_thread<std::jthread>("the pulse", [this](std::stop_token stop) { run(stop); }));
  return {};
}

/// The threads end in this order, so that no probe waits for held work.
Pulse::~Pulse() {
  edges_ = {};
  device_.hold(false);
  probes_ = {};
}

/// If this thread misses an edge, it continues with the next one. In a high phase it releases held work.
void Pulse::run(const std::stop_token& stop) {
  if (!wait_until_edge(seconds() + shape_.warm_up_seconds, stop)) return;
  is_warm_ = true;
  for (bool is_held = false;;) {
    const double now = seconds();
    const PulsePhase phase = phase_at(shape_, now);
    if (phase.is_high && is_held) device_.hold(is_held = false);
    const double planned = now + phase.until_edge;
    if (!wait_until_edge(planned, stop)) break;
    const std::uint64_t probe = enqueued_;
    const bool is_pending = !phase.is_high && !is_done(probe);
    device_.hold(is_held = phase.is_high);
    if (is_held) {
      ++falls_;
      falls_.notify_one();
    } else if (is_pending) {
      await_probe(probe, planned);
    }
  }
  device_.hold(false);
}

/// After each falling edge, enqueues a probe, which starts with the held work at the rising edge. If calls of
/// other threads block it for longer, it continues at the next falling edge.
void Pulse::run_probes(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    ++falls_;
    falls_.notify_one();
  });
  for (std::uint64_t seen = 0;; seen = falls_) {
    falls_.wait(seen);
    if (stop.stop_requested()) return;
    if (!is_done(enqueued_)) continue;
    if (!enqueue_probe().ok()) return;  // other users of the device report the error
    ++enqueued_;
  }
}

/// Returns false if a stop was requested.
bool Pulse::wait_until_edge(double planned, const std::stop_token& stop) const {
  for (double left = planned - seconds(); left > 0; left = planned - seconds()) {
    if (stop.stop_requested() || StopSignal::received() != 0) return false;
    if (left > spun_s)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left - spun_s, longest_sleep_s)));
    else
      std::this_thread::yield();
  }
  return !stop.stop_requested() && StopSignal::received() == 0;
}

/// Enqueues one operation only. A second one would start late, since it competes with all released work.
Status Pulse::enqueue_probe() {
  const auto* const answer = answers_.as<std::uint32_t>() + (enqueued_ + 1) % 2;
  return device_.copy(answer_.data(), answer, sizeof(*answer), *stream_);
}

/// Returns whether the probe has run: the device has then written its value to pinned memory.
bool Pulse::is_done(std::uint64_t probe) const {
  return std::atomic_ref(*answer_.as<std::uint32_t>()).load(std::memory_order_acquire) == probe % 2;
}

void Pulse::await_probe(std::uint64_t probe, double planned) {
  const double longest = shape_.duty / shape_.hertz / 2;
  for (;;) {
    const bool is_over = is_done(probe);
    const double late = seconds() - planned;
    if (is_over || late > longest) {
      const std::lock_guard lock(mutex_);
      late_ms_.add(late * 1e3);
      return;
    }
    std::this_thread::yield();
  }
}

std::optional<bool> Pulse::settled_part() const {
  if (!is_warm_ || shape_.hertz > fastest_sensed_hertz) return std::nullopt;
  const PulsePhase phase = phase_at(shape_, seconds());
  if (phase.since_edge < phase.until_edge) return std::nullopt;
  return phase.is_high;
}

double Pulse::sample_seconds() const {
  constexpr double shortest = 0.05, samples = 4;
  return std::max(shortest, std::min(shape_.duty, 1 - shape_.duty) / shape_.hertz / samples);
}

Json Pulse::figures() const {
  const std::lock_guard lock(mutex_);
  Json late;
  if (late_ms_.count() > 0)
    late = {{"p50", late_ms_.quantile(0.5)}, {"p99", late_ms_.quantile(0.99)}, {"max", late_ms_.max()}};
  return {{"hertz", shape_.hertz},
          {"duty", shape_.duty},
          {"rises", late_ms_.count()},
          {"clock_error_ms", clock_error_seconds_ * 1e3},
          {"late_ms", late}};
}

}  // namespace egt
