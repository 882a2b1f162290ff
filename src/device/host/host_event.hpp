#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "device/host/host_stream.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "egt/device/handles.hpp"

namespace egt {

/// An event of the host. Each recording has a number; a wait is for the number that was last recorded when
/// the wait was enqueued. Safe from any thread.
class HostEvent final : public Event {
 public:
  using Event::Event;
  void record(HostStream& stream);
  /// What the recording stream failed with before the event is also this stream's failure.
  void make_wait(HostStream& stream) const;
  Result<bool> done() const;
  /// When it was reached; an error where it was not, or was never recorded.
  Result<Clock::time_point> reached_at() const;
  /// CPU time of the recording stream's thread until then, milliseconds. Its helpers work while it does, in
  /// equal shares, so its own time is that of the work.
  Result<double> cpu_ms() const;
  /// Was it last recorded in the same stream?
  bool same_stream(const HostEvent& other) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, reached = 0;
    Clock::time_point time;
    double cpu_ms = 0;
    const HostStream* stream = nullptr;  // that it was last recorded in; never looked into
    Status status;

    void reach(std::uint64_t number, const Status& stream_status);
    Status wait(std::uint64_t number);
  };
  Status check_reached() const;

  /// Shared with the tasks enqueued, so that an event may be destroyed before it is reached.
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace egt
