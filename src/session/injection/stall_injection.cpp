#include "session/injection/stall_injection.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include <fmt/format.h>

namespace egt {

namespace {

/// Hangs until the process ends.
[[noreturn]] void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

/// Stops this process; a child process continues it after `ms`.
void stop_for(double ms) {
  const pid_t self = getpid();
  if (_Fork() == 0) {  // only async-signal-safe calls are allowed after a fork with several threads
    timespec time{.tv_sec = static_cast<time_t>(ms / 1e3),
                  .tv_nsec = static_cast<long>(std::fmod(ms, 1e3) * 1e6)};
    nanosleep(&time, nullptr);
    ::kill(self, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
}

}  // namespace

void StallInjection::announce(const Injection& injection, std::int64_t step, const char* where) {
  injector_.report(injection, step, std::string(where));
  static_cast<void>(route_.pump());
}

void StallInjection::strike(std::int64_t step) {
  if (const auto injection = injector_.take(InjectionKind::idle, step)) {
    announce(*injection, step, "the device, which gets no more work");
    device_->make_idle();
  }
  if (device_) begin_device_errors(injector_, *device_, step);
  if (const auto injection = injector_.take(InjectionKind::kill, step)) {
    announce(*injection, step, "the process, by SIGKILL");
    raise(SIGKILL);
  }
  if (const auto injection = injector_.take(InjectionKind::stop, step)) {
    announce(*injection, step, "the process, by SIGSTOP");
    injection->ms ? stop_for(*injection->ms) : static_cast<void>(raise(SIGSTOP));
  }
  const auto of_main_thread = [](const Injection& hang) { return !hang.layer && !hang.peer; };
  const auto injection = injector_.take(InjectionKind::hang, step, of_main_thread);
  if (!injection) return;
  announce(*injection, step, "the main thread");
  if (!injection->ms) hang();
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(*injection->ms));
}

void begin_device_errors(Injector& injector, InjectingDevice& device, std::int64_t step) {
  while (const auto injection = injector.take(InjectionKind::device_error, step))
    device.fail_at(injection->count, [&injector, injection, step] {
      injector.report(*injection, step, fmt::format("call {} of the device", injection->count));
    });
}

}  // namespace egt
