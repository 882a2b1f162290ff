#include "device/dnn_arguments.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace egt {
namespace {

Status wrong(std::string_view operation, std::string_view what) {
  return Status(StatusCode::invalid_argument, fmt::format("{}: {}", operation, what));
}

/// Sizes must be above 0, and element and byte counts must fit 63 bits.
Status check_images(std::string_view operation, const ImageShape& x, std::string_view name) {
  constexpr double max_elements = 1e17;
  double elements = 1;
  for (const std::int64_t side : {x.images, x.height, x.width, x.channels}) {
    if (side < 1 || side > max_side)
      return wrong(operation, fmt::format("{} cannot be {}", name, to_text(x)));
    elements *= static_cast<double>(side);
  }
  if (elements <= max_elements) return {};
  return wrong(operation, fmt::format("{} of {} has too many elements", name, to_text(x)));
}

Status check_window(std::string_view operation, const Window& window, const ImageShape& x) {
  const auto [kernel, stride, padding] = window;
  if (kernel < 1 || kernel > max_side || stride < 1 || stride > max_side || padding < 0 || padding > max_side)
    return wrong(operation, fmt::format("a window cannot have kernel {}, stride {} and padding {}", kernel,
                                        stride, padding));
  if (kernel <= x.height + 2 * padding && kernel <= x.width + 2 * padding) return {};
  return wrong(operation, fmt::format("a window of {} does not fit into images of {} x {} padded by {}",
                                      kernel, x.height, x.width, padding));
}

Status check_type(std::string_view operation, ElementType type) {
  if (type == ElementType::f32 || type == ElementType::bf16) return {};
  return Status(StatusCode::unsupported,
                fmt::format("{}: its images are f32 or bf16, not {}", operation, to_string(type)));
}

}  // namespace

std::string to_text(const ImageShape& shape) {
  return fmt::format("{} x {} x {} x {}", shape.images, shape.height, shape.width, shape.channels);
}

std::string to_text(const ConvolutionShape& shape) {
  return fmt::format("{} {} to {}, window {}, stride {}, padding {}", to_string(shape.precision),
                     to_text(shape.x), shape.outputs, shape.window.kernel, shape.window.stride,
                     shape.window.padding);
}

Status check_shape(const ConvolutionShape& shape) {
  constexpr std::string_view operation = "convolution";
  EGT_TRY(check_images(operation, shape.x, "x"));
  EGT_TRY(check_window(operation, shape.window, shape.x));
  EGT_TRY(check_images(operation, shape.y(), "y"));
  // A filter is checked as images: one per output, with the window's height and width.
  EGT_TRY(check_images(operation, {shape.outputs, shape.window.kernel, shape.window.kernel, shape.x.channels},
                       "its filter"));
  const bool is_known = shape.precision == Precision::fp32 || shape.precision == Precision::tf32 ||
                        shape.precision == Precision::bf16;
  if (is_known) return {};
  return Status(
      StatusCode::unsupported,
      fmt::format("convolution: it computes in fp32, tf32 or bf16, not in {}", to_string(shape.precision)));
}

Status check_shape(const BatchNormShape& shape) {
  EGT_TRY(check_images("batch normalization", shape.x, "x"));
  return check_type("batch normalization", shape.type);
}

Status check_shape(const PoolingShape& shape) {
  constexpr std::string_view operation = "pooling";
  EGT_TRY(check_images(operation, shape.x, "x"));
  EGT_TRY(check_window(operation, shape.window, shape.x));
  if (shape.window.padding >= shape.window.kernel)
    return wrong(operation, fmt::format("with padding {} a window of {} would hold no pixel",
                                        shape.window.padding, shape.window.kernel));
  return check_type(operation, shape.type);
}

Status check_operands(std::string_view operation, std::initializer_list<DnnOperand> operands) {
  for (const DnnOperand& operand : operands)
    if (operand.data == nullptr) return wrong(operation, fmt::format("{} has no memory", operand.name));
  return {};
}

Status check_training(const BatchNormShape& shape, const BatchNormState& state) {
  EGT_TRY(check_inference(state));
  EGT_TRY(check_backward(state));
  if (shape.x.rows() > 1) return {};
  return wrong("batch normalization", "a batch of one pixel a channel has no variance to train with");
}

Status check_inference(const BatchNormState& state) {
  return check_operands("batch normalization", {{"scale", state.scale},
                                                {"shift", state.shift},
                                                {"running_mean", state.running_mean},
                                                {"running_variance", state.running_variance}});
}

Status check_backward(const BatchNormState& state) {
  return check_operands("batch normalization", {{"scale", state.scale},
                                                {"shift", state.shift},
                                                {"saved_mean", state.saved_mean},
                                                {"saved_deviation", state.saved_deviation}});
}

}  // namespace egt
