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
#include "model/parameter_layout.hpp"

/// Private to the trainer: digests of a step's two passes, which all ranks get of all ranks.
namespace egt::mlp {

/// Of each pass, in the order of making: the chains of every hidden layer, then of every bucket the gradient,
/// with the sum of squared errors before the last one.
class PassComparison {
 public:
  /// All must outlive it.
  PassComparison(Device& device, Communicator& communicator, const MlpConfig& config,
                 const ParameterLayout& layout)
      : device_(device), communicator_(communicator), config_(config), layout_(layout), second_(*this) {}

  Status allocate(const Workspace& workspace);
  Status initialize(Stream& stream);
  std::vector<std::string> tensors() const;

  /// The next digests are of this step's first pass.
  void begin(std::int64_t step);
  Digest* next_digest() { return next_++; }
  /// Bucket `index` of the flat `gradient` is made; `loss`: device memory, made by then.
  Status add(std::size_t index, const VectorView& gradient, float* loss, Stream& compute);
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
    Digest* chains_digest() override { return comparison_.next_digest(); }
    Status bucket_made(std::size_t bucket) override;
    Stream* compute = nullptr;

   private:
    PassComparison& comparison_;
  };
  struct Slot {
    Digest *own = nullptr, *all = nullptr, *pinned = nullptr;
    EventHandle made, done;
  };

  std::size_t digests() const { return 2 * tensors().size(); }  ///< of both passes
  Slot& slot_of(std::int64_t step) { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }

  Device& device_;
  Communicator& communicator_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  Buffer gradient_;  ///< of the second pass, which nobody sums
  Buffer loss_, memory_, pinned_;
  std::array<Slot, MlpTrainer::depth + 2> slots_;
  SecondPass second_;
  Slot* slot_ = nullptr;  ///< of the step that is being enqueued
  Digest* next_ = nullptr;
};

}  // namespace egt::mlp
