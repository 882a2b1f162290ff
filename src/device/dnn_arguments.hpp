#pragma once

#include <initializer_list>
#include <string_view>

#include "egt/core/status.hpp"
#include "egt/device/dnn.hpp"

/// Preconditions on shapes and operands that every adapter of Dnn relies on, as arguments.hpp for Device.
/// invalid_argument: an invalid shape. unsupported: a precision or type that the port lacks. An adapter
/// checks its library's own limits.
namespace egt {

/// Upper limit of sides, channels, kernels, strides and padding.
constexpr std::int64_t max_side = std::int64_t{1} << 30;

Status check_shape(const ConvolutionShape& shape);
Status check_shape(const BatchNormShape& shape);
/// Also checks that the padding is smaller than the kernel, so that every window contains a pixel.
Status check_shape(const PoolingShape& shape);

/// An argument that points to device memory.
struct DnnOperand {
  std::string_view name;
  const void* data;
};
/// Checks that no operand is null. operation: "convolution".
Status check_operands(std::string_view operation, std::initializer_list<DnnOperand> operands);
/// Checks that the batch has more than one pixel per channel, which an unbiased variance needs, and that
/// `state` is complete.
Status check_training(const BatchNormShape& shape, const BatchNormState& state);
/// Checks the members of `state` that inference uses.
Status check_inference(const BatchNormState& state);
/// Checks the members of `state` that a backward pass uses.
Status check_backward(const BatchNormState& state);

/// Example: "bf16 256 x 56 x 56 x 64 to 128, window 3, stride 2, padding 1".
std::string to_text(const ConvolutionShape& shape);
/// Example: "256 x 56 x 56 x 64".
std::string to_text(const ImageShape& shape);

}  // namespace egt
