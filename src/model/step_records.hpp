#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/mlp_buffers.hpp"

/// What a step leaves for the host: the messages between ranks at its end, and times.
namespace egt {

/// The result of one step, available when it is complete.
struct StepResult {
  double loss = 0;  ///< squared error per output, mean over the global batch
  float votes = 0;  ///< sum of all ranks' votes, the same on every rank
  /// Each rank's sum of squared errors over its own samples; bitwise the same on every rank.
  std::vector<float> own_losses;
  std::optional<double> step_ms;  ///< from the end of the previous step to the end of this one, device time
  /// Device time from the end of the previous pass to the end of this one, on the compute stream: the phases
  /// of StepTimes and the gaps between them. `step_ms` ends with the all-reduces instead.
  std::optional<double> pass_ms;
  std::optional<double> compute_ms;  ///< device time of this rank's pass, excluding communication wait
  /// Pass time per rank of one earlier step, scaled to the samples of that rank's MlpConfig. The same on
  /// every rank. 0: unknown.
  std::vector<double> all_compute_ms;
};

/// Phases of the compute stream in a step.
enum class StepPhase {
  wait,        ///< communication wait
  update,      ///< weight update with the gradients of the previous step
  forward,     ///< GEMMs and the input's random numbers
  activation,  ///< bias, ReLU and extreme compute of all hidden layers
  backward,    ///< from the loss to the last weight gradient
  second,      ///< the second pass of the previous step
};
constexpr std::size_t step_phases = 6;
const char* to_string(StepPhase phase);

/// Times of one measured step. Measuring adds events to the streams, a few microseconds each.
struct StepTimes {
  std::array<double, step_phases> phase_ms = {};  ///< indexed by StepPhase; they add up to the pass
  std::vector<double> sum_ms;                     ///< per bucket, from its gradient to its all-reduce result
  std::vector<double> sum_bytes;                  ///< per bucket

  double of(StepPhase phase) const { return phase_ms[static_cast<std::size_t>(phase)]; }
  /// Bandwidth of the fastest bucket's all-reduce. The first bucket's time includes the wait for late ranks.
  /// 0: unknown.
  double all_reduce_gb_per_s() const;
};

namespace mlp {

/// Loss and votes of one step, all-reduced after the last bucket.
class StepTail {
 public:
  /// Output of this rank's sum of squared errors: device memory, one float.
  float* loss() const { return device_; }
  /// Enqueues the all-reduce. `vote`: this rank's; small whole numbers stay exact in the sum. `compute_ms`:
  /// duration of an earlier pass of this rank, sent to all ranks; 0: no new value.
  Status close(Device& device, Communicator& communicator, float vote, float compute_ms, Stream& stream);
  /// Valid once `done` is reached. `outputs`: number of the global batch's outputs, the divisor of the loss.
  StepResult read(int ranks, double outputs) const;

  std::int64_t rows = 0;  ///< samples of the pass
  EventHandle done;
  /// Events of the pass. The wait for the all-reduces of its second layer is excluded from its compute time.
  EventHandle compute_begin, wait_begin, wait_end, compute_end;
  EventHandle second_end;  ///< end of the second pass, if there is one

 private:
  friend class StepTails;
  float* device_ = nullptr;
  float* reported_ = nullptr;  // pinned, written by the host before the step is enqueued
  float* result_ = nullptr;    // pinned, valid once `done` is reached
};

/// Tails of all steps that may be in flight, and of the previous one.
class StepTails {
 public:
  Status allocate(Device& device, int ranks, std::size_t slots);
  std::size_t size() const { return tails_.size(); }
  StepTail& of(std::int64_t step) { return tails_[static_cast<std::size_t>(step) % tails_.size()]; }

 private:
  Buffer memory_, pinned_;
  std::vector<StepTail> tails_;
};

/// Events along the streams of one step, recorded only if the step is measured. Not thread-safe.
class StepTimeline {
 public:
  Status allocate(Device& device, std::size_t layers, std::size_t buckets);

  /// Call before a step is enqueued.
  void begin(bool measures);
  /// Later work on the compute stream belongs to `phase`; none: the pass has ended.
  Status mark(Device& device, std::optional<StepPhase> phase, Stream& compute);
  Status sum_begins(Device& device, std::size_t bucket, Stream& communication);
  Status sum_ends(Device& device, std::size_t bucket, Stream& communication);

  /// Times of the last measured step, valid once it is complete, without `sum_bytes`.
  Result<StepTimes> times(Device& device) const;

 private:
  struct Mark {
    std::optional<StepPhase> phase;
    EventHandle event;
  };

  bool measures_ = false;
  std::size_t marked_ = 0;
  std::vector<Mark> marks_;
  std::vector<EventHandle> sum_begin_, sum_end_;  // one per bucket
};

}  // namespace mlp
}  // namespace egt
