#include "model/pass_gemms.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace egt::mlp {

namespace {

std::size_t bytes_of(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);  // one byte per element
}

}  // namespace

Status check_fp8_shapes(const std::vector<std::int64_t>& neurons, std::int64_t samples) {
  for (const std::int64_t n : neurons)
    if (n % fp8_multiple != 0)
      return {StatusCode::invalid_argument,
              fmt::format("fp8 needs layers of a multiple of {} neurons, and one has {}", fp8_multiple, n)};
  if (samples % fp8_multiple == 0) return {};
  return {StatusCode::invalid_argument,
          fmt::format("fp8 needs a multiple of {} samples per rank, not {}", fp8_multiple, samples)};
}

Status PassGemms::allocate(const MlpConfig& config) {
  if (samples_unit(config.precisions) == 1) return {};  // no fp8
  const std::int64_t samples = std::max(config.batch.local, config.max_samples);
  const std::int64_t largest = *std::max_element(config.neurons.begin(), config.neurons.end());
  std::size_t largest_weights = 0;
  for (const LinearLayer& layer : layout_.layers()) {
    const std::size_t weights = bytes_of(layer.outputs, layer.inputs);
    largest_weights = std::max(largest_weights, weights);
    EGT_TRY_ASSIGN(Buffer input, device_.allocate(bytes_of(layer.inputs, samples)));
    inputs_.push_back(std::move(input));
    EGT_TRY_ASSIGN(Buffer transposed, device_.allocate(weights_.empty() ? 0 : weights));
    weights_.push_back(std::move(transposed));
  }
  EGT_TRY_ASSIGN(copy_, device_.allocate(bytes_of(largest, samples)));
  EGT_TRY_ASSIGN(weights_copy_, device_.allocate(largest_weights));
  for (Buffer& gradient : gradients_) {
    EGT_TRY_ASSIGN(gradient, device_.allocate(bytes_of(largest, samples)));
  }
  EGT_TRY_ASSIGN(scales_, device_.allocate(3 * layout_.layers().size() * Gemm::scale_alignment));
  return {};
}

float* PassGemms::scale(Scaled what, std::size_t layer) const {
  const std::size_t index =
      3 * (what == Scaled::gradient ? layer % 2 : layer) + static_cast<std::size_t>(what);
  return scales_.as<float>() + index * (Gemm::scale_alignment / sizeof(float));
}

MatrixView PassGemms::transposed_input(std::size_t layer, std::int64_t samples) const {
  return {inputs_[layer].data(), ElementType::f8, layout_.layers()[layer].inputs, samples};
}

MatrixView PassGemms::transposed_gradient(std::size_t layer, std::int64_t samples) const {
  return {gradients_[layer % 2].data(), ElementType::f8_e5m2, layout_.layers()[layer].outputs, samples};
}

Result<Gemm> PassGemms::forward(std::size_t layer, Precision precision, const ParameterSet& parameters,
                                MatrixView input, MatrixView output) {
  const LinearLayer& linear = layout_.layers()[layer];
  Gemm product{.precision = precision, .a = input, .b = {}, .d = output, .b_transposed = true};
  if (precision != Precision::fp8) {
    product.b = parameters.compute_weights(linear, precision);
    return product;
  }
  product.a = {copy_.data(), ElementType::f8, input.rows, input.columns};
  product.b = {weights_copy_.data(), ElementType::f8, linear.outputs, linear.inputs};
  product.a_scale = scale(Scaled::input, layer);
  product.b_scale = scale(Scaled::weights, layer);
  EGT_TRY(device_.quantize({.x = input,
                            .copy = product.a,
                            .transposed = transposed_input(layer, input.rows),
                            .scale = scale(Scaled::input, layer)},
                           stream_));
  EGT_TRY(device_.quantize(
      {.x = parameters.master_weights(linear),
       .copy = product.b,
       .transposed = {weights_[layer].data(), ElementType::f8, linear.inputs, linear.outputs},
       .scale = scale(Scaled::weights, layer)},
      stream_));
  return product;
}

Status PassGemms::take_gradient(std::size_t layer, Precision precision, MatrixView gradient) {
  if (precision != Precision::fp8) return {};
  void* const copy = layer > 0 ? copy_.data() : nullptr;  // the input has no gradient
  return device_.quantize({.x = gradient,
                           .copy = {copy, ElementType::f8_e5m2, gradient.rows, gradient.columns},
                           .transposed = transposed_gradient(layer, gradient.rows),
                           .scale = scale(Scaled::gradient, layer)},
                          stream_);
}

Gemm PassGemms::input_gradient(std::size_t layer, Precision precision, const ParameterSet& parameters,
                               MatrixView gradient, MatrixView input_gradient) const {
  const LinearLayer& linear = layout_.layers()[layer];
  if (precision != Precision::fp8)
    return {.precision = precision,
            .a = gradient,
            .b = parameters.compute_weights(linear, precision),
            .d = input_gradient};
  return {.precision = precision,
          .a = {copy_.data(), ElementType::f8_e5m2, gradient.rows, gradient.columns},
          .b = {weights_[layer].data(), ElementType::f8, linear.inputs, linear.outputs},
          .d = input_gradient,
          .b_transposed = true,
          .a_scale = scale(Scaled::gradient, layer),
          .b_scale = scale(Scaled::weights, layer)};
}

Gemm PassGemms::weight_gradient(const GradientPiece& piece, Precision precision, MatrixView gradient,
                                MatrixView input, MatrixView d) const {
  const auto layer = static_cast<std::size_t>(piece.layer);
  if (precision != Precision::fp8)
    return {.precision = precision,
            .a = gradient.column_range(piece.first_row, piece.rows),
            .b = input,
            .d = d,
            .a_transposed = true};
  return {.precision = precision,
          .a = transposed_gradient(layer, gradient.rows).row_range(piece.first_row, piece.rows),
          .b = transposed_input(layer, input.rows),
          .d = d,
          .b_transposed = true,
          .a_scale = scale(Scaled::gradient, layer),
          .b_scale = scale(Scaled::input, layer)};
}

}  // namespace egt::mlp
