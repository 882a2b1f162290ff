#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "egt/core/digest.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "loadtest/retrieval/retrieval_encoder.hpp"

namespace egt {

/// Result of one training step, the same on every rank except for the time.
struct RetrievalStep {
  double loss = 0;  ///< mean over all shards' queries and documents
  double ms = 0;    ///< device time, including communication wait
};

/// alone: every rank evaluates independently without communication. all: the ranks evaluate together.
enum class EvaluationScope { alone, all };

/// Result of an evaluation. Except for the times, it is the same on every rank, for either scope and any
/// number of ranks.
struct RetrievalScores {
  static constexpr std::array<int, 3> firsts = {1, 5, 10};  ///< the k of recall@k

  std::int64_t queries = 0;
  std::array<std::int64_t, 3> hits = {};  ///< queries whose document is among the top k, indexed as `firsts`
  double encode_seconds = 0;              ///< device time of encoding and all-gathering the embeddings
  double search_seconds = 0;              ///< device time of the similarities and the counts' all-gather

  double recall(std::size_t i) const { return static_cast<double>(hits[i]) / static_cast<double>(queries); }
  double seconds() const { return encode_seconds + search_seconds; }
};

/// Digests of data that must be the same on every rank.
struct RetrievalDigests {
  Digest weights;    ///< after the last enqueued step
  Digest gradient;   ///< of the last step, summed over shards
  Digest queries;    ///< embeddings of the last evaluation
  Digest documents;  ///< embeddings of the last evaluation

  friend bool operator==(const RetrievalDigests&, const RetrievalDigests&) = default;
};

/// Targets for an injected fault, applied each time the target is computed.
enum class RetrievalPart {
  activation,  ///< of a shard's first hidden layer in training; `index` is the shard
  gradient,    ///< of a shard, before the all-gather; `index` is the shard
  embeddings,  ///< of a block's queries in an evaluation; `index` is the block
};

/// An injected fault in words of one part. It takes effect only on the rank that sets it, and only if that
/// rank computes the part.
struct RetrievalFault {
  RetrievalPart part = RetrievalPart::gradient;
  std::int64_t index = 0;
  Flip flip;
};

/// Trains an encoder contrastively on all ranks and tests how well it retrieves. The batch of a step has a
/// fixed number of shards; rank i % ranks computes shard i. The shards' gradients are all-gathered, and every
/// rank adds them in shard order. So the weights' bits do not depend on the number of ranks if the devices
/// compute the same bits. The same holds for evaluations, whose GEMM shapes do not depend on the rank.
///
/// All work, including collectives, runs on the model's own stream. No other work of this communicator may be
/// in flight meanwhile. Not thread-safe. All ranks must call in the same order, except with
/// EvaluationScope::alone.
///
/// Step s may be enqueued while step s-1 is in flight. After a failed wait the model is unusable: abort its
/// communicator, then destroy the model, which waits for its stream.
class RetrievalModel {
 public:
  static constexpr std::int64_t depth = 2;

  /// Device and communicator must outlive the model. Errors: those of check_retrieval and of the device,
  /// mainly out_of_memory.
  static Result<std::unique_ptr<RetrievalModel>> create(Device& device, Communicator& communicator,
                                                        const RetrievalConfig& config);
  ~RetrievalModel();

  /// Enqueues a training step. Its data depend only on its number, from 0 and below 2^55.
  Status enqueue_step(std::int64_t step);
  /// Waits up to `timeout_seconds` until the step is complete, and returns early if the communicator failed
  /// or was aborted. Steps are retired in order.
  Result<RetrievalStep> retire_step(std::int64_t step, double timeout_seconds);

  /// Encodes and searches the whole evaluation set with the weights after the last enqueued step. Waits as
  /// `retire_step` does. With EvaluationScope::all, times begin after a barrier of all ranks.
  Result<RetrievalScores> evaluate(EvaluationScope scope, double timeout_seconds);

  /// Waits for this rank's stream, not for peers. Before any evaluation the embeddings are zeros.
  Result<RetrievalDigests> digests(double timeout_seconds);

  /// Injects a fault into words of the weights, after the last enqueued step.
  Status tamper_weights(const Flip& flip);
  /// Applies to every step and evaluation enqueued from now on; std::nullopt: stops the injection.
  void set_tensor_faults(std::optional<RetrievalFault> tensor_faults);

  const RetrievalConfig& config() const;
  Stream& stream();
  /// fp32, flat, in device memory, in order of `stream`: the weights after the last enqueued step, and the
  /// gradient of its loss.
  VectorView weights();
  VectorView gradient();
  /// Embeddings of the last evaluation, in order of `stream`: `evaluated` rows of the precision's
  /// activation_type.
  MatrixView queries();
  MatrixView documents();

 private:
  struct Impl;
  explicit RetrievalModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace egt
