#include "loadtest/retrieval/retrieval_encoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace egt {

namespace {

/// GEMM operations for encoding one vector.
double encoder_flops(const RetrievalConfig& config) {
  double products = 0;
  std::int64_t inputs = config.inputs;
  for (const std::int64_t neurons : config.hidden)
    products += static_cast<double>(std::exchange(inputs, neurons) * neurons);
  return 2.0 * (products + static_cast<double>(inputs * config.embedding));
}

double similarity_flops(std::int64_t rows, std::int64_t columns, const RetrievalConfig& config) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(columns) *
         static_cast<double>(config.embedding);
}

}  // namespace

RetrievalConfig small_retrieval() {
  return {};
}

RetrievalConfig large_retrieval() {
  RetrievalConfig config;
  config.latent = 64;
  config.inputs = 1024;
  config.hidden = {2048, 2048};
  config.embedding = 512;
  config.shards = 16;
  config.pairs = 1024;
  config.temperature = 0.4;
  config.learning_rate = 3e-4;
  config.evaluated = 65536;
  config.block = 2048;
  config.precision = Precision::tf32;
  return config;
}

Status check_retrieval(const Device& device, const RetrievalConfig& config) {
  const auto wrong = [](const char* what) { return Status(StatusCode::invalid_argument, what); };
  std::int64_t least = std::min({config.latent, config.inputs, config.embedding, config.shards, config.pairs,
                                 config.evaluated, config.block});
  for (const std::int64_t neurons : config.hidden) least = std::min(least, neurons);
  if (least < 1) return wrong("a size of the retrieval test is below 1");
  if (config.hidden.empty()) return wrong("the retrieval test's encoder has no hidden layer");
  if (config.evaluated % config.block != 0)
    return wrong("the retrieval test's evaluation set is no multiple of its blocks");
  if (config.evaluated > std::numeric_limits<std::int32_t>::max())
    return wrong("the retrieval test's evaluation set is too large");
  if (!(config.temperature > 0)) return wrong("the retrieval test's temperature is not above 0");
  const Precision precision = config.precision;
  if (precision != Precision::fp32 && precision != Precision::tf32 && precision != Precision::bf16)
    return {StatusCode::unsupported, "the retrieval test computes in fp32, tf32 or bf16 only"};
  const Support support = supports_training(device, precision);
  return support.yes() ? Status() : Status(StatusCode::unsupported, support.why_not);
}

/// Forward plus twice as much backward, without the gradient of the inputs. The similarities need two GEMMs
/// and their gradients four.
double training_flops(const RetrievalConfig& config) {
  const auto views = static_cast<double>(2 * config.shards * config.pairs);
  const double first = 2.0 * static_cast<double>(config.inputs * config.hidden.front());
  return views * (3.0 * encoder_flops(config) - first) +
         6.0 * static_cast<double>(config.shards) * similarity_flops(config.pairs, config.pairs, config);
}

double evaluation_flops(const RetrievalConfig& config) {
  return static_cast<double>(2 * config.evaluated) * encoder_flops(config) +
         similarity_flops(config.evaluated, config.evaluated, config);
}

