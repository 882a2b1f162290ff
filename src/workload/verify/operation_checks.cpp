#include "workload/verify/operation_checks.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "egt/core/math/math.hpp"
#include "egt/core/math/philox.hpp"

namespace egt {
namespace {

// Sequences of the generator. Those of training are below 2^62.
constexpr std::uint64_t first_sequence = (std::uint64_t{1} << 62) + 0x100;
enum : std::uint64_t { of_samples, of_first, of_bias, of_second, of_gradient, of_weights };

constexpr float bias_scale = 0.25f;
// For fp32 sums of several thousand terms. Rounding reaches about 1e-6 of the max element, and relevant
// errors are far above this.
constexpr double encoding_tolerance = 1e-4, product_tolerance = 1e-4;
constexpr double step_tolerance = 1e-5;  // as in the device contract tests
constexpr std::int64_t audited_elements = 256;

constexpr math::Sgd sgd{.rate = 0.1f, .momentum = 0.9f, .gradient_scale = 1.0f};
constexpr math::Adam adam{.rate = 0.01f,
                          .beta1 = 0.9f,
                          .beta2 = 0.99f,
                          .epsilon = 1e-6f,
                          .correction1 = 0.1f,
                          .correction2 = 0.01f,
                          .gradient_scale = 1.0f};

float random_element(std::uint64_t seed, std::uint64_t purpose, float scale, std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index);
  return scale * signed_unit(philox4x32_10(i / 4, first_sequence + purpose, seed).w[i % 4]);
}

bool is_near(double actual, double expected, double allowed) {
  return std::fabs(actual - expected) <= allowed;  // false for NaN
}

WordsView words_of(const MatrixView& view) {
  return {static_cast<std::uint32_t*>(view.data), static_cast<std::uint64_t>(view.count())};
}

std::size_t bytes_of(const MatrixView& view) {
  return static_cast<std::size_t>(view.count()) * sizeof(float);
}

void note(std::optional<WrongAnswer>& wrong, std::string where, double expected, double actual) {
  if (wrong)
    ++wrong->count;
  else
    wrong = WrongAnswer{.where = std::move(where), .expected = expected, .actual = actual};
}

}  // namespace

// Evaluation and similarity

Result<EncodingCheck::Tensor> EncodingCheck::make(std::int64_t rows, std::int64_t columns) const {
  Tensor tensor;
  EGT_TRY_ASSIGN(tensor.memory, device_.allocate(static_cast<std::size_t>(rows * columns) * sizeof(float)));
  tensor.view = MatrixView(tensor.memory.data(), ElementType::f32, rows, columns);
  return tensor;
}

Status EncodingCheck::randomize(const Tensor& tensor, std::uint64_t purpose, float scale,
                                Stream& stream) const {
  return device_.randomize({tensor.view.data, ElementType::f32, tensor.view.count()},
                           {.seed = seed_, .sequence = first_sequence + purpose, .scale = scale}, stream);
}

float EncodingCheck::random(std::uint64_t purpose, float scale, std::int64_t index) const {
  return random_element(seed_, purpose, scale, index);
}

/// Range of the random weights for which a layer's outputs are as large as its inputs.
float EncodingCheck::weight_scale(std::int64_t inputs) const {
  return std::sqrt(3.0f / static_cast<float>(inputs));
}

Status EncodingCheck::prepare(Stream& stream) {
  const ReadinessOptions& o = options_;
  EGT_TRY_ASSIGN(samples_, make(o.samples, o.inputs));
  EGT_TRY_ASSIGN(first_, make(o.hidden, o.inputs));
  EGT_TRY_ASSIGN(bias_, make(1, o.hidden));
  EGT_TRY_ASSIGN(second_, make(o.outputs, o.hidden));
  EGT_TRY_ASSIGN(hidden_, make(o.samples, o.hidden));
  EGT_TRY_ASSIGN(encodings_, make(o.samples, o.outputs));
  EGT_TRY_ASSIGN(products_, make(o.samples, o.samples));
  EGT_TRY_ASSIGN(pinned_encodings_, device_.allocate_pinned(bytes_of(encodings_.view)));
  EGT_TRY_ASSIGN(pinned_products_, device_.allocate_pinned(bytes_of(products_.view)));
  EGT_TRY(randomize(samples_, of_samples, 1.0f, stream));
  EGT_TRY(randomize(first_, of_first, weight_scale(o.inputs), stream));
  EGT_TRY(randomize(bias_, of_bias, bias_scale, stream));
  EGT_TRY(randomize(second_, of_second, weight_scale(o.hidden), stream));
  for (const std::int64_t sample : {std::int64_t{0}, o.samples - 1})
    expected_.push_back(expected_encoding(sample));
  return {};
}

