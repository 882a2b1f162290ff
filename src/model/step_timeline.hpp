#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_trainer.hpp"

/// Private to the trainer: time breakdown of a measured step.
namespace egt::mlp {

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

}  // namespace egt::mlp
