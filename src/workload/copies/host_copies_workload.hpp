#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "egt/core/clock.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/operation_pipeline.hpp"
#include "workload/common/worker_thread.hpp"

namespace egt {

/// Copies chunks of device memory to pinned host memory and back to another place, all the time and both ways
/// at once, and verifies on the device what came back. Each round trip has a pattern of its own, so that a
/// copy that does nothing is seen. Paced, from a thread of its own, to a share of the rate that the link to
/// the host reaches alone, times the duty of Environment::load.
class HostCopiesWorkload : public Workload {
 public:
  explicit HostCopiesWorkload(Environment& environment) : environment_(environment) {}

  std::string name() const override { return "host-copies"; }
  Status prepare() override;
  Status start() override;
  Status enqueue(const Step& step) override;
  /// Relays what the thread failed with.
  Status retire(std::int64_t, StepOutcome&) override { return thread_.failure(); }
  void stop_background() override { thread_.ask_to_stop(); }
  /// Makes each chunk's round trips once more.
  Status finish(bool hurry) override;
  PartReport report() const override;

 private:
  /// Its trips are made one after the other; those of several chunks meet on the way.
  struct Chunk {
    std::array<Buffer, 2> device;  ///< a trip begins in one of them, in turn, and ends in the other
    Buffer host;                   ///< pinned
    std::uint64_t trips = 0;       ///< enqueued
    std::unique_ptr<OperationPipeline> in_flight;  ///< last: its stream ends before the memory goes

    WordsView words(std::uint64_t trip) const;
  };

  Status prepare(Chunk& chunk);
  Result<double> measure_rate(Chunk& chunk) const;
  Pattern pattern(const Chunk& chunk, std::uint64_t trip) const;
  Status run(const std::stop_token& stop);
  void rest(double seconds, const std::stop_token& stop);
  double round_seconds() const;
  Status copy_round(const std::stop_token& stop);
  Status make_trip(Chunk& chunk, const std::stop_token& stop);
  Status strike(WordsView words, Stream& stream);
  void judge(const Mismatches& found);
  std::string undone() const;

  Environment& environment_;
  std::uint64_t chunk_bytes_ = 0;
  double pace_ = 0;             ///< share of the rate alone
  std::optional<double> rate_;  ///< alone, bytes/s one way; none: not prepared
  std::array<Chunk, 2> chunks_;
  Clock::time_point started_ = Clock::now();
  std::atomic<std::int64_t> step_{-1};
  std::atomic<std::uint64_t> trips_{0}, wrong_words_{0};  ///< of trips that were judged
  std::atomic<double> seconds_{0};                        ///< from the start to the last of them
  std::mutex mutex_;
  std::condition_variable_any woken_;
  bool finished_ = false, hurried_ = false;
  WorkerThread thread_{"the host copies"};  ///< last: it is joined before the rest goes
};

}  // namespace egt