namespace retrieval {

namespace {

constexpr float unit_variance = 1.7320508f;  // uniform in +-sqrt(3)

// Bases of random sequences, one per purpose; a step adds its number. ParameterSet uses those from 2^63.
constexpr std::uint64_t evaluation_sequence = std::uint64_t{1} << 56;
constexpr std::uint64_t map_sequence = std::uint64_t{2} << 56;
constexpr std::uint64_t latent_purpose = std::uint64_t{4} << 56;
constexpr std::uint64_t noise_purpose[] = {std::uint64_t{8} << 56, std::uint64_t{16} << 56};  // by Side

}  // namespace

Result<Buffer> Encoder::allocate(std::int64_t elements, ElementType type) {
  // Round up to whole words, because an injected fault flips 4-byte words.
  return device_.allocate((static_cast<std::size_t>(elements) * size_of(type) + 3) / 4 * 4);
}

Status Encoder::prepare() {
  const std::int64_t rows = std::max(2 * config_.pairs, config_.block);
  std::int64_t widest = config_.embedding;
  EGT_TRY_ASSIGN(latent_, allocate(rows * config_.latent, type()));
  for (const LinearLayer& layer : layout_.layers()) {
    EGT_TRY_ASSIGN(Buffer activation, allocate(rows * layer.inputs, type()));
    activations_.push_back(std::move(activation));
    widest = std::max(widest, layer.inputs);
  }
  for (Buffer* buffer : {&embeddings_, &embeddings_gradient_}) {
    EGT_TRY_ASSIGN(*buffer, allocate(2 * config_.pairs * config_.embedding, type()));
  }
  for (Buffer& gradient : gradients_) {
    EGT_TRY_ASSIGN(gradient, allocate(2 * config_.pairs * widest, type()));
  }
  for (std::size_t way = 0; way < 2; ++way) {
    EGT_TRY_ASSIGN(similarities_[way], allocate(config_.pairs * config_.pairs, ElementType::f32));
    if (type() == ElementType::f32) continue;
    EGT_TRY_ASSIGN(operands_[way], allocate(config_.pairs * config_.pairs, type()));
  }
  for (std::size_t side = 0; side < 2; ++side) {
    const std::int64_t count = config_.inputs * config_.latent;
    EGT_TRY_ASSIGN(maps_[side], allocate(count, type()));
    EGT_TRY(device_.randomize({maps_[side].data(), type(), count},
                              {.seed = config_.seed,
                               .sequence = map_sequence + side,
                               .scale = unit_variance / std::sqrt(static_cast<float>(config_.latent))},
                              stream_));
  }
  return {};
}

MatrixView Encoder::activation(std::size_t layer, std::int64_t rows) const {
  return {activations_[layer].data(), type(), rows, layout_.layers()[layer].inputs};
}

Status Encoder::multiply(const MatrixView& a, bool a_transposed, const MatrixView& b, bool b_transposed,
                         const MatrixView& d, double alpha, double beta) {
  return device_.gemm({.precision = config_.precision,
                       .a = a,
                       .b = b,
                       .d = d,
                       .a_transposed = a_transposed,
                       .b_transposed = b_transposed,
                       .alpha = alpha,
                       .beta = beta},
                      stream_);
}

/// view = noise + latent vectors times the side's map. The rows of `view` must be contiguous.
Status Encoder::make_view(Side side, std::uint64_t sequence, std::int64_t first_pair,
                          const MatrixView& view) {
  const auto of_side = static_cast<std::size_t>(side);
  const auto first = static_cast<std::uint64_t>(first_pair);
  const MatrixView latent(latent_.data(), type(), view.rows, config_.latent);
  const MatrixView map(maps_[of_side].data(), type(), config_.inputs, config_.latent);
  EGT_TRY(device_.randomize({view.data, type(), view.count()},
                            {.seed = config_.seed,
                             .sequence = noise_purpose[of_side] | sequence,
                             .first = first * static_cast<std::uint64_t>(config_.inputs),
                             .scale = unit_variance * config_.noise},
                            stream_));
  EGT_TRY(device_.randomize({latent.data, type(), latent.count()},
                            {.seed = config_.seed,
                             .sequence = latent_purpose | sequence,
                             .first = first * static_cast<std::uint64_t>(config_.latent),
                             .scale = unit_variance},
                            stream_));
  return multiply(latent, false, map, true, view, 1.0, 1.0);
}

/// Encodes the augmented samples in activation 0, the input. The rows of `embeddings` are their number.
Status Encoder::forward(const mlp::ParameterSet& parameters, const MatrixView& embeddings,
                        const Flip* fault) {
  const std::vector<LinearLayer>& layers = layout_.layers();
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const bool is_last = l + 1 == layers.size();
    const MatrixView output = is_last ? embeddings : activation(l + 1, embeddings.rows);
    EGT_TRY(multiply(activation(l, embeddings.rows), false,
                     parameters.compute_weights(layers[l], config_.precision), true, output));
    if (is_last) break;
    EGT_TRY(device_.activate(output, parameters.bias(layers[l]), {}, stream_));
    if (l > 0 || fault == nullptr) continue;
    const auto bytes = static_cast<std::size_t>(output.count()) * size_of(output.type);
    EGT_TRY(device_.flip({static_cast<std::uint32_t*>(output.data), bytes / sizeof(std::uint32_t)}, *fault,
                         stream_));
  }
  return {};
}

