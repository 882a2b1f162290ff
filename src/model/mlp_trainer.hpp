#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/mlp_pass.hpp"
#include "model/mlp_state.hpp"
#include "model/operation_observer.hpp"
#include "model/parallel/gradient_all_reduce.hpp"
#include "model/parameter_layout.hpp"
#include "model/pass_comparison.hpp"
#include "model/pass_tensor.hpp"
#include "model/pending_updates.hpp"
#include "model/step_records.hpp"

namespace egt {

/// Trains the seeds' multilayer perceptron, data parallel, with fp32 master weights. Forward and backward use
/// the current precision. The all-reduce of a gradient bucket runs on the communication stream and overlaps
/// with the backward pass. Its update runs on the compute stream before the next step first reads these
/// weights. Not thread-safe. All ranks must call in the same order.
///
/// Step s may be enqueued while steps s-1 .. s-depth are still in flight; `retire_step(s)` waits for one.
class MlpTrainer : private mlp::PassObserver {
 public:
  static constexpr std::int64_t depth = 2;

  static Result<std::unique_ptr<MlpTrainer>> create(Device& device, Communicator& communicator,
                                                    const MlpConfig& config);

  /// Applies to steps enqueued from now on.
  Status set_precision(Precision precision);
  /// Apply to steps enqueued from now on. `own`: the ranks' shares must add up to the same global batch as
  /// before. `second`: a share of another rank or of this one, which the steps compute in a second pass with
  /// the same weights; its gradient is dropped. none: as before. invalid_argument: no samples, or more than
  /// MlpConfig::max_samples.
  Status set_shares(const BatchShare& own, const std::optional<BatchShare>& second);
  /// Enqueues the step. `vote`: see StepResult::votes. `measure`: records its StepTimes; at most one such
  /// step may be in flight.
  Status enqueue_step(std::int64_t step, float vote, bool measure);
  /// Waits until the step is complete. Steps are retired in order.
  Result<StepResult> retire_step(std::int64_t step, double timeout_seconds);
  /// The digests of the steps' passes and all-reduces.
  const mlp::PassComparison& passes() const { return comparison_; }
  /// Waits until this rank's own pass of the step is complete. Later delays then come from its peers.
  Status wait_for_pass(std::int64_t step, double timeout_seconds);
  /// Enqueues the updates of the last enqueued step on the compute stream now instead of with the next step.
  /// All functions below that read or change the state call this implicitly. `observer` receives the updates.
  Status settle(OperationObserver* observer = nullptr) {
    return updates_.settle(precision_, *compute_, observer ? *observer : unobserved_);
  }
  /// Call after the communicator was aborted. Waits up to `timeout_seconds` until no enqueued step is in
  /// flight, then discards these steps and their errors. `restore_state` must follow.
  Status give_up_steps(double timeout_seconds);
  /// Enqueues extra work on the compute stream in every later training pass, within its measured time. The
  /// work must not touch training's memory. Empty: none.
  using ExtraWork = std::function<Status(std::int64_t step, Stream& compute)>;
  void set_extra_work(ExtraWork work) { extra_work_ = std::move(work); }
  /// Times of the last step enqueued with `measure`, available after it was retired.
  Result<StepTimes> measured_times() const;

  /// Every tensor that a pass computes, in order.
  std::vector<PassTensor> replay_tensors() const { return mlp::Pass::tensors(layout_, config_); }
  /// Enqueues a known-answer pass after the last enqueued step, outside the training state. Batch and weights
  /// are the same on every rank and in every call. `answers`: device memory for one digest per tensor, valid
  /// on the communication stream. The precision is one of the config's. `observer` receives the operations.
  Status enqueue_replay(Precision precision, Digest* answers, OperationObserver* observer = nullptr);
  /// Injects faults into these tensors in every training pass and replay enqueued from now on. An empty list
  /// stops the injection.
  void set_tensor_faults(std::vector<TensorFault> tensor_faults);

