#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "egt/core/digest.hpp"
#include "egt/core/pattern.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// Result of an operation that the device leaves for the host to judge. Initially zero.
struct Evidence {
  Mismatches mismatches;
  Digest first;         ///< of the first run of an operation that runs twice
  Digest second;        ///< of its second run
  Digest sample;        ///< of a third run, over the last word only
  GemmMismatches gemm;  ///< of a verified GEMM

  /// True if both runs were done and gave the same bits.
  bool runs_agree() const { return first == second && first != Digest{}; }
};

/// A separate stream with a bounded number of enqueued operations, so that other work is not delayed and a
/// stop is quick. Each operation's evidence is copied to pinned memory and judged in order, once its event
/// completes. One thread at a time.
class OperationPipeline {
 public:
  static constexpr std::size_t slots = 2;  ///< default depth of `create`: max enqueued operations

  /// Enqueues the operation on the stream.
  using Enqueue = std::function<Status(Stream& stream, Evidence* on_device)>;
  /// Judges the evidence; `device_ms`: duration on the stream.
  using Judge = std::function<Status(const Evidence& evidence, double device_ms)>;

  /// `name` is used in messages. `depth`: max enqueued operations.
  static Result<std::unique_ptr<OperationPipeline>> create(Device& device, StreamPriority priority,
                                                           StreamUse use, std::string name,
                                                           std::size_t depth = slots);

  Stream& stream() { return *stream_; }
  /// Waits until the next `submit` has a free slot, and returns its index; buffers of that slot may then be
  /// reused. Returns the judge's errors.
  Result<std::size_t> acquire(const std::stop_token& stop);
  Status submit(const Enqueue& enqueue, Judge judge, const std::stop_token& stop);
  /// Waits for one operation and returns its evidence.
  Result<Evidence> run(const Enqueue& enqueue, const std::stop_token& stop);
  /// Numbers of operations submitted and judged so far.
  std::uint64_t submitted() const { return submitted_; }
  std::uint64_t judged() const { return judged_; }
  /// True if `submit` would block. Judges completed operations without waiting.
  Result<bool> is_full();
  /// Waits until the first `count` submitted operations are judged; later ones keep running.
  Status judge_first(std::uint64_t count, const std::stop_token& stop);
  /// Waits at most `seconds` in total for all enqueued operations; judges those that completed.
  Status drain(double seconds, const std::stop_token& stop = {});
  /// Waits at most `seconds` in total for all enqueued operations and discards their results.
  Status discard(double seconds);

  static constexpr double deadline_seconds = 120;  ///< per operation, queued behind all other work

 private:
  struct Slot {
    std::unique_ptr<Event> begin;
    std::unique_ptr<Event> end;
    Judge judge;  ///< empty: free slot
  };

  OperationPipeline(Device& device, std::string name, std::size_t depth)
      : device_(device), name_(std::move(name)), slots_(depth) {}
  Status wait(const Slot& slot, double seconds, const std::stop_token& stop);
  Status judge_next(double seconds, const std::stop_token& stop);

  Device& device_;
  const std::string name_;
  Buffer on_device_;  ///< Evidence per slot
  Buffer pinned_;     ///< Evidence per slot
  std::vector<Slot> slots_;
  std::uint64_t submitted_ = 0, judged_ = 0;
  std::unique_ptr<Stream> stream_;  ///< last: its destructor waits for its work before the buffers are freed
};

}  // namespace egt
