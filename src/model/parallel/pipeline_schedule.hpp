#pragma once

#include <optional>
#include <vector>

namespace egt {

/// What a stage of a pipeline does, one operation after the other.
struct PipelineOperation {
  enum class Kind { forward, backward, exchange };

  Kind kind = Kind::exchange;
  int micro_batch = -1;  ///< of forward and backward
  /// Of an exchange, the micro-batches whose activations (forward) or gradients (backward) go to or come from
  /// the neighbours. Empty: none does.
  std::optional<int> send_forward = {}, receive_forward = {}, send_backward = {}, receive_backward = {};
};

/// One forward, one backward (Narayanan et al., "PipeDream", 2019; with a flush as in "Memory-efficient
/// pipeline-parallel DNN training", 2021): behind stages - 1 - stage passes forward to begin with, each is
/// followed by one backward, so that no more than passes_kept are under way. All that is exchanged between
/// two passes is one exchange. The order is one in which every exchange is met by the neighbours', so that
/// all may be put in one stream and block it (tests/unit simulate it).
std::vector<PipelineOperation> schedule_1f1b(int stage, int stages, int micro_batches);

/// So many micro-batches' activations a stage keeps at a time: the memory of m may be that of m -
/// passes_kept.
int passes_kept(int stage, int stages, int micro_batches);

}  // namespace egt
