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
#include "model/parallel/gradient_sums.hpp"
#include "model/parameter_layout.hpp"

/// Private to the trainer: digests of a step's two passes and of its gradient all-reduces, which all ranks
/// get of all ranks.
namespace egt::mlp {

/// "weight gradients of layers 2 to 3"
std::string name_of(const GradientBucket& bucket);

/// Of each pass: every tensor that it makes, so that no mask of a ReLU hides a wrong word. The gradients are
/// digested bucket by bucket, before the bucket's all-reduce; then the sum of squared errors.
class PassComparison {
 public:
  /// All must outlive it.
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

  /// What is added next is of this step's first pass.
  void begin_step(std::int64_t step);
  /// Where the tensor's digest goes.
  Digest* digest_of(const PassTensor& tensor);
  Status add(const PassTensor& tensor, WordsView words, Stream& compute);
  /// Bucket `index` of the flat `gradient` is made; `loss`: device memory, made by then.
  Status add(std::size_t index, const VectorView& gradient, float* loss, Stream& compute);
  /// Where the verification of this step's sum of a bucket goes.
  SumEvidence evidence_of(std::size_t bucket);
  /// What goes along with the second pass.
  PassCompanion& second_pass(Stream& compute);
  float* loss() { return loss_.as<float>(); }
  const Buffer& gradient() const { return gradient_; }
  /// Both passes are enqueued: exchanges their digests with all ranks.
  Status exchange(Stream& compute, Stream& communication);
  Result<std::vector<MlpTrainer::PassDigests>> collect(std::int64_t step, double timeout_seconds) const;

 private:
  class SecondPass : public PassCompanion {
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
  /// Each rank's: digests of the first pass, the second one and the sums, then the sums' Mismatches.
  struct Slot {
    Digest *own = nullptr, *all = nullptr, *pinned = nullptr;
    EventHandle made, done;
  };
  static constexpr std::size_t digests_of_room = sizeof(Mismatches) / sizeof(Digest);
  static_assert(sizeof(Mismatches) % sizeof(Digest) == 0);

  /// Of one pass, with the loss.
  std::size_t digests() const { return tensors_.size() + buckets() + 1; }
  std::size_t buckets() const { return layout_.buckets().size(); }
  /// What a rank sends, in digests.
  std::size_t sent() const { return 2 * digests() + (1 + digests_of_room) * buckets(); }
  static std::vector<PassTensor> compared_tensors(const ParameterLayout& layout, const MlpConfig& config);
  Slot& slot_of(std::int64_t step) { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }

  Device& device_;
  Communicator& communicator_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  const std::vector<PassTensor> tensors_;
  Buffer gradient_;  ///< of the second pass, without an all-reduce
  Buffer loss_, memory_, pinned_;
  std::array<Slot, MlpTrainer::depth + 2> slots_;
  SecondPass second_;
  Slot* slot_ = nullptr;    ///< of the step that is being enqueued
  Digest* pass_ = nullptr;  ///< digests of its pass that is being enqueued
};

}  // namespace egt::mlp
