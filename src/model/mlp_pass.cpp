#include "model/mlp_pass.hpp"

#include <cmath>

#include "egt/core/profiler_range.hpp"

namespace egt::mlp {

namespace {

constexpr float input_scale = 1.7320508f;  // uniform in +-sqrt(3): variance 1

}  // namespace

/// Scales the output gradients to about 16 times the error. Inputs and targets are bounded, so nothing
/// overflows and the scale need not adapt.
float loss_scale(Precision precision, std::int64_t global_batch) {
  if (precision != Precision::fp16) return 1.0f;
  return 16.0f * std::exp2(std::ceil(std::log2(static_cast<float>(global_batch))));
}

struct Pass::Call {
  const PassPlan& plan;
  PassObserver& companion;
  const Workspace& workspace;

  MatrixView activation(std::size_t l) const {
    return workspace.activation(l, plan.precision, plan.rows, plan.pass);
  }
  MatrixView activation_gradient(std::size_t l) const {
    return workspace.activation_gradient(l, plan.precision, plan.rows);
  }
  VectorView gradient_range(std::int64_t offset, std::int64_t count) const {
    return workspace.gradient_range(offset, count, plan.gradient);
  }
  bool is_struck_by(const TensorFault& one) const { return one.of == StepPass::any || one.of == plan.of; }
};

std::vector<PassTensor> Pass::tensors(const ParameterLayout& layout, const MlpConfig& config) {
  const int layers = static_cast<int>(layout.layers().size());
  std::vector<PassTensor> all;
  for (int l = 0; l < layers; ++l) {
    all.push_back({TensorKind::product, l});
    if (l + 1 == layers) break;
    if (config.extreme_iterations > 0) all.push_back({TensorKind::extreme, l});
    all.push_back({TensorKind::activation, l});
  }
  all.push_back({TensorKind::output_gradient, layers - 1});
  for (int l = layers; l-- > 0;) {
    if (l > 0) all.push_back({TensorKind::input_product, l});
    if (l != late_layer) all.push_back({TensorKind::weight_gradient, l});
    if (l > 0) all.push_back({TensorKind::input_gradient, l});
  }
  if (layers > late_layer) all.push_back({TensorKind::weight_gradient, late_layer});
  if (config.top_k_share == 0) return all;
  for (const GradientBucket& bucket : layout.buckets())
    for (const TensorKind kind : {TensorKind::sent_gradient, TensorKind::kept_gradient})
      all.push_back({kind, bucket.pieces.back().layer});
  return all;
}

Status Pass::enqueue(const PassPlan& plan, PassObserver& companion) {
  EGT_TRY(forward(plan, companion));
  return backward(plan, companion);
}

Status Pass::draw_input(const Call& call, MatrixView x) {
  EGT_TRY_ASSIGN(const bool is_made, call.companion.make_input(x));
  if (is_made) return {};
  return device_.randomize({x.data, x.type, x.count()},
                           {.seed = config_.seed,
                            .sequence = call.plan.sequence,
                            .first = static_cast<std::uint64_t>(call.plan.first_sample * x.columns),
                            .scale = input_scale},
                           stream_);
}

Status Pass::forward(const PassPlan& plan, PassObserver& companion) {
  const ProfilerRange range("forward");
  const Call call{plan, companion, workspace_};
  if (has_input()) EGT_TRY(draw_input(call, call.activation(0)));
  for (std::size_t l = 0; l < layout_.layers().size(); ++l) {
    const LinearLayer& layer = layout_.layers()[l];
    const int number = static_cast<int>(l);
    const MatrixView output = call.activation(l + 1);
    EGT_TRY(call.companion.before_layer(l));
    EGT_TRY_ASSIGN(Gemm product, products_.forward(l, call.plan.precision, call.plan.parameters,
                                                   call.activation(l), output));
    const bool is_output = l + 1 == layout_.layers().size() && has_loss();
    if (const VectorView bias = fused_bias(call, layer); !is_output && bias.data != nullptr) {
      product.relu_bias = bias;
      EGT_TRY(device_.gemm(product, stream_));
      const VectorView elements{output.data, output.type, output.count()};
      EGT_TRY(tamper(call, {TensorKind::product, number}, elements.words()));
      EGT_TRY(made(call, {TensorKind::activation, number}, output));
      EGT_TRY(call.companion.after(product, {TensorKind::activation, number}));
      continue;
    }
    EGT_TRY(device_.gemm(product, stream_));
    EGT_TRY(made(call, {TensorKind::product, number}, output));
    EGT_TRY(call.companion.after(product, {TensorKind::product, number}));
    if (is_output) break;
    const Activation activation{output, call.plan.parameters.bias(layer), extreme_term(call, number)};
    EGT_TRY(call.companion.before(activation));
    EGT_TRY(device_.enqueue(activation, stream_));
    EGT_TRY(made(call, {TensorKind::activation, number}, output));
    EGT_TRY(call.companion.after(activation, {TensorKind::activation, number}));
  }
  return {};
}

VectorView Pass::fused_bias(const Call& call, const LinearLayer& layer) const {
  const Precision precision = call.plan.precision;
  const bool has_scales_or_is_wide = precision == Precision::fp8 || precision == Precision::fp64;
  if (!call.plan.fuses_activation || config_.extreme_iterations > 0 || has_scales_or_is_wide) return {};
  const VectorView bias = call.plan.parameters.compute_bias(layer, precision);
  return reinterpret_cast<std::uintptr_t>(bias.data) % Gemm::bias_alignment == 0 ? bias : VectorView();
}

ExtremeTerm Pass::extreme_term(const Call& call, int layer) const {
  ExtremeTerm term{.iterations = config_.extreme_iterations, .first_row = call.plan.first_sample};
  if (term.iterations == 0) return term;
  const PassTensor chains{TensorKind::extreme, layer};
  term.digest = call.companion.chains_digest(chains);
  if (term.digest == nullptr) return term;
  for (const TensorFault& one : tensor_faults_) {
    if (one.tensor != chains || !call.is_struck_by(one)) continue;
    term.fault = one.flip;
    term.fault_turn = one.turn;
  }
  return term;
}

VectorView Pass::bias_gradient(const Call& call, const LinearLayer& layer) const {
  if (!call.plan.adds) return call.gradient_range(layer.bias, layer.outputs);
  return {workspace_.bias_sums.data(), ElementType::f32, layer.outputs};
}

Status Pass::add_bias_gradient(const Call& call, const LinearLayer& layer) {
  if (!call.plan.adds) return {};
  return device_.add(call.gradient_range(layer.bias, layer.outputs), bias_gradient(call, layer), stream_);
}

/// Overwrites the outputs by their gradient. A part without the loss masks the gradient from the next part.
Status Pass::output_gradient(const Call& call, MatrixView& gradient) {
  const std::size_t layers = layout_.layers().size();
  const LinearLayer& last = layout_.layers().back();
  const PassPlan& plan = call.plan;
  if (!has_loss()) {
    gradient = call.activation_gradient(layers);
    return mask(call, layers, gradient);
  }
  const MatrixView x = workspace_.network_input(plan.precision, plan.rows, plan.pass);
  if (!has_input()) EGT_TRY(draw_input(call, x));
  gradient = call.activation(layers);
  const PassTensor tensor{TensorKind::output_gradient, static_cast<int>(layers) - 1};
  const LossGradient operation{.z = gradient,
                               .x = x,
                               .bias = plan.parameters.bias(last),
                               .target_seed = config_.seed,
                               .gradient_scale = loss_scale(plan.precision, config_.batch.global) /
                                                 static_cast<float>(config_.batch.global),
                               .bias_gradient = bias_gradient(call, last),
                               .loss = plan.loss};
  EGT_TRY(call.companion.before(operation));
  EGT_TRY(device_.loss_gradient(operation, stream_));
  EGT_TRY(add_bias_gradient(call, last));
  EGT_TRY(made(call, tensor, gradient));
  return call.companion.after(operation, tensor);
}

Status Pass::mask(const Call& call, std::size_t layer, MatrixView gradient) {
  const LinearLayer& below = layout_.layers()[layer - 1];
  const PassTensor tensor{TensorKind::input_gradient, static_cast<int>(layer)};
  const ActivationGradient operation{gradient, call.activation(layer), bias_gradient(call, below)};
  EGT_TRY(call.companion.before(operation));
  EGT_TRY(device_.enqueue(operation, stream_));
  EGT_TRY(add_bias_gradient(call, below));
  EGT_TRY(made(call, tensor, gradient));
  return call.companion.after(operation, tensor);
}

Status Pass::backward(const PassPlan& plan, PassObserver& companion) {
  const ProfilerRange range("backward");
  const Call call{plan, companion, workspace_};
  EGT_TRY(call.companion.before_backward());
  const std::size_t layers = layout_.layers().size();
  MatrixView gradient;  // gradient of the outputs
  EGT_TRY(output_gradient(call, gradient));
  std::size_t bucket = 0;
  MatrixView late_gradient;
  for (std::size_t l = layers; l-- > 0;) {
    const int number = static_cast<int>(l);
    MatrixView input_gradient;
    EGT_TRY(products_.take_gradient(l, plan.precision, gradient));
    if (l > 0 || !has_input()) {
      input_gradient = call.activation_gradient(l);
      const Gemm product =
          products_.input_gradient(l, plan.precision, plan.parameters, gradient, input_gradient);
      EGT_TRY(device_.gemm(product, stream_));
      EGT_TRY(made(call, {TensorKind::input_product, number}, input_gradient));
      EGT_TRY(call.companion.after(product, {TensorKind::input_product, number}));
    }
    if (number == late_layer)
      late_gradient = gradient;
    else
      EGT_TRY(weight_gradients(call, number, gradient, bucket));
    if (l == 0) break;
    EGT_TRY(mask(call, l, input_gradient));
    gradient = input_gradient;
  }
  return layers > late_layer ? weight_gradients(call, late_layer, late_gradient, bucket) : Status();
}

Status Pass::weight_gradients(const Call& call, int layer, MatrixView output_gradient, std::size_t& bucket) {
  const MatrixView input = call.activation(static_cast<std::size_t>(layer));
  for (; bucket < layout_.buckets().size(); ++bucket) {
    const std::vector<GradientPiece>& pieces = layout_.buckets()[bucket].pieces;
    for (const GradientPiece& piece : pieces)
      if (piece.layer == layer) EGT_TRY(weight_gradient(call, piece, output_gradient, input));
    if (pieces.back().layer != layer) break;  // the bucket continues in another layer
    EGT_TRY(call.companion.bucket_made(bucket));
  }
  return {};
}

Status Pass::weight_gradient(const Call& call, const GradientPiece& piece, MatrixView output_gradient,
                             MatrixView input) {
  const LinearLayer& layer = layout_.layers()[static_cast<std::size_t>(piece.layer)];
  const PassTensor tensor{TensorKind::weight_gradient, piece.layer};
  const VectorView target =
      call.gradient_range(layer.weights + piece.first_row * layer.inputs, piece.rows * layer.inputs);
  const ElementType type = product_type(call.plan.precision, config_.gradient_type);
  void* data = type == target.type ? target.data : workspace_.product.data();
  Gemm product = products_.weight_gradient(piece, call.plan.precision, output_gradient, input,
                                           {data, type, piece.rows, layer.inputs});
  if (call.plan.adds) product.beta = 1;
  EGT_TRY(device_.gemm(product, stream_));
  if (type != target.type) EGT_TRY(device_.cast(target, {data, type, target.count}, stream_));
  const bool is_last = piece.first_row == 0;  // pieces are computed from high rows to low rows
  if (is_last) EGT_TRY(tamper(call, tensor, target.words()));
  EGT_TRY(call.companion.after(product, tensor));
  if (!is_last) return {};
  const VectorView whole = call.gradient_range(layer.weights, layer.end - layer.weights);
  return call.companion.made(tensor, whole.words());
}

/// A tensor of 2-byte elements may end within a word. Zeroes the rest of that word, since digests read words.
Status Pass::made(const Call& call, const PassTensor& tensor, const MatrixView& made) {
  constexpr std::size_t word = sizeof(std::uint32_t);
  const std::size_t bytes = static_cast<std::size_t>(made.count()) * size_of(made.type);
  if (bytes % word != 0)
    EGT_TRY(device_.set_zero(static_cast<char*>(made.data) + bytes, word - bytes % word, stream_));
  const WordsView words{static_cast<std::uint32_t*>(made.data), (bytes + word - 1) / word};
  EGT_TRY(tamper(call, tensor, {words.data, bytes / word}));
  return call.companion.made(tensor, words);
}

Status Pass::tamper(const Call& call, const PassTensor& tensor, WordsView words) {
  for (const TensorFault& one : tensor_faults_)
    if (one.tensor == tensor && call.is_struck_by(one) && words.count > 0)
      EGT_TRY(device_.flip(words, one.flip, stream_));
  return {};
}

}  // namespace egt::mlp
