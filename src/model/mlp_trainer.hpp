#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/mlp_config.hpp"
#include "model/operation_observer.hpp"
#include "model/parameter_layout.hpp"
#include "model/pass_tensor.hpp"

namespace egt {

/// The message that a rank sends with each step. Each value is summed over ranks. Small whole numbers stay
/// exact.
struct StepMessage {
  float vote = 0;
  float check_ms = 0;  ///< cost of this rank's last check, in ms; 0: no new value
  float step_ms = 0;   ///< duration of a step without a check, for comparison
};

/// The result of one step, available when it is complete.
struct StepResult {
  double loss = 0;    ///< squared error per output, mean over the global batch
  StepMessage notes;  ///< summed over all ranks, the same on every rank
  /// Each rank's sum of squared errors over its own samples; bitwise the same on every rank.
  std::vector<float> own_losses;
  std::optional<double> step_ms;  ///< from the end of the previous step to the end of this one, device time
  /// Device time from the end of the previous pass to the end of this one, on the compute stream: the phases
  /// of StepTimes and the gaps between them. `step_ms` ends with the all-reduces instead.
  std::optional<double> pass_ms;
  std::optional<double> compute_ms;  ///< device time of this rank's pass, excluding communication wait
  /// Pass time per rank of one earlier step, scaled to the samples of that rank's MlpConfig. The same on
  /// every rank. 0: unknown.
  std::vector<double> all_compute_ms;

  /// The ranks whose own share of the loss is not finite.
  std::vector<int> not_finite() const;
};

/// Phases of the compute stream in a step.
enum class StepPhase {
  wait,        ///< communication wait
  update,      ///< weight update with the gradients of the previous step
  forward,     ///< GEMMs and the input's random numbers
  activation,  ///< bias, ReLU and extreme compute of all hidden layers
  backward,    ///< from the loss to the last weight gradient
  second,      ///< the second pass of the previous step
};
constexpr std::size_t step_phases = 6;
const char* to_string(StepPhase phase);

/// Times of one measured step. Measuring adds events to the streams, a few microseconds each.
struct StepTimes {
  std::array<double, step_phases> phase_ms = {};  ///< indexed by StepPhase; they add up to the pass
  std::vector<double> sum_ms;                     ///< per bucket, from its gradient to its all-reduce result
  std::vector<double> sum_bytes;                  ///< per bucket

  double of(StepPhase phase) const { return phase_ms[static_cast<std::size_t>(phase)]; }
  /// Bandwidth of the fastest bucket's all-reduce. The first bucket's time includes the wait for late ranks.
  /// 0: unknown.
  double all_reduce_gb_per_s() const;
};

/// Trains the seeds' multilayer perceptron, data parallel, with fp32 master weights. Forward and backward use
/// the current precision. The all-reduce of a gradient bucket runs on the communication stream and overlaps
/// with the backward pass. Its update runs on the compute stream before the next step first reads these
/// weights. Not thread-safe. All ranks must call in the same order.
///
/// Step s may be enqueued while steps s-1 .. s-depth are still in flight; `retire_step(s)` waits for one.
class MlpTrainer {
 public:
  static constexpr std::int64_t depth = 2;

  static Result<std::unique_ptr<MlpTrainer>> create(Device& device, Communicator& communicator,
                                                    const MlpConfig& config);
  ~MlpTrainer();