  /// Every tensor that training keeps across steps.
  std::vector<StateTensor> state_tensors() const { return trained_.tensors(); }
  /// Enqueues one digest per state tensor, as of the last enqueued step. `answers`: as for enqueue_replay.
  /// `of_second`: of the second state.
  Status enqueue_state_digests(Digest* answers, bool of_second = false);
  /// Whether there is a second state, updated by the gradients of the second passes. It exists if a single
  /// rank trains with second passes.
  bool has_second_state() const { return second_ != nullptr; }
  /// Injects a fault into words of a state tensor, after the last enqueued step.
  Status tamper_state(const StateTensor& tensor, const Flip& flip);
  /// Copies all state tensors, as of the last enqueued step, to `slot` 0 or 1.
  Status keep_state(int slot);
  /// Restores the kept state. No step may be in flight; `set_precision` must follow.
  Status restore_state(int slot);
  /// A tensor's current or kept words: device memory, on the communication stream.
  WordsView state(const StateTensor& tensor) { return trained_.words(tensor); }
  WordsView kept_state(int slot, const StateTensor& tensor) { return trained_.kept_words(slot, tensor); }

  /// Bytes that each rank sends per step for the gradient all-reduces with a ring algorithm.
  double sent_bytes() const { return sums_.sent_bytes(); }

  const ParameterLayout& layout() const { return layout_; }
  /// The stream of the all-reduces. Other collectives of this communicator must use it too.
  Stream& communication_stream() { return *communication_; }
  /// The stream of the passes.
  Stream& compute_stream() { return *compute_; }
  /// fp32, flat, in device memory, for tests and checks: master weights as of the last settled step, the
  /// all-reduced gradient of the last step, and this rank's unsent gradient (empty without
  /// MlpConfig::top_k_share).
  VectorView weights() { return trained_.parameters.master(); }
  VectorView gradient() { return workspace_.gradient_range(0, layout_.size()); }
  VectorView residual() {
    const Buffer& residual = trained_.residual;
    return {residual.data(), ElementType::f32, residual.bytes() > 0 ? layout_.size() : 0};
  }

 private:
  MlpTrainer(Device& device, Communicator& communicator, const MlpConfig& config);
  Status allocate();
  Status make_streams_and_events();
  Status initialize();
  Status make_second_pass();
  Status check(const BatchShare& wanted) const;
  /// Makes later work on the communication stream wait for all earlier work on the compute stream.
  Status show_to_communication();
  /// Compute time of the step's pass, excluding its communication wait.
  Result<double> compute_ms(const mlp::StepTail& tail);
  Status await_sums(std::size_t layer);
  Status update(std::size_t first_layer, std::size_t last_layer);
  Status begin_phase(std::optional<StepPhase> phase) { return timeline_.mark(device_, phase, *compute_); }

  // Hooks of a training step's pass
  Status before_layer(std::size_t layer) override;
  Status before(const Operation& operation) override;
  Status after(const Operation& operation, const PassTensor& tensor) override;
  Status before_backward() override { return begin_phase(StepPhase::backward); }
  Digest* chains_digest(const PassTensor& chains) override { return comparison_.chains_digest(chains); }
  Status made(const PassTensor& tensor, WordsView words) override { return comparison_.made(tensor, words); }
  Status bucket_made(std::size_t bucket) override;

  Device& device_;
  Communicator& communicator_;
  const MlpConfig config_;
  BatchShare share_, second_share_;
  const ParameterLayout layout_;
  Precision precision_ = Precision::fp32;
  std::optional<std::int64_t> last_retired_;
  float last_compute_ms_ = 0;          ///< not sent to the peers yet; 0: none
  double second_ms_ = 0;               ///< of the retired step before the last one
  std::int64_t enqueued_step_ = 0;     ///< the step being enqueued
  mlp::StepTail* enqueued_ = nullptr;  ///< tail of that step
  ExtraWork extra_work_;
  OperationObserver unobserved_;

  // Members are destroyed in reverse order, so streams are destroyed before the memory that their work uses.
  mlp::TrainedState trained_;
  /// A single rank has no peers to compare its state with. It keeps a second state, which the second passes'
  /// gradients update. Null: no second state.
  const std::unique_ptr<mlp::TrainedState> second_;
  mlp::GradientAllReduce sums_;
  mlp::ParameterSet known_;  ///< weights of replays: the initial ones, but with nonzero biases
  mlp::Workspace workspace_;
  Buffer replay_loss_;
  mlp::PassComparison comparison_;
  mlp::StepTails tails_;
  mlp::PendingUpdates updates_;
  mlp::StepTimeline timeline_;
  mlp::EventHandle shown_;
  std::unique_ptr<Stream> compute_, communication_;
  std::unique_ptr<mlp::Pass> pass_;
};

}  // namespace egt
