#pragma once

#include <cstddef>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_state.hpp"
#include "model/parallel/gradient_sums.hpp"
#include "model/parameter_layout.hpp"
#include "model/step_timeline.hpp"

/// Private to the trainer: from a bucket's gradient to the update of its weights.
namespace egt::mlp {

/// Every bucket of a step is summed over ranks on the communication stream as soon as it is made, and is
/// pending until its update is enqueued on the compute stream. One thread.
class PendingUpdates {
 public:
  /// All must outlive it. `second`: a state that the second pass's gradient updates; null: there is none.
  PendingUpdates(Device& device, const ParameterLayout& layout, GradientSums& sums, TrainedState& trained,
                 const Workspace& workspace, TrainedState* second, const Buffer& second_gradient)
      : device_(device),
        layout_(layout),
        sums_(sums),
        trained_(trained),
        workspace_(workspace),
        second_(second),
        second_gradient_(second_gradient) {}

  Status allocate();
  /// The bucket is made by what is in `compute`: enqueues its sum, and its verification if sums are verified.
  Status sum(std::size_t bucket, const SumEvidence& evidence, Stream& compute, Stream& communication,
             StepTimeline& timeline);
  /// `compute` waits for the sums of the layer's pending buckets, and of all buckets before these.
  Status await_sums(std::size_t layer, Stream& compute);
  /// Enqueues the pending updates of the layers from `first` to `last`, whose sums were waited for.
  Status update(std::size_t first, std::size_t last, Precision precision, Stream& compute);
  /// Enqueues all that are pending, each behind its sum.
  Status settle(Precision precision, Stream& compute, OperationObserver& observer);
  /// Forgets what is pending.
  void drop() { pending_.assign(pending_.size(), false); }

 private:
  /// A bucket that has parts of several layers is used up before the lowest of them.
  std::size_t layer_of(std::size_t bucket) const {
    return static_cast<std::size_t>(layout_.buckets()[bucket].pieces.back().layer);
  }
  Status update(std::size_t bucket, Precision precision, Stream& compute, OperationObserver& observer);

  Device& device_;
  const ParameterLayout& layout_;
  GradientSums& sums_;
  TrainedState& trained_;
  const Workspace& workspace_;
  TrainedState* const second_;
  const Buffer& second_gradient_;
  std::vector<bool> pending_;                // a bucket each
  std::vector<EventHandle> ready_, summed_;  // likewise
};

}  // namespace egt::mlp