/// Computed by the host alone, in fp64.
std::vector<double> EncodingCheck::expected_encoding(std::int64_t sample) const {
  const ReadinessOptions& o = options_;
  std::vector<double> inputs, hidden, encoding;
  for (std::int64_t i = 0; i < o.inputs; ++i)
    inputs.push_back(random(of_samples, 1.0f, sample * o.inputs + i));
  for (std::int64_t h = 0; h < o.hidden; ++h) {
    double sum = random(of_bias, bias_scale, h);
    for (std::int64_t i = 0; i < o.inputs; ++i)
      sum += random(of_first, weight_scale(o.inputs), h * o.inputs + i) * inputs[static_cast<std::size_t>(i)];
    hidden.push_back(std::max(sum, 0.0));
  }
  for (std::int64_t out = 0; out < o.outputs; ++out) {
    double sum = 0;
    for (std::int64_t h = 0; h < o.hidden; ++h)
      sum +=
          random(of_second, weight_scale(o.hidden), out * o.hidden + h) * hidden[static_cast<std::size_t>(h)];
    encoding.push_back(sum);
  }
  return encoding;
}

Status EncodingCheck::enqueue(Digest* digests, Stream& stream) {
  for (const Tensor* result : {&hidden_, &encodings_, &products_})
    EGT_TRY(device_.set_zero(result->view.data, bytes_of(result->view), stream));
  EGT_TRY(
      device_.gemm({.a = samples_.view, .b = first_.view, .d = hidden_.view, .b_transposed = true}, stream));
  EGT_TRY(device_.activate(hidden_.view, bias_.memory.as<float>(), {}, stream));
  EGT_TRY(device_.gemm({.a = hidden_.view, .b = second_.view, .d = encodings_.view, .b_transposed = true},
                       stream));
  EGT_TRY(device_.digest(words_of(encodings_.view), digests, stream));
  EGT_TRY(device_.gemm(
      {.a = encodings_.view, .b = encodings_.view, .d = products_.view, .b_transposed = true}, stream));
  EGT_TRY(device_.digest(words_of(products_.view), digests + 1, stream));
  EGT_TRY(device_.copy(pinned_encodings_.data(), encodings_.view.data, bytes_of(encodings_.view), stream));
  return device_.copy(pinned_products_.data(), products_.view.data, bytes_of(products_.view), stream);
}

std::optional<WrongAnswer> EncodingCheck::wrong_encoding() const {
  std::optional<WrongAnswer> wrong;
  const float* row = pinned_encodings_.as<float>();
  for (const std::vector<double>& expected : expected_) {
    double largest = 0;
    for (const double element : expected) largest = std::max(largest, std::fabs(element));
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (!is_near(row[i], expected[i], encoding_tolerance * largest))
        note(wrong,
             fmt::format("the encoding of {} sample, element {}",
                         row == pinned_encodings_.as<float>() ? "the first" : "the last", i),
             expected[i], row[i]);
    row += (options_.samples - 1) * options_.outputs;
  }
  return wrong;
}

std::optional<WrongAnswer> EncodingCheck::wrong_similarity() const {
  const auto match = wrong_match();
  return match ? match : wrong_product();
}

std::optional<WrongAnswer> EncodingCheck::wrong_match() const {
  std::optional<WrongAnswer> wrong;
  const std::int64_t n = options_.samples;
  const float* const products = pinned_products_.as<float>();
  std::vector<float> lengths;
  for (std::int64_t i = 0; i < n; ++i) lengths.push_back(std::sqrt(products[i * n + i]));
  for (std::int64_t i = 0; i < n; ++i) {
    const float* const row = products + i * n;
    const float own = lengths[static_cast<std::size_t>(i)];
    std::int64_t best = std::isfinite(own) && own > 0 ? i : -1;
    float nearest = own;  // the cosine, times the length of sample i
    for (std::int64_t j = 0; j < n && best >= 0; ++j) {
      const float near = row[j] / lengths[static_cast<std::size_t>(j)];
      if (j == i || near < nearest) continue;
      best = std::isfinite(near) ? j : -1;
      nearest = near;
    }
    if (best != i)
      note(wrong, fmt::format("the best match of sample {}", i), static_cast<double>(i),
           static_cast<double>(best));
  }
  return wrong;
}

