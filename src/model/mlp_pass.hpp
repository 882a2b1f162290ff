#pragma once

#include <cstdint>
#include <vector>

#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/operation_observer.hpp"
#include "model/parameter_layout.hpp"
#include "model/pass_gemms.hpp"
#include "model/pass_tensor.hpp"

/// Private to the trainer: one forward/backward pass.
namespace egt::mlp {

/// The parameters of one pass.
struct PassPlan {
  Precision precision = Precision::fp32;
  const ParameterSet& parameters;
  std::uint64_t sequence = 0;     ///< random sequence of the inputs
  std::int64_t first_sample = 0;  ///< index of the first sample in that sequence
  std::int64_t rows = 0;          ///< samples
  float* loss = nullptr;          ///< device memory: the sum of squared errors
  /// Output buffer of the weight gradients; null: the workspace's own.
  const Buffer* gradient = nullptr;
  StepPass of = StepPass::any;  ///< which pass of the step this is; TensorFaults of that pass apply
  /// Fuses bias and ReLU into the GEMM if possible. The GEMM's result is then no separate tensor, so faults
  /// injected into it affect the activation instead. Has no effect with extreme compute.
  bool fuses_activation = false;
  // Only for a part of a network
  std::size_t pass = 0;  ///< index of the activation memory, below NetworkPart::passes
  bool adds = false;     ///< accumulates into existing fp32 gradients of the same step
};

/// Hooks of a pass. They are called while the pass is enqueued, so work that they enqueue on the same stream
/// follows immediately.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  /// Fills the input of a pass, rows x neurons. Returns false to use random numbers instead.
  virtual Result<bool> make_input(MatrixView) { return false; }
  /// Called before the forward pass reads this layer's weights.
  virtual Status before_layer(std::size_t) { return {}; }
  virtual Status before_backward() { return {}; }
  /// Device memory for the digest of `chains`, the next activation's transcendental chain; null: no digest.
  virtual Digest* chains_digest(const PassTensor& /*chains*/) { return nullptr; }
  /// `after`: the operation wrote `tensor` or a piece of it, and injected faults were applied.
  virtual Status before(const Operation&) { return {}; }
  virtual Status after(const Operation&, const PassTensor&) { return {}; }
  /// `words`: the complete tensor, which stays unchanged until the pass has used it.
  virtual Status made(const PassTensor&, WordsView) { return {}; }
  /// All gradients of this bucket are enqueued.
  virtual Status bucket_made(std::size_t) { return {}; }
};

/// Enqueues passes on one stream. In a network part without the input, the caller provides activation 0
/// before `forward`. After `backward`, activation_gradient(0) is the gradient of the part's inputs before the
/// ReLU mask. In a part without the loss, the last activation is available after `forward`. The caller then
/// provides its gradient, also before the ReLU mask, in the last activation_gradient before `backward`.
class Pass {
 public:
  Pass(Device& device, const MlpConfig& config, const ParameterLayout& layout, const Workspace& workspace,
       Stream& stream)
      : device_(device),
        config_(config),
        layout_(layout),
        workspace_(workspace),
        stream_(stream),
        products_(device, layout, stream) {}

  /// Must be called before the first pass.
  Status allocate() { return products_.allocate(config_); }
  Status enqueue(const PassPlan& plan, PassObserver& companion);
  Status forward(const PassPlan& plan, PassObserver& companion);
  Status backward(const PassPlan& plan, PassObserver& companion);
  /// Applies to passes enqueued from now on.
  void set_tensor_faults(std::vector<TensorFault> tensor_faults) {
    tensor_faults_ = std::move(tensor_faults);
  }
  /// Every tensor that a pass computes, in order.
  static std::vector<PassTensor> tensors(const ParameterLayout& layout, const MlpConfig& config);

 private:
  struct Call;  // the arguments of one pass while it is enqueued
  Status draw_input(const Call& call, MatrixView x);
  ExtremeTerm extreme_term(const Call& call, int layer) const;
  /// Bias for fusing a hidden layer's GEMM and activation into one operation. Empty: they are not fused.
  VectorView fused_bias(const Call& call, const LinearLayer& layer) const;
  Status output_gradient(const Call& call, MatrixView& gradient);
  /// Applies the ReLU mask to the gradient of a layer's activation, and computes the gradient of its biases.
  Status mask(const Call& call, std::size_t layer, MatrixView gradient);
  /// Where a layer's bias gradient is written, and its accumulation into the existing gradient.
  VectorView bias_gradient(const Call& call, const LinearLayer& layer) const;
  Status add_bias_gradient(const Call& call, const LinearLayer& layer);
  bool has_input() const { return !config_.part || config_.part->has_input(); }
  bool has_loss() const { return !config_.part || config_.part->has_loss(); }
  /// `bucket`: the next bucket to fill; advanced past those that the layer completes.
  Status weight_gradients(const Call& call, int layer, MatrixView output_gradient, std::size_t& bucket);
  Status weight_gradient(const Call& call, const GradientPiece& piece, MatrixView output_gradient,
                         MatrixView input);
  Status made(const Call& call, const PassTensor& tensor, const MatrixView& made);
  Status tamper(const Call& call, const PassTensor& tensor, WordsView words);

  Device& device_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  const Workspace& workspace_;
  Stream& stream_;
  PassGemms products_;
  std::vector<TensorFault> tensor_faults_;
};

/// A power of two that keeps fp16 gradients in the middle of the type's range.
float loss_scale(Precision precision, std::int64_t global_batch);

}  // namespace egt::mlp
