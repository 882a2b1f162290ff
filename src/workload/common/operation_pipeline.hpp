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

/// What an operation leaves on the device for the host to judge. All start as zeros.
struct Evidence {
  Mismatches mismatches;
  Digest first;   ///< of the first run of an operation that is run twice
  Digest second;  ///< of its second run
  Digest sample;  ///< of a third one, on the last word alone
  GemmMismatches gemm;  ///< of the verification of a GEMM

  /// Were both runs made, and did they give the same bits?
  bool runs_agree() const { return first == second && first != Digest{}; }
};

/// A stream of its own with a bounded number of operations enqueued, so that the work of others is never
/// behind much of it and a stop is quick. Each operation's evidence is copied to pinned memory and judged,
/// in order, when its event is reached. For one thread at a time.
class OperationPipeline {
 public:
  static constexpr std::size_t slots =
      2;  ///< operations enqueued at most, where `create` is not told another

  /// Puts the operation in the stream.
  using Enqueue = std::function<Status(Stream& stream, Evidence* on_device)>;
  /// Looks at what came of it; `device_ms`: how long it lasted in the stream.
  using Judge = std::function<Status(const Evidence& evidence, double device_ms)>;

  /// `name` is for messages: "the memory patrol". `depth`: operations enqueued at most.
  static Result<std::unique_ptr<OperationPipeline>> create(Device& device, StreamPriority priority,
                                                           StreamUse use, std::string name,
                                                           std::size_t depth = slots);

  Stream& stream() { return *stream_; }
  /// Waits until the slot that the next `submit` takes is free, and gives its index: buffers kept one a slot
  /// may then be used again. Relays what a judge said.
  Result<std::size_t> acquire(const std::stop_token& stop);
  Status submit(const Enqueue& enqueue, Judge judge, const std::stop_token& stop);
  /// How many were submitted so far, and how many of them were judged.
  std::uint64_t submitted() const { return submitted_; }
  std::uint64_t judged() const { return judged_; }
  /// Would `submit` wait now? Judges what is over, without waiting.
  Result<bool> is_full();
  /// Waits until the first `count` of all submitted are judged; what was submitted behind them works on.
  Status judge_first(std::uint64_t count, const std::stop_token& stop);
  /// Waits for all enqueued, at most `seconds` together, and judges it; what is over is judged in any case.
  Status drain(double seconds, const std::stop_token& stop = {});
  /// Waits for all enqueued, at most `seconds` together, and drops it unjudged.
  Status discard(double seconds);

  static constexpr double deadline_seconds = 120;  ///< of one operation, behind the work of all others

 private:
  struct Slot {
    std::unique_ptr<Event> begin;
    std::unique_ptr<Event> end;
    Judge judge;  ///< empty: nothing is enqueued
  };

  OperationPipeline(Device& device, std::string name, std::size_t depth)
      : device_(device), name_(std::move(name)), slots_(depth) {}
  Status wait(const Slot& slot, double seconds, const std::stop_token& stop);
  Status judge_next(double seconds, const std::stop_token& stop);

  Device& device_;
  const std::string name_;
  Buffer on_device_;  ///< Evidence of each slot
  Buffer pinned_;     ///< Evidence of each slot
  std::vector<Slot> slots_;
  std::uint64_t submitted_ = 0, judged_ = 0;
  std::unique_ptr<Stream> stream_;  ///< last: it waits for its work before the buffers go
};

}  // namespace egt
