#include "session/health/telemetry.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "device/system/host_sensor.hpp"
#include "egt/core/extent.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/process_limits.hpp"
#include "session/health/error_counters.hpp"
#include "session/health/mix_control.hpp"

namespace egt {
namespace {

constexpr double full_load_percent = 90;
constexpr double full_power = 0.9;     ///< share of the power limit
constexpr double counter_seconds = 5;  ///< between counter readings, which cost more than a sample
constexpr double guard_seconds = 1;    ///< max time between samples of the limiter
constexpr const char* idle = "idle";   ///< phase of an idle thread

/// NVML's clocks event reasons.
struct Reason {
  std::uint64_t bit;
  const char* name;
};
constexpr Reason reasons[] = {{0x1, "gpu_idle"},    {0x2, "applications_clocks"}, {0x4, "sw_power_cap"},
                              {0x8, "hw_slowdown"}, {0x10, "sync_boost"},         {0x20, "sw_thermal"},
                              {0x40, "hw_thermal"}, {0x80, "hw_power_brake"},     {0x100, "display"}};

/// Statistics of all samples so far, for reports.
struct Figures {
  Extent sampled[std::size(sampled_metrics)];
  Extent duty, memory_share, products_duty;
  Extent power_between;          ///< means between samples, from the energy counter
  Extent power_high, power_low;  ///< in the high and low phases of a pulse
  std::map<std::string, double> reason_seconds;
  bool reasons_answered = false;
  struct EnergyReading {
    double joules, seconds;  ///< since the process started
  };
  std::optional<EnergyReading> energy_first, energy_last;
  std::optional<double> time_to_full_load, time_to_full_power;
  std::uint64_t failures = 0;
  SensorReading latest;
  HostLoad latest_host;

  /// `seconds`: since the previous sample; `process_seconds`: since the process started.
  void add(const SensorReading& reading, double seconds, double process_seconds,
           const std::optional<double>& power_limit_w);
  /// `reading` is empty if the device did not answer.
  void sample(const SensorReading& reading, const HostLoad& load) {
    latest = reading;
    latest_host = load;
    for (std::size_t i = 0; i < std::size(sampled); ++i)
      std::visit(
          [&]<typename T, typename Of>(T Of::*member) {
            if constexpr (std::is_same_v<Of, HostLoad>)
              sampled[i].add(load.*member);
            else
              sampled[i].add(reading.*member);
          },
          sampled_metrics[i].member);
  }
  Json throttle_seconds() const { return reasons_answered ? Json(reason_seconds) : Json(nullptr); }
  Json energy() const {
    return energy_first && energy_last ? Json(energy_last->joules - energy_first->joules) : Json(nullptr);
  }
  /// Uses the energy counter, since samples of the instantaneous power miss swings between them.
  Json mean_power() const {
    if (!energy_first || energy_last->seconds <= energy_first->seconds) return nullptr;
    return (energy_last->joules - energy_first->joules) / (energy_last->seconds - energy_first->seconds);
  }
};

void Figures::add(const SensorReading& reading, double seconds, double process_seconds,
                  const std::optional<double>& power_limit_w) {
  if (reading.event_reasons) {
    reasons_answered = true;
    for (const Reason& reason : reasons)
      if (*reading.event_reasons & reason.bit) reason_seconds[reason.name] += seconds;
  }
  if (reading.energy_j) {
    std::optional<double> watts;
    if (energy_last && process_seconds > energy_last->seconds && *reading.energy_j >= energy_last->joules)
      watts = (*reading.energy_j - energy_last->joules) / (process_seconds - energy_last->seconds);
    power_between.add(watts);
    const bool is_full = watts && power_limit_w && *watts >= full_power * *power_limit_w;
    if (is_full && !time_to_full_power) time_to_full_power = process_seconds;
    energy_last = {*reading.energy_j, process_seconds};
    if (!energy_first) energy_first = energy_last;
  }
  if (!time_to_full_load && reading.gpu_utilization_percent.value_or(0) >= full_load_percent)
    time_to_full_load = process_seconds;
}

/// A limiter and the objects that it controls.
struct Post {
  Guarding guarding;
  Guard guard;
  MixControl mix;

