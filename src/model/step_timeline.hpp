#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_trainer.hpp"

/// Private to the trainer: where the time of a measured step goes.
namespace egt::mlp {

/// Events along the streams of one step, recorded only in the steps that are measured. One thread.
class StepTimeline {
 public:
  Status allocate(Device& device, std::size_t layers, std::size_t buckets);

  /// A step is about to be enqueued.
  void begin(bool measures);
  /// What is enqueued on the compute stream from here on is of `phase`; none: the pass is over.
  Status mark(Device& device, std::optional<StepPhase> phase, Stream& compute);
  Status sum_begins(Device& device, std::size_t bucket, Stream& communication);
  Status sum_ends(Device& device, std::size_t bucket, Stream& communication);

  /// Of the last step measured, once it is over, but for `sum_bytes`.
  Result<StepTimes> times(Device& device) const;

 private:
  struct Mark {
    std::optional<StepPhase> phase;
    EventHandle event;
  };

  bool measures_ = false;
  std::size_t marked_ = 0;
  std::vector<Mark> marks_;
  std::vector<EventHandle> sum_begin_, sum_end_;  // a bucket each
};

}  // namespace egt::mlp
