#pragma once

#include <cstdint>
#include <vector>

#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/operation_observer.hpp"
#include "model/parameter_layout.hpp"
#include "model/pass_products.hpp"
#include "model/pass_tensor.hpp"

/// Private to the trainer: one pass forward and backward.
namespace egt::mlp {

/// What one pass computes.
struct PassPlan {
  Precision precision = Precision::fp32;
  const ParameterSet& parameters;
  std::uint64_t sequence = 0;     ///< of the inputs' random numbers
  std::int64_t first_sample = 0;  ///< of that sequence
  std::int64_t rows = 0;          ///< samples
  float* loss = nullptr;          ///< device memory: the sum of squared errors
  /// Where the gradients of the weights go; null: the workspace's own memory.
  const Buffer* gradient = nullptr;
  StepPass of = StepPass::any;  ///< whose Tampering applies
  /// Bias and ReLU are fused with a product, where they can be: then the product is no tensor of its own, and
  /// what is injected in it strikes the activation. Without extreme compute.
  bool fuses_activation = false;
  // Of a network's part
  std::size_t pass = 0;  ///< whose memory of activations it takes, below NetworkPart::passes
  bool adds = false;     ///< to the gradients that are there: fp32, of the same step
};

/// Whoever goes along with a pass; called while it is enqueued, so what it enqueues on the same stream
/// comes right behind.
class PassCompanion {
 public:
  virtual ~PassCompanion() = default;
  /// Fills the input of a pass, rows x neurons; false: it does not, and random numbers are drawn.
  virtual Result<bool> make_input(MatrixView) { return false; }
  /// Forward is about to read this layer's weights.
  virtual Status before_layer(std::size_t) { return {}; }
  virtual Status before_backward() { return {}; }
  /// Device memory for the digest of `chains`, an extreme term in the activation to come; null: not wanted.
  virtual Digest* chains_digest(const PassTensor& /*chains*/) { return nullptr; }
  /// `after`: the operation made `tensor`, or a piece of it, and injected faults have struck it.
  virtual Status before(const Operation&) { return {}; }
  virtual Status after(const Operation&, const PassTensor&) { return {}; }
  /// `words`: the whole tensor, as it stays until the pass has used it.
  virtual Status made(const PassTensor&, WordsView) { return {}; }
  /// The gradients of this bucket are all made.
  virtual Status bucket_made(std::size_t) { return {}; }
};

/// Enqueues passes on one stream. Of a network's part: where it has not the input, activation 0 is there
/// before `forward`, and the gradient of its inputs, not masked yet, in activation_gradient(0) after
/// `backward`; where it has not the loss, the last activation is there after `forward`, and such a gradient
/// of it in the last activation_gradient before `backward`.
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

  /// Before the first pass.
  Status allocate() { return products_.allocate(config_); }
  Status enqueue(const PassPlan& plan, PassCompanion& companion);
  Status forward(const PassPlan& plan, PassCompanion& companion);
  Status backward(const PassPlan& plan, PassCompanion& companion);
  /// In force for the passes enqueued from now on.
  void set_tampering(std::vector<Tampering> tampering) { tampering_ = std::move(tampering); }
  /// Every tensor that a pass makes, in order.
  static std::vector<PassTensor> tensors(const ParameterLayout& layout, const MlpConfig& config);

 private:
  struct Call;  // one pass while it is enqueued
  Status draw_input(const Call& call, MatrixView x);
  ExtremeTerm extreme_term(const Call& call, int layer) const;
  /// What makes the product and the activation of a hidden layer one operation; no data: they are two.
  VectorView fused_bias(const Call& call, const LinearLayer& layer) const;
  Status output_gradient(const Call& call, MatrixView& gradient);
  /// Masks the gradient of a layer's activation, and makes the gradient of its biases.
  Status mask(const Call& call, std::size_t layer, MatrixView gradient);
  /// Where a layer's bias gradient is made, and how it comes to what is there.
  VectorView bias_gradient(const Call& call, const LinearLayer& layer) const;
  Status add_bias_gradient(const Call& call, const LinearLayer& layer);
  bool has_input() const { return !config_.part || config_.part->has_input(); }
  bool has_loss() const { return !config_.part || config_.part->has_loss(); }
  /// Of a layer, from `bucket` on, the next that is to be filled.
  Status weight_gradients(const Call& call, int layer, MatrixView output_gradient, std::size_t& bucket);
  Status weight_gradient(const Call& call, const GradientPiece& piece, MatrixView output_gradient,
                         MatrixView input);
  Status made(const Call& call, const PassTensor& tensor, void* data, std::size_t bytes);
  Status tamper(const Call& call, const PassTensor& tensor, WordsView words);

  Device& device_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  const Workspace& workspace_;
  Stream& stream_;
  PassProducts products_;
  std::vector<Tampering> tampering_;
};

/// Keeps fp16 gradients in the middle of its range; a power of two.
float loss_scale(Precision precision, std::int64_t global_batch);

}  // namespace egt::mlp