  void look(double seconds, const std::optional<SensorReading>& reading, const HostLoad& host) {
    const GuardDecision decision = guard.look({.seconds = seconds, .device = reading, .host = host});
    guarding.load.set_duty(decision.duty);
    guarding.load.set_memory_share(decision.memory_share);
    for (const std::string& text : decision.notices) guarding.records.notice(text);
    for (const std::string& text : decision.warnings) guarding.records.warning(text);
    report(decision.findings);
    const std::string wrong = mix.look(seconds, reading, guarding.load.lead(), decision.duty);
    if (!wrong.empty()) guarding.records.warning(wrong);
    guarding.load.set_products_duty(mix.products_duty());
  }
  void report(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) guarding.records.emit(finding);
  }
  void report(const CounterNews& news) {
    for (const Fault& fault : news.faults) guarding.records.emit(fault);
    report(news.findings);
    for (const std::string& text : news.notices) guarding.records.notice(text);
  }
  void report_limits(const SensorLimits& limits) {
    for (const std::string& untold : limits.untold)
      guarding.records.notice(fmt::format("rank {}: not reported: {}", guarding.device.rank, untold));
  }
  Activity main_activity() const {
    for (const Activity& activity : guarding.board.read())
      if (activity.line == "main") return activity;
    return {};
  }
};

ErrorCounterMonitor open_monitor(const std::optional<Guarding>& guarding) {
  if (!guarding) return {{}, {}};
  return {guarding->device, guarding->options.corrected_limit};
}

std::function<double()> clock_of(const std::optional<Guarding>& guarding) {
  if (guarding && guarding->seconds) return guarding->seconds;
  return [began = Clock::now()] { return seconds_since(began); };
}

}  // namespace

/// Shared with the sampling thread, which is abandoned if the driver hangs.
struct Telemetry::State {
  State(std::shared_ptr<Sensor> s, double seconds, Clock::time_point started,
        const std::optional<Guarding>& guarding)
      : sensor(std::move(s)),
        sample_seconds(seconds),
        process_started(started),
        clock(clock_of(guarding)),
        monitor(open_monitor(guarding)) {}

  void run();
  void sample();
  void keep(const std::optional<Result<SensorReading>>& reading, const HostLoad& load, double seconds);
  void enter(const std::optional<Result<SensorCounters>>& counters, bool after_link_fault = false);
  void ask_overdue();
  void close_post();
  bool is_abandoned() const {
    const std::lock_guard lock(mutex);
    return abandoned;
  }
  std::optional<Result<SensorCounters>> read_counters();

  // Used only by the sampling thread while it runs.
  const std::shared_ptr<Sensor> sensor;
  const double sample_seconds;
  const Clock::time_point process_started;
  HostLoadSampler host;
  Clock::time_point last_sample = Clock::now();
  double counted = 0;  ///< time of the last counter reading, by `clock`
  Status started;
  std::thread thread;  ///< used only by `stop`

  mutable std::mutex mutex;  ///< protects all that follows
  std::condition_variable changed;
  bool stopping = false;
  bool ended = false;
  bool abandoned = false;    ///< no thread waits for it any longer
  std::optional<Post> post;  ///< std::nullopt: the limiter is not (or no longer) active
  Json guard_summary, mix_summary;
  std::optional<double> power_limit_w;
  const std::function<double()> clock;  ///< of limiter and error counters, in seconds
  ErrorCounterMonitor monitor;
  Figures figures;
};

/// std::nullopt without a sensor.
std::optional<Result<SensorCounters>> Telemetry::State::read_counters() {
  if (!sensor) return std::nullopt;
  return sensor->counters();
}

void Telemetry::State::sample() {
  const HostLoad load = host.look();
  std::optional<Result<SensorReading>> reading;
  if (sensor) reading = sensor->read();
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(last_sample, now)).count();
  const std::lock_guard lock(mutex);
  keep(reading, load, seconds);
}

void Telemetry::State::keep(const std::optional<Result<SensorReading>>& reading, const HostLoad& load,
                            double seconds) {
  const bool answered = reading && reading->ok();
  figures.sample(answered ? reading->value() : SensorReading{}, load);
  if (answered) figures.add(reading->value(), seconds, seconds_since(process_started), power_limit_w);
  if (reading && !answered) ++figures.failures;
  if (!post) return;
  post->look(clock(), answered ? std::optional(reading->value()) : std::nullopt, load);
  guard_summary = post->guard.summary();
  mix_summary = post->mix.summary();
  const auto is_high = post->guarding.pulse ? post->guarding.pulse->settled_part() : std::nullopt;
  if (answered && is_high) (*is_high ? figures.power_high : figures.power_low).add(reading->value().power_w);
  figures.duty.add(std::optional(post->guarding.load.duty()));
  figures.memory_share.add(std::optional(post->guarding.load.memory_share()));
  figures.products_duty.add(std::optional(post->guarding.load.products_duty()));
}

/// Judges the error counters.
void Telemetry::State::enter(const std::optional<Result<SensorCounters>>& counters, bool after_link_fault) {
  if (!counters) return;
  const Activity activity = post ? post->main_activity() : Activity{};
  const CounterNews news = monitor.look({.seconds = clock(),
                                         .step = activity.step,
                                         .phase = activity.phase.empty() ? idle : activity.phase,
                                         .utilization_percent = figures.latest.gpu_utilization_percent,
                                         .after_link_fault = after_link_fault},
                                        *counters);
  if (post) post->report(news);
}

void Telemetry::State::ask_overdue() {
  if (post) post->report(monitor.overdue(clock()));
}

