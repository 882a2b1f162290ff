#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "egt/core/flip.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/operation_observer.hpp"
#include "model/parameter_layout.hpp"
#include "model/pass_tensor.hpp"

/// Private to the trainer: what training keeps from step to step.
namespace egt::mlp {

/// The weights, the optimizer's moments, and two copies of all these. Whatever is enqueued here takes them
/// as they are at that place of its stream.
class TrainedState {
 public:
  /// `device`, `config` and `layout` must outlive it.
  TrainedState(Device& device, const MlpConfig& config, const ParameterLayout& layout)
      : device_(device), config_(config), layout_(layout) {}

  Status allocate();
  /// As training begins: random weights, moments of 0.
  Status initialize(Stream& stream);

  /// One more step's gradients are made: from here on updates are its.
  void step_made() { ++updates_; }
  /// The optimizer's step of one bucket, whose summed gradient is `gradient`, of the loss times the
  /// precision's loss_scale.
  OptimizerStep step_of(const GradientBucket& bucket, VectorView gradient, Precision precision) const;
  Status update(const OptimizerStep& step, Stream& stream);

  std::vector<StateTensor> tensors() const;
  WordsView words(const StateTensor& tensor) const;
  WordsView kept_words(int slot, const StateTensor& tensor) const;
  /// Of the device's memory, copies for `keep` aside.
  std::uint64_t bytes() const;
  Status keep(int slot, Stream& stream);
  Status restore(int slot, Stream& stream);
  /// Becomes the same as `other`, of the same network.
  Status assign(const TrainedState& other, Stream& stream);

  ParameterSet parameters;
  /// fp32, flat: what this rank has not sent of its gradients; with MlpConfig::top_k_share only. It is kept
  /// and restored with the rest, but no tensor: each rank has its own.
  Buffer residual;

 private:
  /// The tensors' first, in the order of StateKind.
  std::vector<const Buffer*> buffers() const;
  Status copy(const std::vector<Buffer>& kept, bool back, Stream& stream);
  WordsView layer_words(const Buffer& flat, int layer) const;

  Device& device_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  std::int64_t updates_ = 0;             // of each element, for Adam's correction
  Buffer first_moment_, second_moment_;  // fp32, flat, where the optimizer has them
  std::array<std::vector<Buffer>, 2> kept_;
  std::array<std::int64_t, 2> kept_updates_{};
};

}  // namespace egt::mlp
