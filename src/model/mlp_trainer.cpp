#include "egt/model/mlp_trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "egt/core/wait.hpp"
#include "mlp_buffers.hpp"

namespace egt {

namespace {

using mlp::Buffers;
using mlp::EventHandle;

constexpr std::uint64_t weight_sequences = std::uint64_t{1}
                                           << 63;  // apart from the steps', which count from 0
constexpr double initialization_timeout_s = 60.0;
constexpr float output_gain = 0.1f;        // the last layer starts small: see default_learning_rate
constexpr float input_scale = 1.7320508f;  // uniform in +-sqrt(3): variance 1

/// He's initialization (2015), uniform: variance 2 / inputs.
float initial_scale(const LinearLayer& layer, bool last) {
  return (last ? output_gain : 1.0f) * std::sqrt(6.0f / static_cast<float>(layer.inputs));
}

/// Keeps fp16 gradients in the middle of its range: the output's become about 16 times the error. A power of
/// two, so that scaling is exact; with bounded inputs and targets nothing overflows, so it need not adapt.
float loss_scale(Precision precision, std::int64_t global_batch) {
  if (precision != Precision::fp16) return 1.0f;
  return 16.0f * std::exp2(std::ceil(std::log2(static_cast<float>(global_batch))));
}

/// Alone, gradients need not travel: every layer's weight gradient is one product, and one update takes them
/// all.
std::int64_t bucket_elements(const Communicator& communicator) {
  constexpr std::int64_t shared = 16 << 20;
  return communicator.size() > 1 ? shared : std::numeric_limits<std::int64_t>::max();
}

/// The end of a step: [0] the sum of squared errors, [1] votes to stop; summed over ranks behind the last
/// bucket.
struct Tail {
  float* device = nullptr;
  float* vote = nullptr;    // pinned, written by the host before the step is enqueued
  float* result = nullptr;  // pinned, valid once `done` is reached
  EventHandle done;
};

}  // namespace

/// With output gain g and unit-variance inputs, the largest curvature of the loss (1/2 the squared error
/// summed over outputs, mean over the batch) is about the squared norm of the last hidden layer plus g^2
/// times those before it; heavy-ball momentum is stable to 2 (1 + 0.9) over that. A twentieth of it leaves
/// room for curvature that grows in training. Adam moves every weight by the rate: it is bounded so that a
/// step moves an output by about 0.3.
double default_learning_rate(const std::vector<std::int64_t>& neurons, Optimizer optimizer) {
  const std::size_t hidden = neurons.size() - 2;
  const double last = static_cast<double>(neurons[hidden]) + 1.0;
  double curvature = last, reach = last;
  for (std::size_t l = 0; l < hidden; ++l) {
    curvature += output_gain * output_gain * static_cast<double>(neurons[l]);
    reach += output_gain * std::sqrt(static_cast<double>(neurons[l + 1])) * static_cast<double>(neurons[l]);
  }
  return optimizer == Optimizer::adam ? 0.3 / reach : 0.19 / curvature;
}

double flops_per_sample(const std::vector<std::int64_t>& neurons) {
  double products = 0;
  for (std::size_t l = 0; l + 1 < neurons.size(); ++l)
    products += static_cast<double>(neurons[l] * neurons[l + 1]);
  return 2.0 * (3.0 * products - static_cast<double>(neurons[0] * neurons[1]));
}

struct MlpTrainer::Impl {
  Impl(Device& d, Communicator& c, const MlpConfig& m)
      : device(d), communicator(c), config(m), layout(m.neurons, bucket_elements(c)) {}

  Status make_streams_and_events();
  Status make_tails();
  Status initialize_weights();
  Status forward(std::int64_t step);
  Status backward(std::int64_t step);
  Status weight_gradient(const GradientPiece& piece, MatrixView output_gradient, MatrixView input);
  Status submit_bucket(std::size_t bucket);
  Status update(const GradientBucket& bucket);
  Status close_step(Tail& tail, float vote);
  /// Where gradients are summed over ranks and weights are updated. Alone there is nothing to hide behind
  /// backward: an update beside a product only takes multiprocessors from it.
  Stream& sums() { return communicator.size() > 1 ? *communication : *compute; }
  Tail& tail_of(std::int64_t step) { return tails[static_cast<std::size_t>(step) % tails.size()]; }

