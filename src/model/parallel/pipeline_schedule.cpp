#include "model/parallel/pipeline_schedule.hpp"

#include <algorithm>

namespace egt {

int passes_kept(int stage, int stages, int micro_batches) {
  return std::min(stages - stage, micro_batches);
}

std::vector<PipelineOperation> schedule_1f1b(int stage, int stages, int micro_batches) {
  using enum PipelineOperation::Kind;
  const bool first = stage == 0, last = stage + 1 == stages;
  std::vector<PipelineOperation> operations;
  PipelineOperation next;  // the pending exchange
  const auto compute = [&](PipelineOperation::Kind kind, int micro_batch) {
    if (next.send_forward || next.receive_forward || next.send_backward || next.receive_backward)
      operations.push_back(next);
    next = {};
    operations.push_back({.kind = kind, .micro_batch = micro_batch});
  };
  const int ahead = passes_kept(stage, stages, micro_batches) - 1;
  for (int forwards = 0, backwards = 0; backwards < micro_batches;) {
    if (forwards < micro_batches && forwards <= backwards + ahead) {
      if (!first) next.receive_forward = forwards;
      compute(forward, forwards);
      if (!last) next.send_forward = forwards;
      ++forwards;
    } else {
      if (!last) next.receive_backward = backwards;
      compute(backward, backwards);
      if (!first) next.send_backward = backwards;
      ++backwards;
    }
  }
  if (!first) operations.push_back(next);
  return operations;
}

}  // namespace egt
