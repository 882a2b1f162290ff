#include "workload/ceilings/step_products.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "workload/bench/bench_operation.hpp"

namespace egt {
namespace {

using Part = StepGemm::Part;

}  // namespace

std::vector<StepGemm> products_of_step(const std::vector<std::int64_t>& neurons, std::int64_t batch) {
  std::vector<StepGemm> products;
  const std::size_t layers = neurons.size() - 1;
  for (std::size_t l = 0; l < layers; ++l)
    products.push_back({Part::forward, l, batch, neurons[l + 1], neurons[l]});
  for (std::size_t l = layers; l-- > 0;) {
    if (l > 0) products.push_back({Part::input_gradient, l, batch, neurons[l], neurons[l + 1]});
    products.push_back({Part::weight_gradient, l, neurons[l + 1], neurons[l], batch});
  }
  return products;
}

std::string describe(const StepGemm& product) {
  constexpr const char* names[] = {"forward", "input gradient", "weight gradient"};
  return fmt::format("{} {}, {}x{}x{}", names[static_cast<int>(product.part)], product.layer + 1, product.m,
                     product.n, product.k);
}

Result<StepGemms> StepGemms::make(Device& device, const std::vector<std::int64_t>& neurons,
                                  std::int64_t batch, Precision precision) {
  StepGemms made(device, precision);
  made.products_ = products_of_step(neurons, batch);
  EGT_TRY_ASSIGN(const auto stream, device.create_stream(StreamPriority::normal));
  const ElementType type = activation_type(precision);
  for (std::size_t l = 0; l < neurons.size(); ++l) {
    EGT_TRY(made.add(made.activations_, type, batch, neurons[l], *stream));
    EGT_TRY(made.add(made.differences_, type, batch, neurons[l], *stream));
    if (l == 0) continue;
    EGT_TRY(made.add(made.weights_, type, neurons[l], neurons[l - 1], *stream));
    EGT_TRY(made.add(made.gradients_, sum_type(precision), neurons[l], neurons[l - 1], *stream));
  }
  EGT_TRY(made.rectify(*stream));
  if (precision != Precision::fp8) return made;
  EGT_TRY(made.quantize(made.activations_, ElementType::f8, *stream));
  EGT_TRY(made.quantize(made.differences_, ElementType::f8_e5m2, *stream));
  EGT_TRY(made.quantize(made.weights_, ElementType::f8, *stream));
  return made;
}

Status StepGemms::add(std::vector<Matrix>& matrices, ElementType type, std::int64_t rows,
                      std::int64_t columns, Stream& stream) {
  EGT_TRY_ASSIGN(Buffer buffer, device_->allocate(static_cast<std::size_t>(rows * columns) * size_of(type)));
  EGT_TRY(device_->randomize({buffer.data(), type, rows * columns},
                             {.seed = 1, .sequence = matrices.size(), .first = 0, .scale = 0.1f}, stream));
  const MatrixView view{buffer.data(), type, rows, columns};
  matrices.push_back({.buffer = std::move(buffer),
                      .view = view,
                      .quantized = {},
                      .scale = {},
                      .copy = {},
                      .transposed = {}});
  return {};
}

Status StepGemms::quantize(std::vector<Matrix>& matrices, ElementType type, Stream& stream) {
  for (Matrix& matrix : matrices) {
    const MatrixView& x = matrix.view;
    const auto bytes = static_cast<std::size_t>(x.count());
    EGT_TRY_ASSIGN(matrix.quantized, device_->allocate(2 * bytes));
    EGT_TRY_ASSIGN(matrix.scale, device_->allocate(sizeof(float)));
    matrix.copy = {matrix.quantized.data(), type, x.rows, x.columns};
    matrix.transposed = {matrix.quantized.as<char>() + bytes, type, x.columns, x.rows};
    EGT_TRY(device_->quantize(
        {.x = x, .copy = matrix.copy, .transposed = matrix.transposed, .scale = matrix.scale.as<float>()},
        stream));
  }
  return device_->synchronize(stream, ready_seconds);
}

Status StepGemms::rectify(Stream& stream) {
  std::int64_t widest = 0;
  for (const Matrix& matrix : activations_) widest = std::max(widest, matrix.view.columns);
  EGT_TRY_ASSIGN(const Buffer bias, device_->allocate(static_cast<std::size_t>(widest) * sizeof(float)));
  EGT_TRY(device_->set_zero(bias.data(), bias.bytes(), stream));
  for (std::size_t l = 1; l < activations_.size(); ++l)
    EGT_TRY(device_->activate(activations_[l].view, bias.as<float>(), {}, stream));
  return device_->synchronize(stream, ready_seconds);
}

/// Forward GEMMs write elsewhere, so that the activations stay ReLU outputs. In fp8 every GEMM is A B^T.
Status StepGemms::enqueue(std::size_t index, Stream& stream) const {
  const auto& [part, l, m, n, k] = products_[index];
  const bool is_forward = part == Part::forward, is_fp8 = precision_ == Precision::fp8;
  const bool of_weights = part == Part::weight_gradient;
  const Matrix &a = is_forward ? activations_[l] : differences_[l + 1],
               &b = of_weights ? activations_[l] : weights_[l],
               &d = of_weights   ? gradients_[l]
                    : is_forward ? differences_[l + 1]
                                 : differences_[l];
  if (!is_fp8)
    return device_->gemm({.precision = precision_,
                          .a = a.view,
                          .b = b.view,
                          .d = d.view,
                          .a_transposed = of_weights,
                          .b_transposed = is_forward},
                         stream);
  return device_->gemm({.precision = precision_,
                        .a = of_weights ? a.transposed : a.copy,
                        .b = is_forward ? b.copy : b.transposed,
                        .d = d.view,
                        .b_transposed = true,
                        .a_scale = a.scale.as<float>(),
                        .b_scale = b.scale.as<float>()},
                       stream);
}

Status StepGemms::enqueue_all(Stream& stream) const {
  for (std::size_t i = 0; i < products_.size(); ++i) EGT_TRY(enqueue(i, stream));
  return {};
}

}  // namespace egt
