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

/// What a rank tells its peers along with a step; each figure is summed over ranks. Small whole numbers stay
/// exact.
struct StepNote {
  float vote = 0;
  float check_ms = 0;  ///< what the last check cost this rank; 0: nothing new
  float step_ms = 0;   ///< beside it: a step without a check
};

/// What one step gave, known when it is over.
struct StepResult {
  double loss = 0;  ///< mean over the global batch of the squared error of an output
  StepNote notes;   ///< the sums of all ranks' notes, the same on every rank
  /// Of each rank, its sum of squared errors over its own samples; the same bits on every rank.
  std::vector<float> own_losses;
  std::optional<double> step_ms;  ///< from the end of the step before to the end of this one, on the device
  /// From the end of the pass before to the end of this pass, in the compute stream. Unlike `step_ms`, which
  /// ends with the all-reduces, it is the sum of the phases of StepTimes and of what is between them.
  std::optional<double> pass_ms;
  std::optional<double> compute_ms;  ///< how long the device worked for this rank's pass, without its peers
  /// Of every rank and one earlier step, the same on every rank: how long its pass would have taken, in
  /// proportion, for the samples of its MlpConfig; 0: not known.
  std::vector<double> all_compute_ms;

  /// The ranks whose own share of the loss is not finite.
  std::vector<int> not_finite() const;
};

/// What the compute stream does in a step.
enum class StepPhase {
  wait,        ///< for sums over ranks
  update,      ///< of the weights, by the gradients of the step before
  forward,     ///< products and the input's random numbers
  activation,  ///< bias, ReLU and extreme compute of all hidden layers
  backward,    ///< from the loss to the last weight gradient
  second,      ///< the second pass of the step before
};
constexpr std::size_t step_phases = 6;
const char* to_string(StepPhase phase);

/// Times of one step that was asked to be measured (it adds events to the streams, a few microseconds each).
struct StepTimes {
  std::array<double, step_phases> phase_ms = {};  ///< by StepPhase; a pass is their sum
  std::vector<double> sum_ms;                     ///< a bucket each, from its readiness to its sum
  std::vector<double> sum_bytes;                  ///< likewise

  double of(StepPhase phase) const { return phase_ms[static_cast<std::size_t>(phase)]; }
  /// Of the fastest bucket's sum, bytes by time: the first one's time holds the wait for ranks that come to
  /// it later. 0: not known.
  double all_reduce_gb_per_s() const;
};

/// Trains the seeds' multilayer perceptron, data parallel: fp32 master weights, forward and backward in the
/// precision of the moment. The sum of a gradient bucket over ranks runs on the communication stream while
/// backward goes on; its update on the compute stream, before the next step first reads these weights. One
/// thread. All ranks call in the same order.
///
/// Step s may be enqueued while steps s-1 .. s-depth are still under way; `retire(s)` waits for one.
class MlpTrainer {
 public:
  static constexpr std::int64_t depth = 2;

  static Result<std::unique_ptr<MlpTrainer>> create(Device& device, Communicator& communicator,
                                                    const MlpConfig& config);
  ~MlpTrainer();

