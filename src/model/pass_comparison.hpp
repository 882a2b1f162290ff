#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/digest_exchange.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/mlp_pass.hpp"
#include "model/parallel/gradient_all_reduce.hpp"
#include "model/parameter_layout.hpp"

namespace egt {

/// One rank's digests of both passes of a step, and the results of verifying its all-reduces.
struct RankPasses {
  Answers first, second;
  // Per bucket; empty with a single rank, because there is no all-reduce to verify
  Answers sums;                           ///< all-reduce results on this rank
  std::vector<Mismatches> wrong_in_sums;  ///< in this rank's slice of the results
};
/// Digests of one step, per rank.
using PassDigests = std::vector<RankPasses>;

namespace mlp {

/// Digests the tensors of a pass as soon as they are complete.
class TensorDigests : public PassObserver {
 public:
  /// `observer` receives the operations of the pass; null: none.
  TensorDigests(Device& device, std::vector<PassTensor> tensors, OperationObserver* observer = nullptr)
      : device_(device), tensors_(std::move(tensors)), observer_(observer) {}

  /// Writes digests of later tensors to `digests`, in the order of the tensors; null: no digests.
  void digest_to(Digest* digests, Stream& compute) {
    digests_ = digests;
    compute_ = &compute;
  }
  Status before(const Operation& operation) override {
    return observer_ == nullptr ? Status() : observer_->before(operation, *compute_);
  }
  Status after(const Operation& operation, const PassTensor& tensor) override {
    return observer_ == nullptr ? Status() : observer_->after(operation, tensor, *compute_);
  }
  Digest* chains_digest(const PassTensor& chains) override { return digest_of(chains); }
  Status made(const PassTensor& tensor, WordsView words) override {
    Digest* const digest = digest_of(tensor);
    return digest == nullptr ? Status() : device_.digest(words, digest, *compute_);
  }

 protected:
  /// Output address of the tensor's digest; null if it is not digested.
  Digest* digest_of(const PassTensor& tensor) const;

  Device& device_;
  const std::vector<PassTensor> tensors_;
  OperationObserver* const observer_;
  Digest* digests_ = nullptr;
  Stream* compute_ = nullptr;
};

/// Digests of a step's two passes and of its gradient all-reduces, all-gathered across ranks. For each pass,
/// digests every tensor, so that no ReLU mask hides a wrong word. Gradients are digested per bucket before
/// the bucket's all-reduce, followed by the sum of squared errors. Without MlpConfig::has_second_pass it does
/// nothing. The trainer calls the functions that are not const.
class PassComparison : public TensorDigests {
 public:
  /// All arguments must outlive it.
  PassComparison(Device& device, Communicator& communicator, const MlpConfig& config,
                 const ParameterLayout& layout);

  /// Names of the digests of a pass.
  std::vector<std::string> tensors() const;
  /// The layer of digest `question` of `tensors()`; -1: it covers several layers.
  int layer_of(std::size_t question) const {
    return question < tensors_.size() ? tensors_[question].layer : -1;
  }
  /// Example: "weight gradients of layers 2 to 3".
  std::string bucket_name(std::size_t bucket) const;
  /// Describes element `index` of the mismatches that `rank` reports in a bucket's all-reduce: "element 7 of
  /// layer 2's gradient".
  std::string place_in_sum(std::size_t bucket, int rank, std::uint64_t index) const;
  /// Waits until the digests of all ranks have arrived and returns them by rank. The step must have had a
  /// second pass, and at most `depth` later steps may have been enqueued.
  Result<PassDigests> collect(std::int64_t step, double timeout_seconds) const;

  /// `slots`: number of steps whose digests are kept.
  Status prepare(std::size_t slots, Stream& compute, Stream& communication);
  /// Later tensors belong to this step's first pass.
  void begin_step(std::int64_t step);
  /// Bucket `index` of the flat `gradient` is complete. `loss`: device memory, complete by then.
  Status add(std::size_t index, const VectorView& gradient, float* loss);
  /// Output of the verification of this step's all-reduce of a bucket.
  AllReduceEvidence evidence_of(std::size_t bucket);
  /// Later tensors belong to this step's second pass.
  void begin_second_pass() { digest_to(slot_->digests.own() + digests(), *compute_); }
  Status bucket_made(std::size_t bucket) override;
  float* loss() { return loss_.as<float>(); }
  const Buffer& gradient() const { return gradient_; }
  /// All-gathers the digests after both passes are enqueued.
  Status exchange();

 private:
  /// Per rank: digests of first pass, second pass and all-reduces, then the all-reduces' Mismatches.
  struct Slot {
    DigestExchange digests;
    EventHandle made;
  };
  static constexpr std::size_t digests_of_room = sizeof(Mismatches) / sizeof(Digest);
  static_assert(sizeof(Mismatches) % sizeof(Digest) == 0);

  /// Digests of one pass, including the loss.
  std::size_t digests() const { return tensors_.size() + buckets() + 1; }
  std::size_t buckets() const { return layout_.buckets().size(); }
  /// Size of a rank's message, in digests.
  std::size_t sent() const { return 2 * digests() + (1 + digests_of_room) * buckets(); }

  Communicator& communicator_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  Buffer gradient_;  ///< gradient of the second pass, which is not all-reduced
  Buffer loss_;
  Stream* communication_ = nullptr;
  std::vector<Slot> slots_;  ///< by step modulo size
  Slot* slot_ = nullptr;     ///< slot of the step being enqueued
};

}  // namespace mlp
}  // namespace egt