/// Compares some dot products with the host's own, computed from the device's encodings.
std::optional<WrongAnswer> EncodingCheck::wrong_product() const {
  std::optional<WrongAnswer> wrong;
  const std::int64_t n = options_.samples, length = options_.outputs;
  const float *const products = pinned_products_.as<float>(), *const rows = pinned_encodings_.as<float>();
  for (std::int64_t k = 0; k < audited_elements; ++k) {
    const std::int64_t i = k * 7919 % n, j = (k * 104729 + 1) % n;
    double sum = 0, magnitude = 0;
    for (std::int64_t c = 0; c < length; ++c) {
      const double term = static_cast<double>(rows[i * length + c]) * rows[j * length + c];
      sum += term;
      magnitude += std::fabs(term);
    }
    if (!is_near(products[i * n + j], sum, product_tolerance * magnitude))
      note(wrong, fmt::format("the dot product of encodings {} and {}", i, j), sum, products[i * n + j]);
  }
  return wrong;
}

double EncodingCheck::flops() const {
  const ReadinessOptions& o = options_;
  const auto sum = o.inputs * o.hidden + o.hidden * o.outputs + o.outputs * o.samples;
  return 2.0 * static_cast<double>(o.samples) * static_cast<double>(sum);
}

std::uint64_t EncodingCheck::outputs() const {
  return static_cast<std::uint64_t>(options_.samples * (options_.outputs + options_.samples));
}

// Optimizers

Status OptimizerCheck::prepare() {
  EGT_TRY_ASSIGN(memory_, device_.allocate(6 * bytes()));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(4 * bytes()));
  float *const gradient = pinned_.as<float>(), *const weights = gradient + parameters_;
  for (std::int64_t i = 0; i < parameters_; ++i) {
    gradient[i] = random_element(seed_, of_gradient, 1.0f, i);
    weights[i] = random_element(seed_, of_weights, 1.0f, i);
    float by_sgd = weights[i], velocity = 0, by_adam = weights[i], first = 0, second = 0;
    sgd(by_sgd, velocity, gradient[i]);
    adam(by_adam, first, second, gradient[i]);
    expected_[0].push_back(by_sgd);
    expected_[1].push_back(by_adam);
  }
  return {};
}

Status OptimizerCheck::enqueue(Digest* digests, Stream& stream) {
  float* const gradient = memory_.as<float>();
  float *const by_sgd = gradient + parameters_, *const by_adam = by_sgd + parameters_;
  float* const states = by_adam + parameters_;
  const float *const known = pinned_.as<float>(), *const weights = known + parameters_;
  float* const results = pinned_.as<float>() + 2 * parameters_;
  EGT_TRY(device_.copy(gradient, known, bytes(), stream));
  for (float* const one : {by_sgd, by_adam}) EGT_TRY(device_.copy(one, weights, bytes(), stream));
  EGT_TRY(device_.set_zero(states, 3 * bytes(), stream));
  const auto range = [&](float* ours) {
    return ParameterRange{.weights = ours,
                          .gradient = {gradient, ElementType::f32, parameters_},
                          .compute_copy = {},
                          .count = parameters_};
  };
  EGT_TRY(device_.sgd_step(range(by_sgd), states, sgd, stream));
  EGT_TRY(device_.adam_step(range(by_adam), states + parameters_, states + 2 * parameters_, adam, stream));
  const auto count = static_cast<std::uint64_t>(parameters_);
  EGT_TRY(device_.digest({reinterpret_cast<std::uint32_t*>(by_sgd), count}, digests, stream));
  EGT_TRY(device_.digest({reinterpret_cast<std::uint32_t*>(by_adam), count}, digests + 1, stream));
  return device_.copy(results, by_sgd, 2 * bytes(), stream);
}

std::optional<WrongAnswer> OptimizerCheck::wrong_step(std::size_t answer) const {
  std::optional<WrongAnswer> wrong;
  const std::vector<float>& expected = expected_[answer];
  const float* const results = pinned_.as<float>() + (2 + static_cast<std::int64_t>(answer)) * parameters_;
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!is_near(results[i], expected[i], step_tolerance * (1 + std::fabs(expected[i]))))
      note(wrong, fmt::format("weight {} after a step of {}", i, answer == 0 ? "SGD" : "Adam"), expected[i],
           results[i]);
  return wrong;
}

}  // namespace egt
