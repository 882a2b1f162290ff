#include "loadtest/convnet/conv_net.hpp"

#include <utility>

#include <fmt/format.h>

#include "loadtest/convnet/network_memory.hpp"

namespace egt {
namespace {

constexpr int buckets = 4;  // max number of gradient buckets, of about the same size

/// The operations of a layer. Operations that the layer lacks are null.
struct LayerOperations {
  std::unique_ptr<Convolution> convolution;
  std::unique_ptr<BatchNorm> batch_norm;
  std::unique_ptr<Pooling> pooling;
};

/// The work enqueued between two all-reduces: the backward pass of layers [first, end), whose gradients are
/// the elements [begin_bucket, end_bucket). The first part also contains the forward pass.
struct Part {
  std::size_t first = 0, end = 0;
  std::int64_t begin_bucket = 0, end_bucket = 0;
  std::unique_ptr<CapturedWork> work;  ///< null: not captured yet
};

/// True if the layer is a batch normalization whose ReLU can be fused, because no skip tensor is added in
/// between.
bool normalizes_with_relu(const NetworkLayer& layer) {
  return layer.kind == LayerKind::batch_norm && layer.relu && layer.skip < 0;
}

}  // namespace

struct ConvNet::Impl {
  Impl(Device& d, Communicator& c, const ConvNetConfig& with)
      : device(d),
        communicator(c),
        config(with),
        type(storage_type(with.precision)),
        plan(plan_network(with.kind, {with.batch, with.pixels, with.pixels, 3}, with.classes)),
        memory(d, plan, type) {}

  Status open(Dnn& dnn);

  Status forward(const NetworkParameters& set, bool training, Digest** answers);
  Status forward_layer(const NetworkLayer& layer, LayerOperations& operations, const NetworkParameters& set,
                       bool training);
  Status forward_linear(const NetworkLayer& layer, const NetworkParameters& set);
  Status loss(float gradient_scale);
  Status backward(const NetworkParameters& set, std::size_t first, std::size_t end, Digest** answers);
  Status backward_layer(const NetworkLayer& layer, LayerOperations& operations, const NetworkParameters& set);
  Status backward_linear(const NetworkLayer& layer, const NetworkParameters& set);
  void plan_parts();
  Status enqueue_part(const Part& part);
  Status run_part(Part& part);
  Status run_pass();
  Status sum_bucket(const Part& part);
  Status update();
  Status tamper(TensorKind kind, std::size_t layer, WordsView words);
  Status answer(WordsView words, Digest** answers);

  std::size_t layers() const { return plan.layers.size(); }
  VectorView bias_gradient(const NetworkLayer& layer) const {
    float* const there = layer.kind == LayerKind::batch_norm ? memory.unused.as<float>()
                                                             : memory.gradient.as<float>() + layer.bias;
    return {there, ElementType::f32, plan.y_of(layer).channels};
  }
  Device& device;
  Communicator& communicator;
  const ConvNetConfig config;
  const ElementType type;  ///< element type of activations
  const NetworkPlan plan;
  std::vector<TensorFault> tensor_faults;

