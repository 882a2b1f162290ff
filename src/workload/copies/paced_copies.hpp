#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
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

/// Copies chunks over a link and verifies them on the receiving device. A separate thread copies
/// continuously, paced to a share of the link's standalone rate, times the duty cycle of Environment::load.
/// Mismatches become faults of kind link. Its calls mirror those of a workload.
class PacedCopies {
 public:
  static constexpr std::size_t chunks = 2;  ///< in flight concurrently, each on its own stream

  /// Received words: verified as `expected`, then overwritten with `next`.
  struct Brought {
    WordsView words;
    Pattern expected, next;
  };
  struct Link {
    std::string name;                         ///< used in faults and messages, as in "host copies"
    std::string part;                         ///< part of the run, as in "host-copies"
    std::uint64_t largest_chunk = 64u << 20;  ///< bytes on a GPU; fills a round with copies, not waits
    InjectionKind injection = InjectionKind::host_copy;  ///< kind that corrupts received data
    InjectionGate is_hit = {};                           ///< selects injections of this kind; empty: all
    /// Enqueues copy number `trip` of a chunk. Runs on the thread.
    std::function<Result<Brought>(std::size_t chunk, std::uint64_t trip, Stream& stream)> copy;
    /// Fills in location and blame of what is wrong after this copy, before `copy` of trip + slots. `found`
    /// is null for an injected fault.
    std::function<void(Fault& fault, std::size_t chunk, std::uint64_t trip, const Mismatches* found)> locate;
  };

  PacedCopies(Environment& environment, Link link);

  std::uint64_t chunk_bytes() const { return chunk_bytes_; }
  WordsView words(const Buffer& chunk) const { return {chunk.as<std::uint32_t>(), chunk_bytes_ / 4}; }
  Stream& stream(std::size_t chunk) { return flights_[chunk].in_flight->stream(); }

  /// Creates the streams.
  Status prepare();
  /// `enqueue`: enqueues copies of `bytes` in total on the first chunk's stream.
  Status measure_rate(double bytes, const std::function<Status()>& enqueue);
  Status start();
  void set_step(std::int64_t step) { step_ = step; }
  std::int64_t step() const { return step_; }
  Status failure() const { return thread_.failure(); }
  void ask_to_stop() { thread_.ask_to_stop(); }
  /// Stops the thread, then copies once more unless in a hurry. False: the thread still uses the chunks.
  Result<bool> finish(const Shutdown& ending);

  /// Writes metrics, outcome and work. The copies count as planned once the rate was measured.
  void report(PartReport& report) const;
  /// Standalone duration of the copies so far, in seconds; std::nullopt if not measured.
  std::optional<double> seconds_alone() const;
  std::optional<double> rate() const { return rate_; }

 private:
  struct Flight {
    std::uint64_t trips = 0;  ///< enqueued so far
    std::unique_ptr<OperationPipeline> in_flight;
  };

  Status run(const std::stop_token& stop);
  double round_seconds() const;
  Status copy_round(const std::stop_token& stop);
  Status enqueue(std::size_t chunk, std::uint64_t trip, Stream& stream, Mismatches* report);
  Status strike(WordsView words, std::size_t chunk, std::uint64_t trip, Stream& stream);
  void judge(std::size_t chunk, std::uint64_t trip, const Mismatches& found);
  std::string undone() const;
  std::uint64_t bytes() const { return trips_ * chunk_bytes_; }

  Environment& environment_;
  const Link link_;
  std::uint64_t chunk_bytes_ = 0;
  double pace_ = 0;             ///< share of the standalone rate
  std::optional<double> rate_;  ///< standalone rate, bytes/s
  std::array<Flight, chunks> flights_;
  Clock::time_point started_ = Clock::now();
  std::atomic<std::int64_t> step_{-1};
  std::atomic<std::uint64_t> trips_{0}, wrong_words_{0};  ///< of judged trips
  std::atomic<std::uint64_t> enqueued_{0};                ///< trips enqueued
  std::atomic<double> seconds_{0};                        ///< from the start to the last judged trip
  std::mutex mutex_;
  std::condition_variable_any woken_;
  bool finished_ = false, hurried_ = false;
  WorkerThread thread_;  ///< last: it is joined before the other members are destroyed
};

}  // namespace egt
