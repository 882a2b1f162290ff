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
#include "model/mlp_buffers.hpp"
#include "model/mlp_pass.hpp"
#include "model/mlp_state.hpp"
#include "model/mlp_trainer.hpp"
#include "model/parallel/parallel_plan.hpp"
#include "model/parallel/pipeline_schedule.hpp"
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
  /// Enqueues what fills the input of a step's micro-batch, packed: samples of `sequence` from the first one
  /// on, the same on all ranks; micro-batch after micro-batch. Empty: random numbers. The first stage needs
  /// it, and the last, whose targets depend on it.
  std::function<Status(std::uint64_t sequence, std::int64_t first_sample, MatrixView input, Stream&)>
      make_input = {};
};

/// What one step took on this rank, known when it is over.
struct SplitStep {
  /// Of this rank's replica, mean over its samples; empty where another stage has the loss, none where
  /// nothing was computed.
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
class SplitMlp final : private mlp::PassCompanion {
 public:
  static constexpr std::int64_t depth = 2;  ///< steps that may be under way when another one is enqueued

  /// Why such a network cannot be trained in parts; empty: it can.
  static std::string why_not(const MlpConfig& network, const ParallelPlan& plan);
  /// Takes memory; device and communicators outlive it.
  static Result<std::unique_ptr<SplitMlp>> create(Device& device, const PlanCommunicators& ranks,
                                                  const SplitConfig& config);

  /// The weights as training began, and moments of 0.
  Status reset();
  /// `computes` false: only what a step exchanges and sums, with nothing computed in between; the state
  /// stays, what passes made does not.
  Status enqueue_step(std::int64_t step, bool computes = true);
  /// Waits for a step, in order; fails where a communicator did.
  Result<SplitStep> retire_step(std::int64_t step, double timeout_seconds);

  /// A pass of `rows` samples a micro-batch, of random numbers (0: of all, as in a step) whose gradients,
  /// summed over replicas, stay until the next pass; the weights stay too. `digests`: of every tensor, in
  /// order, device memory for most_tensors(); null: not wanted.
  Status enqueue_pass(std::uint64_t sequence, std::int64_t rows, Digest* digests);
  std::size_t most_tensors() const;
  /// What the digests of the last pass are of.
  const std::vector<SplitTensor>& tensors() const { return tensors_; }
  /// The update that follows a pass.
  Status enqueue_update();

  std::vector<StateTensor> state_tensors() const { return trained_.tensors(); }
  WordsView state(const StateTensor& tensor) const { return trained_.words(tensor); }
  /// Changes these tensors (layers count from 0 in this part) in every pass enqueued from now on; none:
  /// stops.
  void set_tampering(std::vector<Tampering> tampering) { pass_->set_tampering(std::move(tampering)); }
  const ParameterLayout& layout() const { return layout_; }
  /// The gradient of the last pass or step, flat, as layout() says.
  VectorView gradient() const { return workspace_.gradient_range(0, layout_.size()); }
  const NetworkPart& part() const { return part_; }
  Stream& stream() { return *stream_; }
  /// Samples of this replica's micro-batch `i`.
  NeuronRange samples(int i) const;
  /// Bytes that it took of the device for what training keeps.
  std::uint64_t state_bytes() const { return trained_.bytes() + workspace_.gradient.bytes(); }

 private:
  using EventHandle = mlp::EventHandle;
  /// Of a step that is under way.
  struct Marks {
    EventHandle begin, end;
    std::vector<std::array<EventHandle, 2>> outside;
    std::size_t used = 0;  // of `outside`
    float* losses = nullptr;
    float* told = nullptr;  // the same, pinned
  };

  SplitMlp(Device& device, const PlanCommunicators& ranks, const SplitConfig& config);
  Status allocate();
  Status run(std::uint64_t sequence, std::int64_t rows, bool computes);
  Status compute(const PipelineOperation& operation);
  Status exchange(const PipelineOperation& operation);
  Status sum_over_tensor(MatrixView matrix);
  /// What a pass would sum, of what lies there.
  Status sums_of(const PipelineOperation& operation);
  Status sum_over_data();
  /// With its time where a step is measured.
  template <typename Enqueue>
  Status outside(const Enqueue& enqueue);
  Status digest(const PassTensor& tensor, WordsView words, bool is_of_peers);
  Status digest_matrix(const PassTensor& tensor, MatrixView matrix, bool is_of_peers);
  // Along a pass
  Result<bool> make_input(MatrixView input) override;
  Status after(const Operation& operation, const PassTensor& tensor) override;
  Status made(const PassTensor& tensor, WordsView words) override { return digest(tensor, words, false); }

  std::size_t layers() const { return layout_.layers().size(); }
  std::size_t memory_of(int micro_batch) const {
    return static_cast<std::size_t>(micro_batch) % part_.passes;
  }
  MatrixView activation(std::size_t l, int micro_batch) const {
    return workspace_.activation(l, precision_, samples(micro_batch).count, memory_of(micro_batch));
  }
  MatrixView activation_gradient(std::size_t l, int micro_batch) const {
    return workspace_.activation_gradient(l, precision_, samples(micro_batch).count);
  }
  Marks& marks_of(std::int64_t step) { return marks_[static_cast<std::size_t>(step) % marks_.size()]; }

  Device& device_;
  const PlanCommunicators ranks_;
  const SplitConfig config_;
  const ParallelPlace place_;
  const NetworkPart part_;
  const MlpConfig local_;
  const ParameterLayout layout_;
  const std::vector<PipelineOperation> schedule_;
  const Precision precision_;

  // Of what is being enqueued
  std::uint64_t sequence_ = 0;
  std::int64_t rows_ = 0;  // of a micro-batch; 0: all
  int micro_batch_ = 0;
  Digest* next_digest_ = nullptr;
  std::vector<SplitTensor> tensors_;
  float* losses_ = nullptr;
  Marks* measured_ = nullptr;
  std::optional<std::int64_t> last_retired_;

  // Streams die before the memory that their work uses: members are destroyed from the last to the first.
  mlp::TrainedState trained_;
  mlp::Workspace workspace_;
  Buffer losses_memory_, pinned_;
  std::array<Marks, depth + 2> marks_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<mlp::Pass> pass_;
};

/// The largest over this part's layers of ||gradient - whole|| / ||whole||, of the last pass of both;
/// infinity where one is not finite. `whole`: trains the whole network on this device alone. Waits.
Result<double> difference_from_whole(Device& device, SplitMlp& part, MlpTrainer& whole,
                                     double timeout_seconds);
/// What rounding may make of that: see gradient_difference.cpp.
double allowed_difference(Precision precision, int layers);

/// Milliseconds that each layer's products and activation take on this device, forward and backward, with
/// `rows` samples; the middle of several measurements. Waits; takes memory of the largest layer meanwhile.
Result<std::vector<double>> measure_layers(Device& device, const MlpConfig& network, std::int64_t rows,
                                           double timeout_seconds);

}  // namespace egt
