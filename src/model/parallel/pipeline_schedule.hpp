#pragma once

#include <optional>
#include <vector>

namespace egt {

/// One operation of a pipeline stage.
struct PipelineOperation {
  enum class Kind { forward, backward, exchange };

  Kind kind = Kind::exchange;
  int micro_batch = -1;  ///< of forward and backward
  /// Micro-batches of an exchange whose activations (forward) or gradients (backward) are sent to or received
  /// from the neighbours. Empty: none.
  std::optional<int> send_forward = {}, receive_forward = {}, send_backward = {}, receive_backward = {};
};

/// One forward, one backward (Narayanan et al., "PipeDream", 2019; with a flush as in "Memory-efficient
/// pipeline-parallel DNN training", 2021). After stages - 1 - stage warm-up forward passes, each forward pass
/// is followed by one backward pass, so at most passes_kept are in flight. All transfers between two passes
/// form one exchange. Every exchange matches the neighbours' in this order, so all may run blocking on one
/// stream (tests/unit simulate it).
std::vector<PipelineOperation> schedule_1f1b(int stage, int stages, int micro_batches);

/// Number of micro-batches whose activations a stage keeps at the same time. Micro-batch m may reuse the
/// memory of m - passes_kept.
int passes_kept(int stage, int stages, int micro_batches);

}  // namespace egt
