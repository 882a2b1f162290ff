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

/// Private to the trainer: the state that training keeps across steps.
namespace egt::mlp {

/// The weights, the optimizer's moments, and two saved copies of both. Enqueued operations see the state in
/// stream order.
class TrainedState {
 public:
  /// `device`, `config` and `layout` must outlive it.
  TrainedState(Device& device, const MlpConfig& config, const ParameterLayout& layout)
      : device_(device), config_(config), layout_(layout) {}

  /// `keeps_states`: also allocates the memory for `keep`.
  Status allocate(bool keeps_states);
  /// Sets the initial state: random weights, zero moments.
  Status initialize(Stream& stream);

  /// The gradients of one more step are complete. Later updates belong to that step.
  void step_made() { ++updates_; }
  /// The optimizer step of one bucket. `gradient` is its all-reduced gradient of the loss times the
  /// precision's loss_scale.
  OptimizerStep step_of(const GradientBucket& bucket, VectorView gradient, Precision precision) const;
  Status update(const OptimizerStep& step, Stream& stream);

  std::vector<StateTensor> tensors() const;
  WordsView words(const StateTensor& tensor) const;
  WordsView kept_words(int slot, const StateTensor& tensor) const;
  /// Device memory in bytes, excluding the copies for `keep`.
  std::uint64_t bytes() const;
  Status keep(int slot, Stream& stream);
  Status restore(int slot, Stream& stream);
  /// Copies the state of `other`, which has the same network.
  Status assign(const TrainedState& other, Stream& stream);

  ParameterSet parameters;
  /// fp32, flat: the elements of this rank's gradients not sent yet, only with MlpConfig::top_k_share. Kept
  /// and restored with the state, but it is no StateTensor because it differs between ranks.
  Buffer residual;

 private:
  /// The state tensors come first, in the order of StateKind.
  std::vector<const Buffer*> buffers() const;
  Status copy(const std::vector<Buffer>& kept, bool back, Stream& stream);
  WordsView layer_words(const Buffer& flat, int layer) const;

  Device& device_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  std::int64_t updates_ = 0;             // updates of each element, for Adam's bias correction
  Buffer first_moment_, second_moment_;  // fp32, flat, if the optimizer has them
  std::array<std::vector<Buffer>, 2> kept_;
  std::array<std::int64_t, 2> kept_updates_{};
};

}  // namespace egt::mlp
