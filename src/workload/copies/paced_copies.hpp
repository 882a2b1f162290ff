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

/// Copies of chunks over a link, which are verified on the device where they come: from a thread of its own,
/// all the time, paced to a share of the rate that the link reaches alone, times the duty of
/// Environment::load. What is wrong becomes a fault of the kind link. The calls are those of a workload.
class PacedCopies {
 public:
  static constexpr std::size_t chunks = 2;  ///< on their way at the same time, each in a stream of its own

  /// What a copy brings: words of the pattern `expected`, which then become those of `next`.
  struct Brought {
    WordsView words;
    Pattern expected, next;
  };
  struct Link {
    std::string name;                         ///< "host copies": of faults and messages
    std::string part;                         ///< of the run: "host-copies"
    std::uint64_t largest_chunk = 64u << 20;  ///< bytes, on a GPU: so that copies, and no waits, fill a round
    InjectionKind injection = InjectionKind::host_copy;  ///< that changes what was brought
    InjectionGate is_hit = {};                           ///< which of the kind; empty: all
    /// Enqueues the copy of a chunk, the `trip`th. On the thread.
    std::function<Result<Brought>(std::size_t chunk, std::uint64_t trip, Stream& stream)> copy;
    std::function<void(Fault& fault)> locate;  ///< puts in where it is, and whose
  };

  PacedCopies(Environment& environment, Link link);

  std::uint64_t chunk_bytes() const { return chunk_bytes_; }
  WordsView words(const Buffer& chunk) const { return {chunk.as<std::uint32_t>(), chunk_bytes_ / 4}; }
  Stream& stream(std::size_t chunk) { return flights_[chunk].in_flight->stream(); }

  /// Makes the streams.
  Status prepare();
  /// `enqueue`: copies of `bytes` in all, in the stream of the first chunk.
  Status measure_rate(double bytes, const std::function<Status()>& enqueue);
  Status start();
  void set_step(std::int64_t step) { step_ = step; }
  Status failure() const { return thread_.failure(); }
  void ask_to_stop() { thread_.ask_to_stop(); }
  /// Ends the thread; makes some copies more, unless in a hurry. False: the thread still has the chunks.
  Result<bool> finish(const Ending& ending);

  /// Figures, outcome and work. Planned: once the rate is measured.
  void tell(PartReport& report) const;
  /// How long what was copied would have taken alone, seconds; none: not measured.
  std::optional<double> seconds_alone() const;
  std::optional<double> rate() const { return rate_; }

 private:
  struct Flight {
    std::uint64_t trips = 0;  ///< enqueued
    std::unique_ptr<OperationPipeline> in_flight;
  };

  Status run(const std::stop_token& stop);
  double round_seconds() const;
  Status copy_round(const std::stop_token& stop);
  Status enqueue(std::size_t chunk, std::uint64_t trip, Stream& stream, Mismatches* report);
  Status strike(WordsView words, Stream& stream);
  void judge(const Mismatches& found);
  std::string undone() const;
  std::uint64_t bytes() const { return trips_ * chunk_bytes_; }

  Environment& environment_;
  const Link link_;
  std::uint64_t chunk_bytes_ = 0;
  double pace_ = 0;             ///< share of the rate alone
  std::optional<double> rate_;  ///< alone, bytes/s
  std::array<Flight, chunks> flights_;
  Clock::time_point started_ = Clock::now();
  std::atomic<std::int64_t> step_{-1};
  std::atomic<std::uint64_t> trips_{0}, wrong_words_{0};  ///< of trips that were judged
  std::atomic<std::uint64_t> enqueued_{0};                ///< trips
  std::atomic<double> seconds_{0};                        ///< from the start to the last of them
  std::mutex mutex_;
  std::condition_variable_any woken_;
  bool finished_ = false, hurried_ = false;
  WorkerThread thread_;  ///< last: it is joined before the rest goes
};

}  // namespace egt