  Device& device;
  Communicator& communicator;
  const MlpConfig config;
  const ParameterLayout layout;
  Precision precision = Precision::fp32;
  std::int64_t updates = 0;  // begun, for Adam's correction
  std::optional<std::int64_t> last_retired;
  bool measuring = false;

  // Streams die before the memory that their work uses: members are destroyed from the last to the first.
  Buffers buffers;
  Buffer tail_memory, tail_pinned, digest_memory, digest_pinned;
  std::array<Tail, depth + 2> tails;
  std::vector<EventHandle> ready, updated;                    // a bucket each
  std::vector<EventHandle> sum_begin, sum_end;                // a bucket each, of the measured step
  std::vector<EventHandle> activation_begin, activation_end;  // a hidden layer each, of the measured step
  EventHandle replica_done;
  std::unique_ptr<Stream> compute, communication;
};

Result<std::unique_ptr<MlpTrainer>> MlpTrainer::create(Device& device, Communicator& communicator,
                                                       const MlpConfig& config) {
  for (const Precision precision : config.precisions) {
    const Support support = device.supports(precision);
    if (!support.yes()) return Status(StatusCode::unsupported, support.why_not);
  }
  auto impl = std::make_unique<Impl>(device, communicator, config);
  EGT_TRY_ASSIGN(impl->buffers, Buffers::allocate(device, config, impl->layout));
  EGT_TRY(impl->make_streams_and_events());
  EGT_TRY(impl->make_tails());
  EGT_TRY(impl->initialize_weights());
  std::unique_ptr<MlpTrainer> trainer(new MlpTrainer(std::move(impl)));
  EGT_TRY(trainer->set_precision(config.precisions.front()));
  // From here on every stream may read the weights.
  EGT_TRY(device.synchronize(*trainer->impl_->compute, initialization_timeout_s));
  return trainer;
}

MlpTrainer::MlpTrainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MlpTrainer::~MlpTrainer() = default;

Status MlpTrainer::Impl::make_streams_and_events() {
  EGT_TRY_ASSIGN(compute, device.create_stream(StreamPriority::normal));
  EGT_TRY_ASSIGN(communication, device.create_stream(StreamPriority::high));
  const auto make = [&](std::vector<EventHandle>& events, std::size_t count) -> Status {
    for (std::size_t i = 0; i < count; ++i) {
      EGT_TRY_ASSIGN(EventHandle event, device.create_event());
      events.push_back(std::move(event));
    }
    return {};
  };
  for (auto* events : {&ready, &updated, &sum_begin, &sum_end})
    EGT_TRY(make(*events, layout.buckets().size()));
  for (auto* events : {&activation_begin, &activation_end})
    EGT_TRY(make(*events, layout.layers().size() - 1));
  EGT_TRY_ASSIGN(replica_done, device.create_event());
  return {};
}

Status MlpTrainer::Impl::make_tails() {
  constexpr std::size_t line = 64;  // floats between tails: 256 bytes
  EGT_TRY_ASSIGN(tail_memory, device.allocate(tails.size() * line * sizeof(float)));
  EGT_TRY_ASSIGN(tail_pinned, device.allocate_pinned(tails.size() * line * sizeof(float)));
  for (std::size_t i = 0; i < tails.size(); ++i) {
    tails[i].device = tail_memory.as<float>() + i * line;
    tails[i].result = tail_pinned.as<float>() + i * line;
    tails[i].vote = tails[i].result + 16;
    EGT_TRY_ASSIGN(tails[i].done, device.create_event());
  }
  const std::size_t digests = layout.layers().size() * sizeof(Digest);
  EGT_TRY_ASSIGN(digest_memory, device.allocate(digests * static_cast<std::size_t>(communicator.size() + 1)));
  EGT_TRY_ASSIGN(digest_pinned,
                 device.allocate_pinned(digests * static_cast<std::size_t>(communicator.size())));
  return {};
}

Status MlpTrainer::Impl::initialize_weights() {
  for (const Buffer* buffer :
       {&buffers.weights, &buffers.first_moment, &buffers.second_moment, &buffers.gradient})
    if (buffer->bytes() > 0) EGT_TRY(device.set_zero(buffer->data(), buffer->bytes(), *compute));
  for (std::size_t l = 0; l < layout.layers().size(); ++l) {
    const LinearLayer& layer = layout.layers()[l];
    const VectorView weights{buffers.weights.as<float>() + layer.weights, ElementType::f32,
                             layer.inputs * layer.outputs};
    EGT_TRY(device.randomize(weights,
                             {.seed = config.seed,
                              .sequence = weight_sequences + l,
                              .first = 0,
                              .scale = initial_scale(layer, l + 1 == layout.layers().size())},
                             *compute));
  }
  return {};
}

Status MlpTrainer::set_precision(Precision precision) {
  Impl& m = *impl_;
  m.precision = precision;
  const VectorView copy = m.buffers.compute_copy(precision);
  if (copy.data == nullptr) return {};
  // The last bucket's update is the last thing that wrote weights or their copy.
  EGT_TRY(m.device.wait(*m.compute, *m.updated.back()));
  EGT_TRY(m.device.cast(copy, weights(), *m.compute));
  return {};
}

Status MlpTrainer::enqueue_step(std::int64_t step, float vote, bool measure) {
  Impl& m = *impl_;
  m.measuring = measure;
  ++m.updates;
  EGT_TRY(m.forward(step));
  EGT_TRY(m.backward(step));
  return m.close_step(m.tail_of(step), vote);
}

Status MlpTrainer::Impl::forward(std::int64_t step) {
  const auto inputs = static_cast<std::uint64_t>(config.neurons.front());
  const MatrixView x = buffers.activation(0, precision);
  EGT_TRY(device.randomize({x.data, x.type, x.count()},
                           {.seed = config.seed,
                            .sequence = static_cast<std::uint64_t>(step),
                            .first = static_cast<std::uint64_t>(config.batch.first) * inputs,
                            .scale = input_scale},
                           *compute));
  for (std::size_t l = 0; l < layout.layers().size(); ++l) {
    const LinearLayer& layer = layout.layers()[l];
    const MatrixView output = buffers.activation(l + 1, precision);
    EGT_TRY(device.wait(*compute,
                        *updated[static_cast<std::size_t>(layout.last_bucket_of(static_cast<int>(l)))]));
    EGT_TRY(device.gemm({.precision = precision,
                         .a = buffers.activation(l, precision),
                         .b = buffers.compute_weights(layer, precision),
                         .d = output,
                         .b_transposed = true},
                        *compute));
    if (l + 1 == layout.layers().size()) break;
    if (measuring) EGT_TRY(device.record(*activation_begin[l], *compute));
    EGT_TRY(device.activate(output, buffers.bias(layer), config.extreme_iterations, *compute));
    if (measuring) EGT_TRY(device.record(*activation_end[l], *compute));
  }
  return {};
}

Status MlpTrainer::Impl::backward(std::int64_t step) {
  const std::size_t layers = layout.layers().size();
  MatrixView gradient = buffers.activation(layers, precision);  // of the outputs: made in place
  const LinearLayer& last = layout.layers().back();
  EGT_TRY(device.loss_gradient(
      {.z = gradient,
       .x = buffers.activation(0, precision),
       .bias = buffers.bias(last),
       .target_seed = config.seed,
       .gradient_scale = loss_scale(precision, config.batch.global) / static_cast<float>(config.batch.global),
       .bias_gradient = buffers.gradient_range(last.bias, last.outputs),
       .loss = tail_of(step).device},
      *compute));
  std::size_t bucket = 0, piece = 0;
  for (std::size_t l = layers; l-- > 0;) {
    const LinearLayer& layer = layout.layers()[l];
    const MatrixView input = buffers.activation(l, precision);
    // The input's gradient first: it is the last to read this layer's weights, which a bucket's update then
    // changes.
    MatrixView input_gradient;
    if (l > 0) {
      input_gradient = buffers.activation_gradient(l, precision);
      EGT_TRY(device.gemm({.precision = precision,
                           .a = gradient,
                           .b = buffers.compute_weights(layer, precision),
                           .d = input_gradient},
                          *compute));
    }
    while (bucket < layout.buckets().size()) {
      const auto& pieces = layout.buckets()[bucket].pieces;
      if (pieces[piece].layer != static_cast<int>(l)) break;
      EGT_TRY(weight_gradient(pieces[piece], gradient, input));
      if (++piece < pieces.size()) continue;
      EGT_TRY(submit_bucket(bucket));
      ++bucket;
      piece = 0;
    }
    if (l == 0) break;
    const LinearLayer& below = layout.layers()[l - 1];
    EGT_TRY(device.activation_gradient(input_gradient, input,
                                       buffers.gradient_range(below.bias, below.outputs), *compute));
    gradient = input_gradient;
  }
  return {};
}

Status MlpTrainer::Impl::weight_gradient(const GradientPiece& piece, MatrixView output_gradient,
                                         MatrixView input) {
  const LinearLayer& layer = layout.layers()[static_cast<std::size_t>(piece.layer)];
  const VectorView target =
      buffers.gradient_range(layer.weights + piece.first_row * layer.inputs, piece.rows * layer.inputs);
  const ElementType type = mlp::product_type(precision, config.gradient_type);
  void* product = type == target.type ? target.data : buffers.product.data();
  EGT_TRY(device.gemm({.precision = precision,
                       .a = output_gradient.column_range(piece.first_row, piece.rows),
                       .b = input,
                       .d = {product, type, piece.rows, layer.inputs},
                       .a_transposed = true},
                      *compute));
  if (type == target.type) return {};
  return device.cast(target, {product, type, target.count}, *compute);
}

Status MlpTrainer::Impl::submit_bucket(std::size_t index) {
  const GradientBucket& bucket = layout.buckets()[index];
  EGT_TRY(device.record(*ready[index], *compute));
  EGT_TRY(device.wait(sums(), *ready[index]));
  if (measuring) EGT_TRY(device.record(*sum_begin[index], sums()));
  const VectorView gradient = buffers.gradient_range(bucket.offset, bucket.count);
  EGT_TRY(communicator.all_reduce(gradient.data, static_cast<std::size_t>(gradient.count), gradient.type,
                                  sums()));
  if (measuring) EGT_TRY(device.record(*sum_end[index], sums()));
  EGT_TRY(update(bucket));
  return device.record(*updated[index], sums());
}

Status MlpTrainer::Impl::update(const GradientBucket& bucket) {
  const ParameterRange range{
      .weights = buffers.weights.as<float>() + bucket.offset,
      .gradient = buffers.gradient_range(bucket.offset, bucket.count),
      .compute_copy = buffers.compute_copy_range(precision, bucket.offset, bucket.count),
      .count = bucket.count};
  const float rate = static_cast<float>(config.learning_rate);
  const float unscale = 1.0f / loss_scale(precision, config.batch.global);
  const auto state = [&](const Buffer& buffer) {
    return buffer.bytes() > 0 ? buffer.as<float>() + bucket.offset : nullptr;
  };
  float* first = state(buffers.first_moment);
  if (config.optimizer == Optimizer::sgd)
    return device.sgd_step(range, first,
                           {.rate = rate, .momentum = config.momentum, .gradient_scale = unscale}, sums());
  constexpr double beta1 = 0.9, beta2 = 0.999;
  const auto t = static_cast<double>(updates);
  const math::Adam rule{.rate = rate,
                        .beta1 = static_cast<float>(beta1),
                        .beta2 = static_cast<float>(beta2),
                        .epsilon = 1e-8f,
                        .correction1 = static_cast<float>(1.0 - std::pow(beta1, t)),
                        .correction2 = static_cast<float>(1.0 - std::pow(beta2, t)),
                        .gradient_scale = unscale};
  return device.adam_step(range, first, state(buffers.second_moment), rule, sums());
}

Status MlpTrainer::Impl::close_step(Tail& tail, float vote) {
  // The last update comes after the loss; the next step's products need not wait for what is told of this
  // one.
  EGT_TRY(device.wait(*communication, *updated.back()));
  *tail.vote = vote;
  EGT_TRY(device.copy(tail.device + 1, tail.vote, sizeof(float), *communication));
  EGT_TRY(communicator.all_reduce(tail.device, 2, ElementType::f32, *communication));
  EGT_TRY(device.copy(tail.result, tail.device, 2 * sizeof(float), *communication));
  return device.record(*tail.done, *communication);
}

Result<StepResult> MlpTrainer::retire_step(std::int64_t step, double timeout_seconds) {
  Impl& m = *impl_;
  const Tail& tail = m.tail_of(step);
  const std::string what = "the end of training step " + std::to_string(step);
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(m.communicator.check());
        return m.device.done(*tail.done);
      },
      {.seconds = timeout_seconds, .what = what.c_str()}));
  StepResult result;
  const double outputs =
      static_cast<double>(m.config.batch.global) * static_cast<double>(m.config.neurons.back());
  result.loss = static_cast<double>(tail.result[0]) / outputs;
  result.votes = tail.result[1];
  if (m.last_retired == step - 1) {
    EGT_TRY_ASSIGN(result.step_ms, m.device.elapsed_ms(*m.tail_of(step - 1).done, *tail.done));
  }
  m.last_retired = step;
  return result;
}