  NetworkMemory memory;
  std::vector<LayerOperations> operations;
  std::vector<Part> parts;      ///< parts of a forward/backward pass, in order
  bool has_run = false;         ///< true after the first pass, which must precede capture
  std::string capture_failure;  ///< why passes cannot be captured; empty if they can
  std::unique_ptr<Event> bucket_made, bucket_summed;
  std::unique_ptr<Stream> summing, compute;  ///< last: they wait for their work before the memory is freed
};

Status ConvNet::Impl::open(Dnn& dnn) {
  if (const Support support = dnn.supports(config.precision); !support.yes())
    return {StatusCode::unsupported, support.why_not};
  EGT_TRY_ASSIGN(compute, device.create_stream(StreamPriority::normal));
  EGT_TRY_ASSIGN(summing, device.create_stream(StreamPriority::high, StreamUse::without_products));
  EGT_TRY_ASSIGN(bucket_made, device.create_event(EventUse::order));
  EGT_TRY_ASSIGN(bucket_summed, device.create_event(EventUse::order));
  plan_parts();
  operations.resize(layers());
  for (std::size_t l = 0; l < layers(); ++l) {
    const NetworkLayer& layer = plan.layers[l];
    const ImageShape& x = plan.x_of(layer);
    if (layer.kind == LayerKind::convolution) {
      EGT_TRY_ASSIGN(
          operations[l].convolution,
          dnn.make(ConvolutionShape{config.precision, x, plan.y_of(layer).channels, layer.window}));
    } else if (layer.kind == LayerKind::batch_norm) {
      EGT_TRY_ASSIGN(operations[l].batch_norm,
                     dnn.make(BatchNormShape{type, x, normalizes_with_relu(layer)}));
    } else if (layer.kind == LayerKind::pooling) {
      EGT_TRY_ASSIGN(operations[l].pooling, dnn.make(PoolingShape{layer.pooling, type, x, layer.window}));
    }
  }
  EGT_TRY(memory.take(config.trains, *compute));
  EGT_TRY(memory.initialize(memory.trained, config.seed, *compute));
  return memory.initialize(memory.initial, config.seed, *compute);
}

Status ConvNet::Impl::forward(const NetworkParameters& set, bool training, Digest** answers) {
  const VectorView given{memory.images.data(), ElementType::f32, plan.tensors.front().count()};
  EGT_TRY(device.cast(memory.vector(0, memory.activation(0)), given, *compute));
  for (std::size_t l = 0; l < layers(); ++l) {
    const NetworkLayer& layer = plan.layers[l];
    EGT_TRY(forward_layer(layer, operations[l], set, training));
    const WordsView made = memory.activation_words(layer.y);
    EGT_TRY(tamper(TensorKind::activation, l, made));
    EGT_TRY(answer(made, answers));
  }
  return {};
}

Status ConvNet::Impl::forward_layer(const NetworkLayer& layer, LayerOperations& its,
                                    const NetworkParameters& set, bool training) {
  const void* const x = memory.activation(layer.x);
  void* const y = memory.activation(layer.y);
  switch (layer.kind) {
    case LayerKind::convolution:
      EGT_TRY(its.convolution->forward(x, memory.compute_weights(set, layer), y, *compute));
      break;
    case LayerKind::batch_norm: {
      const BatchNormState state = memory.batch_norm(set, layer);
      EGT_TRY(training ? its.batch_norm->forward_training(x, state, y, *compute)
                       : its.batch_norm->forward_inference(x, state, y, *compute));
      break;
    }
    case LayerKind::pooling:
      EGT_TRY(its.pooling->forward(x, y, *compute));
      break;
    case LayerKind::linear:
      EGT_TRY(forward_linear(layer, set));
      break;
  }
  if (layer.skip >= 0)
    EGT_TRY(device.add(memory.vector(layer.y, y), memory.vector(layer.skip, memory.activation(layer.skip)),
                       *compute));
  if (!layer.relu || normalizes_with_relu(layer)) return {};
  const float* const bias =
      layer.kind == LayerKind::batch_norm ? memory.zero.as<float>() : set.weights.as<float>() + layer.bias;
  return device.activate(memory.pixels(layer.y, y), bias, {}, *compute);
}

/// y = x W^T. The last layer accumulates onto its bias. In other layers the ReLU operation adds the bias.
Status ConvNet::Impl::forward_linear(const NetworkLayer& layer, const NetworkParameters& set) {
  const MatrixView x = memory.rows(layer.x, memory.activation(layer.x)),
                   y = memory.rows(layer.y, memory.activation(layer.y));
  if (!layer.relu)
    EGT_TRY(device.gemm({.precision = Precision::fp32,
                         .a = {memory.ones.data(), ElementType::f32, y.rows, 1},
                         .b = {set.weights.as<float>() + layer.bias, ElementType::f32, 1, y.columns},
                         .d = y},
                        *compute));
  return device.gemm({.precision = config.precision,
                      .a = x,
                      .b = {memory.compute_weights(set, layer), type, y.columns, x.columns},
                      .d = y,
                      .b_transposed = true,
                      .beta = layer.relu ? 0.0 : 1.0},
                     *compute);
}

Status ConvNet::Impl::loss(float gradient_scale) {
  const int logits = static_cast<int>(plan.tensors.size()) - 1;
  return device.softmax_loss({.logits = memory.rows(logits, memory.activation(logits)),
                              .labels = memory.labels.as<std::int32_t>(),
                              .gradient_scale = gradient_scale,
                              .losses = memory.losses.as<float>(),
                              .larger = memory.larger.as<std::int32_t>()},
                             *compute);
}

Status ConvNet::Impl::backward(const NetworkParameters& set, std::size_t first, std::size_t end,
                               Digest** answers) {
  for (std::size_t l = end; l-- > first;) {
    const NetworkLayer& layer = plan.layers[l];
    EGT_TRY(backward_layer(layer, operations[l], set));
    if (!layer.has_parameters()) continue;
    const WordsView made{memory.gradient.as<std::uint32_t>() + layer.weights,
                         static_cast<std::uint64_t>(layer.end() - layer.weights)};
    EGT_TRY(tamper(TensorKind::weight_gradient, l, made));
    EGT_TRY(answer(made, answers));
  }
  return {};
}

Status ConvNet::Impl::backward_layer(const NetworkLayer& layer, LayerOperations& its,
                                     const NetworkParameters& set) {
  const std::size_t l = static_cast<std::size_t>(&layer - plan.layers.data());
  const void* const x = memory.activation(layer.x);
  void* const y_gradient = memory.gradient_of(layer.y);
  if (layer.relu && !normalizes_with_relu(layer))
    EGT_TRY(device.activation_gradient(memory.pixels(layer.y, y_gradient),
                                       memory.pixels(layer.y, memory.activation(layer.y)),
                                       bias_gradient(layer), *compute));
  void* const x_gradient = layer.x == 0     ? nullptr
                           : memory.adds(l) ? memory.term.data()
                                            : memory.gradient_of(layer.x);
  switch (layer.kind) {
    case LayerKind::convolution:
      EGT_TRY(its.convolution->backward_filter(x, y_gradient, memory.gradient.as<float>() + layer.weights,
                                               *compute));
      if (x_gradient != nullptr)
        EGT_TRY(its.convolution->backward_data(y_gradient, memory.compute_weights(set, layer), x_gradient,
                                               *compute));
      break;
    case LayerKind::batch_norm:
      EGT_TRY(its.batch_norm->backward(x, y_gradient, memory.batch_norm(set, layer),
                                       memory.gradient.as<float>() + layer.weights,
                                       memory.gradient.as<float>() + layer.bias, x_gradient, *compute));
      break;
    case LayerKind::pooling:
      EGT_TRY(its.pooling->backward(x, memory.activation(layer.y), y_gradient, x_gradient, *compute));
      break;
    case LayerKind::linear:
      EGT_TRY(backward_linear(layer, set));
      break;
  }
  if (x_gradient == nullptr || !memory.adds(l)) return {};
  return device.add(memory.vector(layer.x, memory.gradient_of(layer.x)),
                    memory.vector(layer.x, memory.term.data()), *compute);
}

/// The input of a linear layer has no other reader, so its gradient needs no accumulation.
Status ConvNet::Impl::backward_linear(const NetworkLayer& layer, const NetworkParameters& set) {
  const MatrixView x = memory.rows(layer.x, memory.activation(layer.x));
  MatrixView y = memory.rows(layer.y, memory.gradient_of(layer.y));
  if (!layer.relu) {
    EGT_TRY(device.gemm({.precision = Precision::fp32,
                         .a = {memory.ones.data(), ElementType::f32, 1, y.rows},
                         .b = y,
                         .d = {memory.gradient.as<float>() + layer.bias, ElementType::f32, 1, y.columns}},
                        *compute));
    if (type != ElementType::f32) {
      const MatrixView narrow{memory.narrow_logits.data(), type, y.rows, y.columns};
      EGT_TRY(device.cast({narrow.data, type, narrow.count()}, {y.data, y.type, y.count()}, *compute));
      y = narrow;
    }
  }
  EGT_TRY(
      device.gemm({.precision = config.precision,
                   .a = y,
                   .b = x,
                   .d = {memory.gradient.as<float>() + layer.weights, ElementType::f32, y.columns, x.columns},
                   .a_transposed = true},
                  *compute));
  return device.gemm({.precision = config.precision,
                      .a = y,
                      .b = {memory.compute_weights(set, layer), type, y.columns, x.columns},
                      .d = memory.rows(layer.x, memory.gradient_of(layer.x))},
                     *compute);
}

/// If gradients are all-reduced, a part ends when it has produced enough gradients for one bucket.
void ConvNet::Impl::plan_parts() {
  std::size_t end = layers();
  std::int64_t begin_bucket = plan.parameters, end_bucket = plan.parameters;
  for (std::size_t l = layers(); l-- > 0;) {
    if (plan.layers[l].has_parameters()) begin_bucket = plan.layers[l].weights;
    const bool is_full = end_bucket - begin_bucket >= plan.parameters / buckets;
    if (l > 0 && !(config.sums && is_full)) continue;
    parts.push_back({l, end, begin_bucket, end_bucket, nullptr});
    end = l;
    end_bucket = begin_bucket;
  }
}

Status ConvNet::Impl::enqueue_part(const Part& part) {
  if (part.end == layers()) {
    const int ranks = config.sums ? communicator.size() : 1;
    EGT_TRY(forward(memory.trained, config.trains, nullptr));
    EGT_TRY(loss(config.trains ? 1.0f / static_cast<float>(config.batch * ranks) : 0.0f));
  }
  return config.trains ? backward(memory.trained, part.first, part.end, nullptr) : Status();
}

/// Runs the part as one captured graph after its first run. It runs uncaptured if capture failed or faults
/// are injected.
Status ConvNet::Impl::run_part(Part& part) {
  if (has_run && tensor_faults.empty() && capture_failure.empty() && !part.work) {
    auto captured = device.capture(*compute, [this, &part] { return enqueue_part(part); });
    if (captured.ok())
      part.work = std::move(captured.value());
    else
      capture_failure = captured.status().what();
  }
  if (part.work && tensor_faults.empty()) return device.enqueue_captured(*part.work, *compute);
  return enqueue_part(part);
}

Status ConvNet::Impl::run_pass() {
  for (Part& part : parts) {
    EGT_TRY(run_part(part));
    if (config.sums) EGT_TRY(sum_bucket(part));
  }
  has_run = true;
  return {};
}

Status ConvNet::Impl::sum_bucket(const Part& part) {
  EGT_TRY(device.record(*bucket_made, *compute));
  EGT_TRY(device.wait(*summing, *bucket_made));
  return communicator.all_reduce(memory.gradient.as<float>() + part.begin_bucket,
                                 static_cast<std::size_t>(part.end_bucket - part.begin_bucket),
                                 ElementType::f32, *summing);
}

Status ConvNet::Impl::update() {
  if (config.sums) {
    EGT_TRY(device.record(*bucket_summed, *summing));
    EGT_TRY(device.wait(*compute, *bucket_summed));
  }
  const VectorView copy =
      type == ElementType::f32 ? VectorView() : VectorView{memory.trained.copy.data(), type, plan.parameters};
  const math::Sgd rule{
      .rate = static_cast<float>(config.learning_rate), .momentum = config.momentum, .gradient_scale = 1.0f};
  return device.sgd_step({.weights = memory.trained.weights.as<float>(),
                          .gradient = {memory.gradient.data(), ElementType::f32, plan.parameters},
                          .compute_copy = copy,
                          .count = plan.parameters},
                         memory.velocity.as<float>(), rule, *compute);
}

Status ConvNet::Impl::tamper(TensorKind kind, std::size_t layer, WordsView words) {
  for (const TensorFault& one : tensor_faults)
    if (one.tensor == PassTensor{kind, static_cast<int>(layer)})
      EGT_TRY(device.flip(words, one.flip, *compute));
  return {};
}

Status ConvNet::Impl::answer(WordsView words, Digest** answers) {
  return answers != nullptr ? device.digest(words, (*answers)++, *compute) : Status();
}

ConvNet::ConvNet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvNet::~ConvNet() = default;

Result<std::unique_ptr<ConvNet>> ConvNet::create(Device& device, Dnn& dnn, Communicator& communicator,
                                                 const ConvNetConfig& config) {
  if (config.batch < 1 || config.classes < 1 || config.pixels < min_pixels(config.kind))
    return Status(StatusCode::invalid_argument, fmt::format("{} wants at least one image of {} pixels a side",
                                                            to_string(config.kind), min_pixels(config.kind)));
  auto impl = std::make_unique<Impl>(device, communicator, config);
  EGT_TRY(impl->open(dnn));
  return std::unique_ptr<ConvNet>(new ConvNet(std::move(impl)));
}

VectorView ConvNet::images() const {
  return {impl_->memory.images.data(), ElementType::f32, impl_->plan.tensors.front().count()};
}

std::int32_t* ConvNet::labels() const {
  return impl_->memory.labels.as<std::int32_t>();
}

Stream& ConvNet::stream() {
  return *impl_->compute;
}

Status ConvNet::enqueue_training() {
  EGT_TRY(impl_->run_pass());
  return impl_->update();
}

Status ConvNet::enqueue_inference() {
  return impl_->run_pass();
}

Status ConvNet::enqueue_replay(Digest* answers) {
  EGT_TRY(impl_->forward(impl_->memory.initial, impl_->config.trains, &answers));
  if (!impl_->config.trains) return {};
  EGT_TRY(impl_->loss(1.0f / static_cast<float>(impl_->config.batch)));
  return impl_->backward(impl_->memory.initial, 0, impl_->layers(), &answers);
}

std::vector<PassTensor> ConvNet::replay_tensors() const {
  std::vector<PassTensor> tensors;
  const int layers = static_cast<int>(impl_->layers());
  for (int l = 0; l < layers; ++l) tensors.push_back({TensorKind::activation, l});
  for (int l = layers; impl_->config.trains && l-- > 0;)
    if (impl_->plan.layers[static_cast<std::size_t>(l)].has_parameters())
      tensors.push_back({TensorKind::weight_gradient, l});
  return tensors;
}

void ConvNet::set_tensor_faults(std::vector<TensorFault> tensor_faults) {
  impl_->tensor_faults = std::move(tensor_faults);
}

std::string ConvNet::name_of(const PassTensor& tensor) const {
  return fmt::format("{} of {}", tensor.kind == TensorKind::activation ? "activation" : "weight gradient",
                     impl_->plan.layers[static_cast<std::size_t>(tensor.layer)].name);
}

const float* ConvNet::losses() const {
  return impl_->memory.losses.as<float>();
}
const std::int32_t* ConvNet::larger() const {
  return impl_->memory.larger.as<std::int32_t>();
}
WordsView ConvNet::weights() const {
  return impl_->memory.trained.weights.words();
}
WordsView ConvNet::statistics() const {
  return impl_->memory.trained.statistics.words();
}
WordsView ConvNet::velocity() const {
  return impl_->memory.velocity.words();
}
WordsView ConvNet::gradient() const {
  return impl_->memory.gradient.words();
}
const NetworkPlan& ConvNet::plan() const {
  return impl_->plan;
}
const std::string& ConvNet::capture_failure() const {
  return impl_->capture_failure;
}
double ConvNet::flops() const {
  return impl_->plan.flops(impl_->config.trains);
}

Status ConvNet::give_up(double timeout_seconds) {
  EGT_TRY(impl_->device.forget_failure(*impl_->summing, timeout_seconds));
  return impl_->device.forget_failure(*impl_->compute, timeout_seconds);
}

}  // namespace egt
