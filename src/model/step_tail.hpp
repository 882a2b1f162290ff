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

/// Private to the trainer: what ranks tell each other at the end of a step.
namespace egt::mlp {

/// One step's: its loss and its notes, summed over ranks behind the last bucket.
class StepTail {
 public:
  /// Where the pass leaves this rank's sum of squared errors: device memory, one float.
  float* loss() const { return device_; }
  /// Enqueues the sum over ranks. `compute_ms`: how long an earlier pass of this rank took, which all
  /// ranks are told; 0: nothing new.
  Status close(Device& device, Communicator& communicator, const StepNote& note, float compute_ms,
               Stream& stream);
  /// Once `done` is reached: loss (`outputs`: the global batch's), notes, who is not finite, the times told.
  StepResult read(int ranks, double outputs) const;

  std::int64_t rows = 0;  ///< samples of the pass
  EventHandle done;
  /// Of the pass: the wait for the sums of its second layer is not its own work.
  EventHandle compute_begin, wait_begin, wait_end, compute_end;
  EventHandle second_end;  ///< of the second pass, if there is one

 private:
  friend class StepTails;
  float* device_ = nullptr;
  float* told_ = nullptr;    // pinned, written by the host before the step is enqueued
  float* result_ = nullptr;  // pinned, valid once `done` is reached
};

/// Of all the steps that may be under way, and of the one before them.
class StepTails {
 public:
  Status allocate(Device& device, int ranks);
  StepTail& of(std::int64_t step) { return tails_[static_cast<std::size_t>(step) % tails_.size()]; }

 private:
  Buffer memory_, pinned_;
  std::array<StepTail, MlpTrainer::depth + 2> tails_;
};

}  // namespace egt::mlp