Result<StepTimes> MlpTrainer::measured_times() const {
  const Impl& m = *impl_;
  StepTimes times;
  for (std::size_t b = 0; b < m.sum_begin.size(); ++b) {
    EGT_TRY_ASSIGN(const double ms, m.device.elapsed_ms(*m.sum_begin[b], *m.sum_end[b]));
    times.all_reduce_ms += ms;
    times.all_reduce_bytes += static_cast<double>(m.layout.buckets()[b].count) *
                              static_cast<double>(size_of(m.config.gradient_type));
  }
  for (std::size_t l = 0; l < m.activation_begin.size(); ++l) {
    EGT_TRY_ASSIGN(const double ms, m.device.elapsed_ms(*m.activation_begin[l], *m.activation_end[l]));
    times.activation_ms += ms;
  }
  return times;
}

Status MlpTrainer::enqueue_replica_check() {
  Impl& m = *impl_;
  const std::size_t layers = m.layout.layers().size();
  Digest* own = m.digest_memory.as<Digest>();
  Digest* all = own + layers;
  for (std::size_t l = 0; l < layers; ++l) {
    const LinearLayer& layer = m.layout.layers()[l];
    const WordsView words{m.buffers.weights.as<std::uint32_t>() + layer.weights,
                          static_cast<std::uint64_t>(layer.end - layer.weights)};
    EGT_TRY(m.device.digest(words, own + l, m.sums()));
  }
  EGT_TRY(m.communicator.all_gather(own, all, layers * sizeof(Digest), m.sums()));
  EGT_TRY(m.device.copy(m.digest_pinned.data(), all, m.digest_pinned.bytes(), m.sums()));
  return m.device.record(*m.replica_done, m.sums());
}

Result<std::vector<std::vector<Digest>>> MlpTrainer::collect_replica_check(double timeout_seconds) {
  Impl& m = *impl_;
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(m.communicator.check());
        return m.device.done(*m.replica_done);
      },
      {.seconds = timeout_seconds, .what = "the weight digests of all ranks"}));
  const std::size_t layers = m.layout.layers().size();
  const Digest* digests = m.digest_pinned.as<Digest>();
  std::vector<std::vector<Digest>> ranks;
  for (std::size_t r = 0; r < static_cast<std::size_t>(m.communicator.size()); ++r)
    ranks.emplace_back(digests + r * layers, digests + (r + 1) * layers);
  return ranks;
}

const ParameterLayout& MlpTrainer::layout() const {
  return impl_->layout;
}
Stream& MlpTrainer::communication_stream() {
  return *impl_->communication;
}

VectorView MlpTrainer::weights() {
  return {impl_->buffers.weights.data(), ElementType::f32, impl_->layout.size()};
}

VectorView MlpTrainer::gradient() {
  return impl_->buffers.gradient_range(0, impl_->layout.size());
}

}  // namespace egt
