#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_trainer.hpp"

/// Private to the trainer: the messages between ranks at the end of a step.
namespace egt::mlp {

/// Loss and notes of one step, all-reduced after the last bucket.
class StepTail {
 public:
  /// Output of this rank's sum of squared errors: device memory, one float.
  float* loss() const { return device_; }
  /// Enqueues the all-reduce. `compute_ms`: duration of an earlier pass of this rank, sent to all ranks; 0:
  /// no new value.
  Status close(Device& device, Communicator& communicator, const StepMessage& note, float compute_ms,
               Stream& stream);
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
  Status allocate(Device& device, int ranks);
  StepTail& of(std::int64_t step) { return tails_[static_cast<std::size_t>(step) % tails_.size()]; }

 private:
  Buffer memory_, pinned_;
  std::array<StepTail, MlpTrainer::depth + 2> tails_;
};

}  // namespace egt::mlp
