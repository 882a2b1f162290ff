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

/// One rank's communicator per dimension, with one rank per part, in order. Size 1: not split this way.
struct PlanCommunicators {
  Communicator& data;
  Communicator& tensor;
  Communicator& pipeline;
};

struct SplitConfig {
  /// The whole network, the same on all ranks: `batch.global`, one precision, no `part`.
  MlpConfig network;
  ParallelPlan plan;
  int rank = 0;
  std::vector<LayerRange> stages;  ///< plan.pipeline entries
  int micro_batches = 1;
  /// Enqueues the fill of a micro-batch's packed input with samples of `sequence` starting at first_sample,
  /// the same on all ranks. Called once per micro-batch, in order. Empty: random numbers. The first stage
  /// needs it, and so does the last, whose targets depend on the input.
  std::function<Status(std::uint64_t sequence, std::int64_t first_sample, MatrixView input, Stream&)>
      make_input = {};
};

/// Loss and times of one step on this rank, available when it is complete.
struct SplitStep {
  /// Mean over the samples of this rank's data-parallel copy. Empty if another stage has the loss or nothing
  /// was computed.
  std::optional<double> loss;
  double step_ms = 0;                   ///< from its first to its last work
  std::optional<double> since_last_ms;  ///< from the end of the previous step to its own, if known
  double outside_ms = 0;  ///< portion of step_ms in exchanges and all-reduces, with communication wait
};

/// One tensor of a pass that is compared with a repetition.
struct SplitTensor {
  PassTensor tensor;
  int micro_batch = 0;
  /// Received from peers or all-reduced with them. If only such tensors differ, another rank is faulty.
  bool is_of_peers = false;
};

/// Trains this rank's part of an MLP: a pipeline stage (1F1B), a tensor-parallel part of its layers, and a
/// data-parallel share of the batch. Supports fp32, tf32 and bf16, with fp32 gradients. Inputs, targets and
/// weights equal those of MlpTrainer's whole network, element by element. A step enqueues all work on one
/// stream, in the same order on all ranks of each dimension, and the host never waits. Not thread-safe. All
/// ranks of the plan must call in the same order.
class SplitMlp final : private mlp::PassObserver {
 public:
  static constexpr std::int64_t depth = 2;  ///< steps that may be in flight when another one is enqueued

  /// Why such a network cannot be trained in parts; empty if it can.
  static std::string why_not(const MlpConfig& network, const ParallelPlan& plan);
  /// Allocates memory. Device and communicators must outlive it.
  static Result<std::unique_ptr<SplitMlp>> create(Device& device, const PlanCommunicators& ranks,
                                                  const SplitConfig& config);

  /// Restores the initial weights and zero moments.
  Status reset();
  /// `computes` false: enqueues only the exchanges and all-reduces of a step. The training state is
  /// preserved, the passes' results are not.
  Status enqueue_step(std::int64_t step, bool computes = true);
  /// Waits for a step, in order. Fails if a communicator failed.
  Result<SplitStep> retire_step(std::int64_t step, double timeout_seconds);

  /// Enqueues a pass of `rows` random samples per micro-batch (0: all, as in a step). Its gradients, summed
  /// over data-parallel copies, stay valid until the next pass. The weights do not change. `digests`: device
  /// memory for max_tensors() digests, one per tensor in order; null: none.
  Status enqueue_pass(std::uint64_t sequence, std::int64_t rows, Digest* digests);
  std::size_t max_tensors() const;
  /// The tensors that the digests of the last pass cover.
  const std::vector<SplitTensor>& tensors() const { return tensors_; }
  /// Enqueues the update after a pass.
  Status enqueue_update();

  std::vector<StateTensor> state_tensors() const { return trained_.tensors(); }
  WordsView state(const StateTensor& tensor) const { return trained_.words(tensor); }
  /// Injects faults into these tensors in every later pass; layers count from 0 in this part. An empty list
  /// stops the injection.
  void set_tensor_faults(std::vector<TensorFault> tensor_faults) {
    pass_->set_tensor_faults(std::move(tensor_faults));
  }
  const ParameterLayout& layout() const { return layout_; }
  /// The flat gradient of the last pass or step, laid out as layout().
  VectorView gradient() const { return workspace_.gradient_range(0, layout_.size()); }
  const NetworkPart& part() const { return part_; }
  Stream& stream() { return *stream_; }
  /// Samples of micro-batch `i` of this data-parallel copy.
  NeuronRange samples(int i) const;
  /// Device memory of the training state, in bytes.
  std::uint64_t state_bytes() const { return trained_.bytes() + workspace_.gradient.bytes(); }

 private:
  using EventHandle = mlp::EventHandle;
  /// Events and losses of a step in flight.
  struct Marks {
    EventHandle begin, end;
    std::vector<std::array<EventHandle, 2>> outside;
    std::size_t used = 0;  // entries of `outside` in use
    float* losses = nullptr;
    float* reported = nullptr;  // pinned copy of `losses`
  };

  SplitMlp(Device& device, const PlanCommunicators& ranks, const SplitConfig& config);
  Status allocate();
  Status run(std::uint64_t sequence, std::int64_t rows, bool computes);
  Status compute(const PipelineOperation& operation);
  Status exchange(const PipelineOperation& operation);
  Status sum_over_tensor(MatrixView matrix);
  /// Enqueues only the all-reduces of a pass, on existing memory contents, for a step that computes nothing.
  Status sums_of(const PipelineOperation& operation);
  Status sum_over_data();
  /// Enqueues communication, and records its time if the step is measured.
  template <typename Enqueue>
  Status outside(const Enqueue& enqueue);
  Status digest(const PassTensor& tensor, WordsView words, bool is_of_peers);
  Status digest_matrix(const PassTensor& tensor, MatrixView matrix, bool is_of_peers);
  // Hooks of a pass
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

  // The pass being enqueued
  std::uint64_t sequence_ = 0;
  std::int64_t rows_ = 0;  // rows per micro-batch; 0: all
  int micro_batch_ = 0;
  Digest* next_digest_ = nullptr;
  std::vector<SplitTensor> tensors_;
  float* losses_ = nullptr;
  Marks* measured_ = nullptr;
  std::optional<std::int64_t> last_retired_;

  // Members are destroyed in reverse order, so streams are destroyed before the memory that their work uses.
  mlp::TrainedState trained_;
  mlp::Workspace workspace_;
  Buffer losses_memory_, pinned_;
  std::array<Marks, depth + 2> marks_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<mlp::Pass> pass_;
};

/// Max over this part's layers of ||gradient - whole|| / ||whole||, for the last pass of both; infinity if a
/// value is not finite. `whole`: trains the whole network on this device alone. Waits for the device.
Result<double> difference_from_whole(Device& device, SplitMlp& part, MlpTrainer& whole,
                                     double timeout_seconds);
/// Upper bound of difference_from_whole caused by rounding alone; see gradient_difference.cpp.
double allowed_difference(Precision precision, int layers);

/// Forward plus backward time in ms of each layer's GEMMs and activation on this device with `rows` samples,
/// median of several measurements. Waits. Temporarily allocates the memory of the layer measured.
Result<std::vector<double>> measure_layers(Device& device, const MlpConfig& network, std::int64_t rows,
                                           double timeout_seconds);

}  // namespace egt
