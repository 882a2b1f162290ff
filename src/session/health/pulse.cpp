#include "session/health/pulse.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "egt/core/process_limits.hpp"
#include "session/stop_signal.hpp"

namespace egt {
namespace {

constexpr double longest_sleep_s = 0.02;  ///< a stop is heard so soon
constexpr double spun_s = 0.0005;         ///< before an edge: a sleep ends late by a fraction of that

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
  EGT_TRY_ASSIGN(pulse->word_, device.allocate(sizeof(std::uint32_t)));
  EGT_TRY_ASSIGN(pulse->probed_, device.create_event(EventUse::order));
  EGT_TRY_ASSIGN(pulse->stream_, device.create_stream(StreamPriority::high, StreamUse::without_products));
  return pulse;
}

Status Pulse::start() {
  EGT_TRY_ASSIGN(thread_,
                 start_thread<std::jthread>("the pulse", [this](std::stop_token stop) { run(stop); }));
  is_started_ = true;
  return {};
}

Pulse::~Pulse() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  device_.hold(false);
}

/// Of an edge that this thread comes too late for, the next one counts.
void Pulse::run(const std::stop_token& stop) {
  for (;;) {
    const double now = seconds();
    const PulsePhase phase = phase_at(shape_, now);
    const double planned = now + phase.until_edge;
    if (!wait_until_edge(planned, stop)) break;
    const bool rises = !phase.is_high;
    device_.hold(!rises);
    if (rises)
      await_probe(planned, shape_.duty / shape_.hertz / 2);
    else if (!enqueue_probe().ok())
      break;  // whoever uses the device hears of it
  }
  device_.hold(false);
}

/// False: a stop was asked for.
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

/// What is begun with the other work at the next rise.
Status Pulse::enqueue_probe() {
  EGT_TRY(device_.set_zero(word_.data(), word_.bytes(), *stream_));
  return device_.record(*probed_, *stream_);
}

void Pulse::await_probe(double planned, double longest) {
  for (;;) {
    const Result<bool> done = device_.done(*probed_);
    const double late = seconds() - planned;
    if (!done.ok()) return;
    if (done.value() || late > longest) {
      const std::lock_guard lock(mutex_);
      late_ms_.add(late * 1e3);
      return;
    }
    std::this_thread::yield();
  }
}

std::optional<bool> Pulse::settled_part() const {
  if (!is_started_ || shape_.hertz > fastest_sensed_hertz) return std::nullopt;
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
