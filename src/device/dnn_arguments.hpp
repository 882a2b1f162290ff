#pragma once

#include <initializer_list>
#include <string_view>

#include "egt/core/status.hpp"
#include "egt/device/dnn.hpp"

/// What every adapter of the port Dnn takes for granted of shapes and operands, as arguments.hpp for Device.
/// invalid_argument: a shape that is none; unsupported: a precision or type that the port has not. What only
/// one library cannot do is its adapter's own to say.
namespace egt {

/// No side or number of channels, kernel, stride or padding is larger.
constexpr std::int64_t most_side = std::int64_t{1} << 30;

Status check_shape(const ConvolutionShape& shape);
Status check_shape(const BatchNormShape& shape);
/// Also that every window holds a pixel of the image: the padding is less than the kernel.
Status check_shape(const PoolingShape& shape);

/// An argument that points to device memory.
struct DnnOperand {
  std::string_view name;
  const void* data;
};
/// That each has memory. operation: "convolution".
Status check_operands(std::string_view operation, std::initializer_list<DnnOperand> operands);
/// That the batch has more than one pixel a channel, which an unbiased variance needs, and that all of
/// `state` is there.
Status check_training(const BatchNormShape& shape, const BatchNormState& state);
/// That what inference uses of `state` is there.
Status check_inference(const BatchNormState& state);
/// That what a backward pass uses of `state` is there.
Status check_backward(const BatchNormState& state);

/// "bf16 256 x 56 x 56 x 64 to 128, window 3, stride 2, padding 1"
std::string to_text(const ConvolutionShape& shape);
/// "256 x 56 x 56 x 64"
std::string to_text(const ImageShape& shape);

}  // namespace egt
