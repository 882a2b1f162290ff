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
#include "model/retrieval/retrieval_encoder.hpp"

namespace egt {

/// What one step of training gave, the same on every rank but for the time.
struct RetrievalStep {
  double loss = 0;  ///< mean of all shards' queries and documents
  double ms = 0;    ///< on the device, with the wait for peers
};

/// Who evaluates: every rank all by itself, which puts nothing in the communicator, or all ranks together.
enum class EvaluationScope { alone, all };

/// What an evaluation gave; the same on every rank, for either scope and any number of ranks, but for the
/// times.
struct RetrievalScores {
  static constexpr std::array<int, 3> firsts = {1, 5, 10};  ///< the k of recall@k

  std::int64_t queries = 0;
  std::array<std::int64_t, 3> hits = {};  ///< queries whose document is among the first k, by `firsts`
  double encode_seconds = 0;              ///< on the device: all embeddings, and their way to all ranks
  double search_seconds = 0;              ///< likewise: similarities, and the counts' way to all ranks

  double recall(std::size_t i) const { return static_cast<double>(hits[i]) / static_cast<double>(queries); }
  double seconds() const { return encode_seconds + search_seconds; }
};

/// Digests of what must be the same on every rank.
struct RetrievalDigests {
  Digest weights;    ///< after the last enqueued step
  Digest gradient;   ///< of the last step, summed over shards
  Digest queries;    ///< embeddings, of the last evaluation
  Digest documents;  ///< likewise

  friend bool operator==(const RetrievalDigests&, const RetrievalDigests&) = default;
};

/// What can be changed on purpose each time that it is made.
enum class RetrievalPart {
  activation,  ///< of a shard's first hidden layer in training; `index` is the shard
  gradient,    ///< of a shard, before it goes to the other ranks; `index` is the shard
  embeddings,  ///< of a block's queries in an evaluation; `index` is the block
};

/// Words of one part that are changed on purpose, on the rank that is told so and only where it makes the
/// part.
struct RetrievalTampering {
  RetrievalPart part = RetrievalPart::gradient;
  std::int64_t index = 0;
  Flip flip;
};

/// Trains an encoder contrastively on all ranks and tests how well it retrieves. The batch of a step is made
/// of a fixed number of shards, shard i made by rank i % ranks; the shards' gradients go to all ranks, and
/// every rank adds all of them in the order of the shards. So the weights' bits do not depend on the number
/// of ranks, where the devices give the same bits; nor do an evaluation's, whose products have the same
/// shapes whoever makes them.
///
/// All work is in one stream of the model's own, collectives too: while any of it is under way, nothing else
/// of this communicator may be. One thread. All ranks call in the same order, but for what is done alone.
///
/// Step s may be enqueued while step s-1 is still under way. A model whose wait has failed is of no further
/// use: its communicator is given up, then it is destroyed, which waits for its stream.
class RetrievalModel {
 public:
  static constexpr std::int64_t depth = 2;

  /// Both outlive the model. Errors: as of check_retrieval, and those of the device, out_of_memory first of
  /// all.
  static Result<std::unique_ptr<RetrievalModel>> create(Device& device, Communicator& communicator,
                                                        const RetrievalConfig& config);
  ~RetrievalModel();

  /// Enqueues a step of training; its number, from 0 and below 2^55, is all that its data depend on.
  Status enqueue_step(std::int64_t step);
  /// Waits until the step is over, at most `timeout_seconds`, and ends early where the communicator has
  /// failed or was given up; steps are retired in order.
  Result<RetrievalStep> retire_step(std::int64_t step, double timeout_seconds);

  /// Encodes and searches the whole evaluation set with the weights as they are after the last enqueued step.
  /// Waits, as `retire_step` does. Times begin, for all ranks together, when all have met.
  Result<RetrievalScores> evaluate(EvaluationScope scope, double timeout_seconds);

  /// Waits likewise, but for no peer. Before any evaluation the embeddings are zeros.
  Result<RetrievalDigests> digests(double timeout_seconds);

  /// Changes words of the weights on purpose, at rest behind the last enqueued step.
  Status tamper_weights(const Flip& flip);
  /// In every step and evaluation enqueued from now on; none: stops.
  void set_tampering(std::optional<RetrievalTampering> tampering);

  const RetrievalConfig& config() const;
  Stream& stream();
  /// fp32, flat, in device memory, in order of `stream`: the weights after the last enqueued step, the
  /// gradient of its loss.
  VectorView weights();
  VectorView gradient();
  /// Embeddings of the last evaluation, likewise: `evaluated` rows of the precision's activation_type.
  MatrixView queries();
  MatrixView documents();

 private:
  struct Impl;
  explicit RetrievalModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace egt