  /// Applies to steps enqueued from now on.
  Status set_precision(Precision precision);
  /// Applies to steps enqueued from now on. The ranks' shares must add up to the same global batch as before.
  /// invalid_argument: no samples, or more than MlpConfig::max_samples.
  Status set_share(const BatchShare& share);
  /// Steps enqueued from now on compute this share in a second pass with the same weights and drop its
  /// gradient. The share is another rank's or this rank's own. Requires MlpConfig::has_second_pass. Errors as
  /// of set_share.
  Status set_second_share(const BatchShare& share);
  /// Enqueues the step. `measure`: records its StepTimes; at most one such step may be in flight.
  Status enqueue_step(std::int64_t step, const StepMessage& note, bool measure);
  /// Waits until the step is complete. Steps are retired in order.
  Result<StepResult> retire_step(std::int64_t step, double timeout_seconds);
  /// Names of the digests by which a step's passes are compared: the chains of the hidden layers, this rank's
  /// gradient per bucket, and its sum of squared errors.
  std::vector<std::string> compared_tensors() const;
  /// The layer of such a tensor; -1: it belongs to several.
  int compared_layer(std::size_t question) const;
  /// One rank's digests of both passes of a step, and the results of verifying its all-reduces.
  struct PassDigests {
    std::vector<Digest> first, second;
    // Per bucket; empty with a single rank, because there is no all-reduce to verify
    std::vector<Digest> sums;               ///< all-reduce results on this rank
    std::vector<Mismatches> wrong_in_sums;  ///< in this rank's slice of the results
  };
  /// Example: "weight gradients of layers 2 to 3".
  std::string bucket_name(std::size_t bucket) const;
  /// Describes element `index` of the mismatches that `rank` reports in a bucket's all-reduce: "element 7 of
  /// layer 2's gradient".
  std::string place_in_sum(std::size_t bucket, int rank, std::uint64_t index) const;
  /// Waits until the digests of all ranks have arrived and returns them by rank. Requires a step with second
  /// passes, and is valid until `depth` + 1 more steps are enqueued.
  Result<std::vector<PassDigests>> pass_digests(std::int64_t step, double timeout_seconds) const;
  /// Waits until this rank's own pass of the step is complete. Later delays then come from its peers.
  Status wait_for_pass(std::int64_t step, double timeout_seconds) const;
  /// Enqueues the updates of the last enqueued step on the compute stream now instead of with the next step.
  /// All functions below that read or change the state call this implicitly.
  Status settle();
  /// Call after the communicator was aborted. Waits up to `timeout_seconds` until no enqueued step is in
  /// flight, then discards these steps and their errors. `restore_state` must follow.
  Status give_up_steps(double timeout_seconds);
  /// Enqueues extra work on the compute stream in every later training pass, within its measured time. The
  /// work must not touch training's memory. Empty: none.
  using ExtraWork = std::function<Status(std::int64_t step, Stream& compute)>;
  void set_extra_work(ExtraWork work);
  /// Times of the last step enqueued with `measure`, available after it was retired.
  Result<StepTimes> measured_times() const;

  /// Every tensor that a pass computes, in order.
  std::vector<PassTensor> replay_tensors() const;
  /// Enqueues a known-answer pass after the last enqueued step, outside the training state. Batch and weights
  /// are the same on every rank and in every call. `answers`: device memory for one digest per tensor, valid
  /// on the communication stream. The precision is one of the config's. `observer` receives the operations of
  /// the replay and of the updates left pending by the last step.
  Status enqueue_replay(Precision precision, Digest* answers, OperationObserver* observer = nullptr);
  /// Injects faults into these tensors in every training pass and replay enqueued from now on. An empty list
  /// stops the injection.
  void set_tensor_faults(std::vector<TensorFault> tensor_faults);

  /// Every tensor that training keeps across steps.
  std::vector<StateTensor> state_tensors() const;
  /// Enqueues one digest per state tensor, as of the last enqueued step. `answers`: as for enqueue_replay.
  Status enqueue_state_digests(Digest* answers);
  /// Whether there is a second state, updated by the gradients of the second passes. It exists if a single
  /// rank trains with second passes.
  bool has_second_state() const;
  /// The same digests for the second state.
  Status enqueue_second_state_digests(Digest* answers);
  /// Injects a fault into words of a state tensor, after the last enqueued step.
  Status tamper_state(const StateTensor& tensor, const Flip& flip);
  /// Copies all state tensors, as of the last enqueued step, to `slot` 0 or 1.
  Status keep_state(int slot);
  /// Restores the kept state. No step may be in flight; `set_precision` must follow.
  Status restore_state(int slot);
  /// A tensor's current or kept words: device memory, on the communication stream.
  WordsView state(const StateTensor& tensor);
  WordsView kept_state(int slot, const StateTensor& tensor);

  /// Bytes that each rank sends per step for the gradient all-reduces with a ring algorithm.
  double sent_bytes() const;

  const ParameterLayout& layout() const;
  /// The stream of the all-reduces. Other collectives of this communicator must use it too.
  Stream& communication_stream();
  /// The stream of the passes.
  Stream& compute_stream();
  /// fp32, flat, in device memory, for tests and checks: master weights as of the last settled step, the
  /// all-reduced gradient of the last step, and this rank's unsent gradient (empty without
  /// MlpConfig::top_k_share).
  VectorView weights();
  VectorView gradient();
  VectorView residual();

 private:
  struct Impl;
  explicit MlpTrainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace egt
