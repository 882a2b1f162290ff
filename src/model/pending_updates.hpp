#pragma once

#include <cstddef>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_state.hpp"
#include "model/parallel/gradient_all_reduce.hpp"
#include "model/parameter_layout.hpp"
#include "model/step_records.hpp"

/// Private to the trainer: from a bucket's gradient to the update of its weights.
namespace egt::mlp {

/// Each bucket of a step is all-reduced on the communication stream as soon as it is computed. It is pending
/// until its update is enqueued on the compute stream. Not thread-safe.
class PendingUpdates {
 public:
  /// All arguments must outlive it. `second`: a state that the second pass's gradient updates; null: none.
  PendingUpdates(Device& device, const ParameterLayout& layout, GradientAllReduce& sums,
                 TrainedState& trained, const Workspace& workspace, TrainedState* second,
                 const Buffer& second_gradient)
      : device_(device),
        layout_(layout),
        sums_(sums),
        trained_(trained),
        workspace_(workspace),
        second_(second),
        second_gradient_(second_gradient) {}

  Status allocate();
  /// Enqueues the all-reduce of the bucket computed in `compute`, and its verification if enabled.
  Status sum(std::size_t bucket, const AllReduceEvidence& evidence, Stream& compute, Stream& communication,
             StepTimeline& timeline);
  /// Makes `compute` wait for the all-reduces of the layer's pending buckets and of all earlier buckets.
  Status await_sums(std::size_t layer, Stream& compute);
  /// Enqueues the pending updates of layers `first` to `last`, after `await_sums` for their all-reduces.
  Status update(std::size_t first, std::size_t last, Precision precision, Stream& compute,
                OperationObserver& observer);
  /// Enqueues all pending updates, each after its all-reduce.
  Status settle(Precision precision, Stream& compute, OperationObserver& observer);
  /// Discards pending updates.
  void drop() { pending_.assign(pending_.size(), false); }

 private:
  /// The layer before which the bucket's update must be enqueued: the lowest one in the bucket.
  std::size_t layer_of(std::size_t bucket) const {
    return static_cast<std::size_t>(layout_.buckets()[bucket].pieces.back().layer);
  }
  Status update(std::size_t bucket, Precision precision, Stream& compute, OperationObserver& observer);

  Device& device_;
  const ParameterLayout& layout_;
  GradientAllReduce& sums_;
  TrainedState& trained_;
  const Workspace& workspace_;
  TrainedState* const second_;
  const Buffer& second_gradient_;
  std::vector<bool> pending_;                // one per bucket
  std::vector<EventHandle> ready_, summed_;  // one per bucket
};

}  // namespace egt::mlp