/// InfoNCE in both directions: each query against all documents of the shard, and each document against all
/// queries. `embeddings` and `gradient`: the queries' rows, then the documents'.
Status Encoder::contrast(const MatrixView& embeddings, const MatrixView& gradient, float* losses) {
  const std::int64_t pairs = config_.pairs;
  const double sharpness = 1.0 / config_.temperature;
  const float weight = 1.0f / static_cast<float>(2 * pairs * config_.shards);
  MatrixView operand[2];
  for (std::size_t way = 0; way < 2; ++way) {
    const auto other = 1 - static_cast<std::int64_t>(way);
    const MatrixView similarity(similarities_[way].data(), ElementType::f32, pairs, pairs);
    EGT_TRY(multiply(embeddings.row_range((1 - other) * pairs, pairs), false,
                     embeddings.row_range(other * pairs, pairs), true, similarity, sharpness));
    EGT_TRY(device_.softmax_loss(
        {.logits = similarity, .gradient_scale = weight, .losses = losses + (1 - other) * pairs}, stream_));
    operand[way] = similarity;
    if (type() == ElementType::f32) continue;
    operand[way] = MatrixView(operands_[way].data(), type(), pairs, pairs);
    EGT_TRY(device_.cast({operand[way].data, type(), pairs * pairs},
                         {similarity.data, ElementType::f32, pairs * pairs}, stream_));
  }
  for (std::size_t side = 0; side < 2; ++side) {
    const auto other = 1 - static_cast<std::int64_t>(side);
    const MatrixView others = embeddings.row_range(other * pairs, pairs);
    const MatrixView own = gradient.row_range((1 - other) * pairs, pairs);
    EGT_TRY(multiply(operand[side], false, others, false, own, sharpness));
    EGT_TRY(multiply(operand[1 - side], true, others, false, own, sharpness, 1.0));
  }
  return {};
}

Status Encoder::backward(const mlp::ParameterSet& parameters, MatrixView gradient,
                         float* parameter_gradient) {
  const std::vector<LinearLayer>& layers = layout_.layers();
  for (std::size_t l = layers.size(); l-- > 0;) {
    const LinearLayer& layer = layers[l];
    const MatrixView input = activation(l, gradient.rows);
    EGT_TRY(multiply(gradient, true, input, false,
                     {parameter_gradient + layer.weights, ElementType::f32, layer.outputs, layer.inputs}));
    if (l == 0) break;
    const MatrixView input_gradient(gradients_[l % 2].data(), type(), gradient.rows, layer.inputs);
    EGT_TRY(multiply(gradient, false, parameters.compute_weights(layer, config_.precision), false,
                     input_gradient));
    const LinearLayer& below = layers[l - 1];
    EGT_TRY(device_.activation_gradient(
        input_gradient, input, {parameter_gradient + below.bias, ElementType::f32, below.outputs}, stream_));
    gradient = input_gradient;
  }
  return {};
}

Status Encoder::train_shard(const mlp::ParameterSet& parameters, std::int64_t step, std::int64_t shard,
                            float* gradient, float* losses, const Flip* fault) {
  const std::int64_t pairs = config_.pairs, first_pair = shard * pairs;
  const MatrixView views = activation(0, 2 * pairs);
  const MatrixView embeddings(embeddings_.data(), type(), 2 * pairs, config_.embedding);
  const MatrixView embeddings_gradient(embeddings_gradient_.data(), type(), 2 * pairs, config_.embedding);
  const auto sequence = static_cast<std::uint64_t>(step);
  EGT_TRY(make_view(Side::query, sequence, first_pair, views.row_range(0, pairs)));
  EGT_TRY(make_view(Side::document, sequence, first_pair, views.row_range(pairs, pairs)));
  EGT_TRY(forward(parameters, embeddings, fault));
  EGT_TRY(contrast(embeddings, embeddings_gradient, losses));
  return backward(parameters, embeddings_gradient, gradient);
}

Status Encoder::encode(const mlp::ParameterSet& parameters, Side side, std::int64_t first_pair,
                       MatrixView embeddings) {
  EGT_TRY(make_view(side, evaluation_sequence, first_pair, activation(0, embeddings.rows)));
  return forward(parameters, embeddings, nullptr);
}

}  // namespace retrieval
}  // namespace egt
