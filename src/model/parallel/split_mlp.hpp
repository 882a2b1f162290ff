#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/mlp_config.hpp"
#include "model/parallel/parallel_plan.hpp"
#include "model/pass_tensor.hpp"

namespace egt {

/// Of one rank in each dimension of a plan, numbered as the parts are; of size 1 where there is one.
struct PlanCommunicators {
  Communicator& data;
  Communicator& tensor;
  Communicator& pipeline;
};

struct SplitConfig {
  /// Of the whole network, all alike on all ranks: `batch.global`, one precision; no `part` yet.
  MlpConfig network;
  ParallelPlan plan;
  int rank = 0;
  std::vector<LayerRange> stages;  ///< plan.pipeline
  int micro_batches = 1;
};

/// What one step took on this rank, known when it is over.
struct SplitStep {
  /// Of this rank's replica, mean over its samples; empty where another stage has the loss.
  std::optional<double> loss;
  double step_ms = 0;                   ///< from its first work to its last
  std::optional<double> since_last_ms;  ///< to its last from that of the step before, where both are known
  double outside_ms = 0;                ///< of that: exchanges and sums, and waits for the peers in them
};

/// One tensor of a pass that is held against a repetition.
struct SplitTensor {
  PassTensor tensor;
  int micro_batch = 0;
  /// It came from peers, or was summed with theirs: where only such differ, the fault is another rank's.
  bool is_of_peers = false;
};

/// Trains the part of an MLP that a plan gives to this rank: a stage of layers (pipeline, 1F1B), of each of
/// them a part (tensor), with a share of the batch (data). fp32, tf32 and bf16; gradients in fp32. Inputs,
/// targets and weights are those of MlpTrainer's whole network, element by element. All that a step does is
/// put in one stream, in an order that is the same on all ranks of each dimension; the host waits for
/// nothing. One thread. All ranks of the plan call in the same order.
class SplitMlp {
 public:
  static constexpr std::int64_t depth = 2;  ///< steps that may be under way

  /// Why such a network cannot be trained in parts; empty: it can.
  static std::string why_not(const MlpConfig& network, const ParallelPlan& plan);
  /// Takes memory; device and communicators outlive it.
  static Result<std::unique_ptr<SplitMlp>> create(Device& device, const PlanCommunicators& ranks,
                                                  const SplitConfig& config);
  ~SplitMlp();

  /// The weights as training began, and moments of 0.
  Status reset();
  Status enqueue_step(std::int64_t step);
  /// Enqueues what a step exchanges and sums, with nothing computed in between; the state stays, what passes
  /// made does not.
  Status enqueue_communication(std::int64_t step);
  /// Waits for a step of either kind, in order; fails where a communicator did.
  Result<SplitStep> retire_step(std::int64_t step, double timeout_seconds);

  /// A pass of `rows` samples a micro-batch (all: 0) whose gradients, summed over replicas, stay until the
  /// next pass; the weights stay too. `digests`: of every tensor, in order, device memory for
  /// most_tensors(); null: not wanted.
  Status enqueue_pass(std::uint64_t sequence, std::int64_t rows, Digest* digests);
  std::size_t most_tensors() const;
  /// What the digests of the last pass are of.
  const std::vector<SplitTensor>& tensors() const;
  /// The update that follows a pass.
  Status enqueue_update();

  /// After `enqueue_pass` with those arguments: how far the gradients of this part are from those of the
  /// whole network on this device alone, the largest over layers of ||part - whole|| / ||whole||. Waits, and
  /// takes the memory of the whole network meanwhile. out_of_memory: there is not so much.
  Result<double> difference_from_whole(std::uint64_t sequence, std::int64_t rows, double timeout_seconds);
  /// What rounding may make of that: see split_mlp.cpp.
  double allowed_difference() const;

  std::vector<StateTensor> state_tensors() const;
  WordsView state(const StateTensor& tensor) const;
  /// Changes these tensors (layers count from 0 in this part) in every pass enqueued from now on; none:
  /// stops.
  void set_tampering(std::vector<Tampering> tampering);
  const ParameterLayout& layout() const;
  /// The gradient of the last pass or step, flat, as layout() says.
  VectorView gradient() const;
  const NetworkPart& part() const;
  Stream& stream();
  /// Samples of this replica's micro-batch `i`.
  NeuronRange samples(int i) const;
  /// Bytes that it took of the device for what training keeps.
  std::uint64_t state_bytes() const;

 private:
  struct Impl;
  explicit SplitMlp(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Milliseconds that each layer's products and activation take on this device, forward and backward, with
/// `rows` samples; the middle of several measurements. Waits; takes memory of the largest layer meanwhile.
Result<std::vector<double>> measure_layers(Device& device, const MlpConfig& network, std::int64_t rows,
                                           double timeout_seconds);

}  // namespace egt
