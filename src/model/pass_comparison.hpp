#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/mlp_pass.hpp"
#include "model/mlp_trainer.hpp"
#include "model/parallel/gradient_all_reduce.hpp"
#include "model/parameter_layout.hpp"

/// Private to the trainer: digests of a step's two passes and of its gradient all-reduces, all-gathered
/// across ranks.
namespace egt::mlp {

/// Example: "weight gradients of layers 2 to 3".
std::string name_of(const GradientBucket& bucket);

/// For each pass, digests every tensor, so that no ReLU mask hides a wrong word. Gradients are digested per
/// bucket before the bucket's all-reduce, followed by the sum of squared errors.
class PassComparison {
 public:
  /// All arguments must outlive it.
  PassComparison(Device& device, Communicator& communicator, const MlpConfig& config,
                 const ParameterLayout& layout)
      : device_(device),
        communicator_(communicator),
        config_(config),
        layout_(layout),
        tensors_(compared_tensors(layout, config)),
        second_(*this) {}

  Status allocate(const Workspace& workspace);
  Status initialize(Stream& stream);
  std::vector<std::string> tensors() const;
  int layer_of(std::size_t question) const {
    return question < tensors_.size() ? tensors_[question].layer : -1;
  }

  /// Later additions belong to this step's first pass.
  void begin_step(std::int64_t step);
  /// Output address of the tensor's digest; null if it is not compared.
  Digest* digest_of(const PassTensor& tensor);
  Status add(const PassTensor& tensor, WordsView words, Stream& compute);
  /// Bucket `index` of the flat `gradient` is complete. `loss`: device memory, complete by then.
  Status add(std::size_t index, const VectorView& gradient, float* loss, Stream& compute);
  /// Output of the verification of this step's all-reduce of a bucket.
  AllReduceEvidence evidence_of(std::size_t bucket);
  /// Hooks of the second pass.
  PassObserver& second_pass(Stream& compute);
  float* loss() { return loss_.as<float>(); }
  const Buffer& gradient() const { return gradient_; }
  /// All-gathers the digests after both passes are enqueued.
  Status exchange(Stream& compute, Stream& communication);
  Result<std::vector<MlpTrainer::PassDigests>> collect(std::int64_t step, double timeout_seconds) const;

 private:
  class SecondPass : public PassObserver {
   public:
    explicit SecondPass(PassComparison& comparison) : comparison_(comparison) {}
    Digest* chains_digest(const PassTensor& chains) override { return comparison_.digest_of(chains); }
    Status made(const PassTensor& tensor, WordsView words) override {
      return comparison_.add(tensor, words, *compute);
    }
    Status bucket_made(std::size_t bucket) override;
    Stream* compute = nullptr;

   private:
    PassComparison& comparison_;
  };
  /// Per rank: digests of first pass, second pass and all-reduces, the all-reduces' Mismatches, and a stamp,
  /// which shows that a result is not that of an earlier step.
  struct Slot {
    std::uint32_t stamp = 0;
    Digest *own = nullptr, *all = nullptr, *pinned = nullptr;
    EventHandle made, done;
  };
  static constexpr std::size_t digests_of_room = sizeof(Mismatches) / sizeof(Digest);
  static_assert(sizeof(Mismatches) % sizeof(Digest) == 0);

  /// Digests of one pass, including the loss.
  std::size_t digests() const { return tensors_.size() + buckets() + 1; }
  std::size_t buckets() const { return layout_.buckets().size(); }
  /// Size of a rank's message, in digests.
  std::size_t sent() const { return 2 * digests() + (1 + digests_of_room) * buckets() + 1; }
  static std::vector<PassTensor> compared_tensors(const ParameterLayout& layout, const MlpConfig& config);
  Slot& slot_of(std::int64_t step) { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }

  Device& device_;
  Communicator& communicator_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  const std::vector<PassTensor> tensors_;
  Buffer gradient_;  ///< gradient of the second pass, which is not all-reduced
  Buffer loss_, memory_, pinned_;
  std::array<Slot, MlpTrainer::depth + 2> slots_;
  SecondPass second_;
  std::uint32_t exchanges_ = 0;
  Slot* slot_ = nullptr;    ///< slot of the step being enqueued
  Digest* pass_ = nullptr;  ///< digests of the pass being enqueued
};

}  // namespace egt::mlp
