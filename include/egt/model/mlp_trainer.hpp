#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "egt/device/device.hpp"
#include "egt/model/parameter_layout.hpp"
#include "egt/ranks/communicator.hpp"

namespace egt {

enum class Optimizer { sgd, adam };

/// Which samples of each global batch are this rank's: [first, first + local).
struct BatchShare {
  std::int64_t global = 0;
  std::int64_t first = 0;
  std::int64_t local = 0;
};

struct MlpConfig {
  std::vector<std::int64_t> neurons;  ///< input first
  BatchShare batch;
  std::vector<Precision>
      precisions;  ///< all that `set_precision` may be given; buffers are made for the widest
  Optimizer optimizer = Optimizer::sgd;
  double learning_rate = 0;
  float momentum = 0.9f;                         ///< of SGD; 0: no velocity is kept
  ElementType gradient_type = ElementType::f32;  ///< of the sums over ranks
  int extreme_iterations = 0;
  std::uint64_t seed = 0;
};

/// A stable learning rate for this network, its initialization and loss (see mlp_trainer.cpp for the
/// estimate).
double default_learning_rate(const std::vector<std::int64_t>& neurons, Optimizer optimizer);

/// Floating-point operations of the matrix products of one step and sample: forward, weight gradients, and
/// input gradients of all layers but the first.
double flops_per_sample(const std::vector<std::int64_t>& neurons);

/// What one step gave, known when it is over.
struct StepResult {
  double loss = 0;                ///< mean over the global batch of the squared error of an output
  float votes = 0;                ///< the sum of all ranks' votes, the same on every rank
  std::optional<double> step_ms;  ///< from the end of the step before to the end of this one, on the device
};

/// Times of one step that was asked to be measured (it adds marks to the streams, a few microseconds).
struct StepTimes {
  double all_reduce_ms = 0;  ///< from each bucket's readiness to its sum, added up
  double all_reduce_bytes = 0;
  double activation_ms = 0;  ///< bias, ReLU and extreme compute of all layers
};

/// Trains the seeds' multilayer perceptron, data parallel: fp32 master weights, forward and backward in the
/// precision of the moment; the sum of a gradient bucket over ranks and its update run on the communication
/// stream while backward goes on. One thread. All ranks call in the same order.
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
  /// Puts the step in line. `vote` is summed over ranks along with the last bucket: small whole numbers stay
  /// exact. `measure`: its StepTimes are wanted; at most one such step at a time.
  Status enqueue_step(std::int64_t step, float vote, bool measure);
  /// Waits until the step is over; steps are retired in order.
  Result<StepResult> retire_step(std::int64_t step, double timeout_seconds);
  /// Of the last step enqueued with `measure`, after it was retired.
  Result<StepTimes> measured_times() const;

  /// Digests of the master weights, one a layer, of all ranks, as they are after the last enqueued step;
  /// `collect` waits for them. One check under way at a time.
  Status enqueue_replica_check();
  /// [rank][layer].
  Result<std::vector<std::vector<Digest>>> collect_replica_check(double timeout_seconds);

  const ParameterLayout& layout() const;
  /// The stream on which sums over ranks run; other collectives of this communicator must go there too.
  Stream& communication_stream();
  /// fp32 master weights and the gradient of the last step, flat, in device memory: for tests and checks.
  VectorView weights();
  VectorView gradient();

 private:
  struct Impl;
  explicit MlpTrainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace egt