  /// For the steps enqueued from now on.
  Status set_precision(Precision precision);
  /// For the steps enqueued from now on; the ranks' shares make the same global batch as before.
  /// invalid_argument: more samples than MlpConfig::most_samples, or none.
  Status set_share(const BatchShare& share);
  /// In the steps enqueued from now on, a second pass with the same weights is made of this share, and its
  /// gradient is dropped: another rank's share, or this rank's own. Not without MlpConfig::has_second_pass.
  /// invalid_argument as above.
  Status set_second_share(const BatchShare& share);
  /// Enqueues the step. `measure`: its StepTimes are wanted; at most one such step at a time.
  Status enqueue_step(std::int64_t step, const StepNote& note, bool measure);
  /// Waits until the step is over; steps are retired in order.
  Result<StepResult> retire_step(std::int64_t step, double timeout_seconds);
  /// What a step's passes are compared by, one name a digest: the chains of the hidden layers, this rank's
  /// gradient, bucket by bucket, and its sum of squared errors.
  std::vector<std::string> compared_tensors() const;
  /// Digests of both passes of a step, of one rank, and what the verification of its all-reduces found.
  struct PassDigests {
    std::vector<Digest> first, second;
    // By bucket; empty: sums are not verified, since there is one rank
    std::vector<Digest> sums;               ///< as this rank got them
    std::vector<Mismatches> wrong_in_sums;  ///< of this rank's slice of them
  };
  /// "weight gradients of layers 2 to 3"
  std::string bucket_name(std::size_t bucket) const;
  /// Element `index` of what `rank` reports as wrong in the sum of a bucket: "element 7 of layer 2's
  /// gradient".
  std::string place_in_sum(std::size_t bucket, int rank, std::uint64_t index) const;
  /// Waits until all ranks' are here: for each of them. Of a step with second passes; until `depth` + 1 more
  /// steps are enqueued.
  Result<std::vector<PassDigests>> pass_digests(std::int64_t step, double timeout_seconds) const;
  /// Waits until this rank's own pass of the step is made: what is missing then comes from its peers.
  Status wait_for_pass(std::int64_t step, double timeout_seconds) const;
  /// Enqueues the updates of the last enqueued step at once, on the compute stream; otherwise they come
  /// with the next step. All that reads or changes the state below does so by itself.
  Status settle();
  /// After the communicator was given up: waits, at most `timeout_seconds`, until nothing of the steps
  /// enqueued is under way any more, and forgets them and that they failed. `restore_state` must follow.
  Status give_up_steps(double timeout_seconds);
  /// Enqueues more work on the compute stream, in every training pass enqueued from now on and within its
  /// measured time; it must leave training's memory alone. Empty: none.
  using ExtraWork = std::function<Status(std::int64_t step, Stream& compute)>;
  void set_extra_work(ExtraWork work);
  /// Of the last step enqueued with `measure`, after it was retired.
  Result<StepTimes> measured_times() const;

  /// Every tensor that a pass makes, in order.
  std::vector<PassTensor> replay_tensors() const;
  /// A known-answer pass, behind the last enqueued step and outside the training state: the same batch and
  /// the same weights on every rank and each time. `answers`: device memory for one digest a tensor, valid on
  /// the communication stream. The precision is one of the config's. `observer` sees the operations of the
  /// replay, and of the updates that the last step left pending.
  Status enqueue_replay(Precision precision, Digest* answers, OperationObserver* observer = nullptr);
  /// Changes these tensors on purpose in every pass, of training and replay, enqueued from now on; none:
  /// stops.
  void set_tampering(std::vector<Tampering> tampering);

  /// Every tensor that training keeps from step to step.
  std::vector<StateTensor> state_tensors() const;
  /// Digests of them as they are after the last enqueued step, one each, in `answers` as above.
  Status enqueue_state_digests(Digest* answers);
  /// Has it another state, updated by the gradients of the second passes? So it is where one rank trains with
  /// second passes.
  bool has_second_state() const;
  /// The same digests of that state.
  Status enqueue_second_state_digests(Digest* answers);
  /// Changes words of one on purpose, at rest behind the last enqueued step.
  Status tamper_state(const StateTensor& tensor, const Flip& flip);
  /// Copies all of them as they are after the last enqueued step to `slot`, 0 or 1.
  Status keep_state(int slot);
  /// Takes them back as they were kept. No step may be under way; `set_precision` must follow.
  Status restore_state(int slot);
  /// A tensor's words, now or as kept: device memory, on the communication stream.
  WordsView state(const StateTensor& tensor);
  WordsView kept_state(int slot, const StateTensor& tensor);

  /// Bytes that each rank sends in a step for the sums of gradients, where these go round a ring.
  double sent_bytes() const;

  const ParameterLayout& layout() const;
  /// The stream on which sums over ranks run; other collectives of this communicator must go there too.
  Stream& communication_stream();
  /// The stream of the passes.
  Stream& compute_stream();
  /// fp32 master weights, as of the last settled step, the gradient of the last step, summed, and what
  /// this rank has not sent of its own (empty without MlpConfig::top_k_share), flat, in device memory: for
  /// tests and checks.
  VectorView weights();
  VectorView gradient();
  VectorView residual();

 private:
  struct Impl;
  explicit MlpTrainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace egt