/// Emits the last faults and findings. After this call, objects used by the limiter may be destroyed.
void Telemetry::State::close_post() {
  if (!post) return;
  ask_overdue();
  post->report(monitor.finish());
  if (abandoned && sensor)
    post->guarding.records.warning(fmt::format(
        "rank {}: {} does not answer at the end: what it counted since its last answer is not known",
        post->guarding.device.rank, post->guarding.device.detector));
  post->report(post->guard.finish());
  guard_summary = post->guard.summary();
  post.reset();
}

void Telemetry::State::run() {
  const auto period =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(sample_seconds));
  Clock::time_point next = Clock::now() + period;
  bool sampled = false;
  std::uint64_t link_faults = 0;
  std::unique_lock lock(mutex);
  for (bool last = false; !last; next = std::max(next + period, Clock::now())) {
    changed.wait_until(lock, next, [this] { return stopping; });
    if (abandoned) return;  // objects used by sensor and clock may be destroyed
    last = stopping;
    const bool wanted = !last || !sampled;  // the load has ended, so only a missing first sample is taken
    const std::uint64_t faults = post ? post->guarding.records.link_faults() : 0;
    const bool after_link_fault = faults > std::exchange(link_faults, faults);
    const bool counts = last || after_link_fault || clock() - counted >= counter_seconds;
    lock.unlock();
    if (wanted) sample();
    if (is_abandoned()) return;
    const auto counters = counts ? read_counters() : std::nullopt;
    lock.lock();
    if (abandoned) return;
    sampled = true;
    if (counts) counted = clock();
    enter(counters, after_link_fault);
  }
  ended = true;
  changed.notify_all();
}

Telemetry::Telemetry(std::shared_ptr<Sensor> sensor, double sample_seconds, Clock::time_point process_started,
                     std::optional<Guarding> guarding)
    : state_(std::make_shared<State>(std::move(sensor),
                                     guarding ? std::min(sample_seconds, guard_seconds) : sample_seconds,
                                     process_started, guarding)) {
  const SensorLimits limits = state_->sensor ? state_->sensor->limits() : SensorLimits{};
  state_->power_limit_w = limits.power_limit_w;
  if (guarding) {
    state_->post.emplace(Post{*guarding,
                              Guard(guarding->options, limits, guarding->device, guarding->planned_seconds),
                              MixControl(limits.power_limit_w, guarding->fixed_mix)});
    state_->post->report_limits(limits);
  }
  if (guarding) state_->enter(guarding->counters_before);
  state_->enter(state_->read_counters());
  state_->counted = state_->clock();
  auto thread = start_thread("the telemetry", [state = state_] { state->run(); });
  state_->started = thread.status();
  if (thread.ok())
    state_->thread = std::move(thread.value());
  else
    state_->ended = true;
}

Status Telemetry::started() const {
  return state_->started;
}

Telemetry::~Telemetry() {
  stop();
}

void Telemetry::stop(double patience_seconds) {
  std::unique_lock lock(state_->mutex);
  if (std::exchange(state_->stopping, true)) return;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, std::chrono::duration<double>(patience_seconds),
                                              [this] { return state_->ended; });
  state_->abandoned = !ended;
  state_->close_post();
  lock.unlock();
  if (!state_->thread.joinable()) return;
  if (ended)
    state_->thread.join();
  else
    state_->thread.detach();
}

void Telemetry::ask_overdue() {
  const std::lock_guard lock(state_->mutex);
  state_->ask_overdue();
}

Json Telemetry::summary() const {
  const std::lock_guard lock(state_->mutex);
  const Figures& f = state_->figures;
  Json summary = {{"throttle_seconds", f.throttle_seconds()},
                  {"power_w_mean", f.mean_power()},
                  {"power_w_between", f.power_between.json()},
                  {"power_limit_w", or_null(state_->power_limit_w)},
                  {"energy_j", f.energy()},
                  {"time_to_full_load_s", or_null(f.time_to_full_load)},
                  {"time_to_full_power_s", or_null(f.time_to_full_power)},
                  {"sensor_failures", f.failures},
                  {"duty", f.duty.json()},
                  {"memory_share", f.memory_share.json()},
                  {"products_duty", f.products_duty.json()},
                  {"pulse_power_w", {{"high", f.power_high.json()}, {"low", f.power_low.json()}}},
                  {"guard", state_->guard_summary},
                  {"mix", state_->mix_summary}};
  for (std::size_t i = 0; i < std::size(f.sampled); ++i)
    summary[sampled_metrics[i].key] = f.sampled[i].json();
  return summary;
}

Json Telemetry::counters() const {
  const std::lock_guard lock(state_->mutex);
  return state_->monitor.counters();
}

SensorReading Telemetry::latest() const {
  const std::lock_guard lock(state_->mutex);
  return state_->figures.latest;
}

HostLoad Telemetry::latest_host() const {
  const std::lock_guard lock(state_->mutex);
  return state_->figures.latest_host;
}

}  // namespace egt
