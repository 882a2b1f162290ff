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

/// A host event. Recordings are numbered, and a wait refers to the newest recording at the time it is
/// enqueued. Thread-safe.
class HostEvent final : public Event {
 public:
  using Event::Event;
  void record(HostStream& stream);
  /// Also propagates the recording stream's earlier error to this stream.
  void make_wait(HostStream& stream) const;
  Result<bool> done() const;
  /// Time when the event was reached; an error if it was not reached or never recorded.
  Result<Clock::time_point> reached_at() const;
  /// CPU time of the recording stream's thread up to the event, in ms. Its workers run concurrently with
  /// equal shares, so the thread's own time is that of the work.
  Result<double> cpu_ms() const;
  /// Whether both were last recorded in the same stream.
  bool same_stream(const HostEvent& other) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, reached = 0;
    Clock::time_point time;
    double cpu_ms = 0;
    const HostStream* stream = nullptr;  // stream of the last recording; never dereferenced
    Status status;

    void reach(std::uint64_t number, const Status& stream_status);
    Status wait(std::uint64_t number);
  };
  Status check_reached() const;

  /// Shared with enqueued tasks, so that an event may be destroyed before it is reached.
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace egt
