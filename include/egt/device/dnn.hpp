#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "egt/device/device.hpp"
#include "egt/device/handles.hpp"

namespace egt {

/// Images in NHWC order: element (n, y, x, c) at ((n * height + y) * width + x) * channels + c. As a matrix
/// for Device's operations it has one row per pixel and one column per channel.
struct ImageShape {
  std::int64_t images = 0, height = 0, width = 0, channels = 0;

  std::int64_t rows() const { return images * height * width; }
  std::int64_t count() const { return rows() * channels; }
  bool operator==(const ImageShape&) const = default;
};

/// Number of positions of a window of `kernel` along a side of `length`; 0 if it does not fit.
constexpr std::int64_t windows_along(std::int64_t length, std::int64_t kernel, std::int64_t stride,
                                     std::int64_t padding) {
  const std::int64_t room = length + 2 * padding - kernel;
  return room < 0 ? 0 : room / stride + 1;
}

/// A square window that slides over images with equal padding on all sides.
struct Window {
  std::int64_t kernel = 1, stride = 1, padding = 0;

  ImageShape over(const ImageShape& x, std::int64_t channels) const {
    return {x.images, windows_along(x.height, kernel, stride, padding),
            windows_along(x.width, kernel, stride, padding), channels};
  }
};

/// y(n, oy, ox, k) = the sum over ky, kx, c of x(n, oy * stride + ky - padding, ox * stride + kx - padding,
/// c) * filter(k, ky, kx, c). Outside the image x is 0. There is no bias: Device::activate adds one.
struct ConvolutionShape {
  Precision precision =
      Precision::fp32;  ///< fp32, tf32 or bf16; all data but filter gradients have its storage type
  ImageShape x;
  std::int64_t outputs = 0;  ///< channels of y
  Window window;

  ImageShape y() const { return window.over(x, outputs); }
  /// Elements of the filter: outputs x kernel x kernel x inputs.
  std::int64_t filter_count() const { return outputs * window.kernel * window.kernel * x.channels; }
  /// Floating-point operations of one of the three passes.
  double flops() const { return 2.0 * static_cast<double>(y().rows()) * static_cast<double>(filter_count()); }
};

/// The three passes of a convolution. Memory is device memory of the shape's size and must not overlap.
class Convolution {
 public:
  virtual ~Convolution() = default;
  /// y = x * filter.
  virtual Status forward(const void* x, const void* filter, void* y, Stream& stream) = 0;
  /// x_gradient from y_gradient.
  virtual Status backward_data(const void* y_gradient, const void* filter, void* x_gradient,
                               Stream& stream) = 0;
  /// filter_gradient, fp32, from x and y_gradient.
  virtual Status backward_filter(const void* x, const void* y_gradient, float* filter_gradient,
                                 Stream& stream) = 0;
};

/// Batch normalization (Ioffe and Szegedy, 2015): (x - mean) / sqrt(variance + epsilon) * scale + shift per
/// channel. Mean and biased variance are over all images and pixels.
struct BatchNormShape {
  ElementType type = ElementType::f32;  ///< of x, y and their gradients: f32 or bf16
  ImageShape x;
  bool relu = false;  ///< y = max(0, result)

  static constexpr double epsilon = 1e-5;
  /// Weight of a batch in the running statistics, as PyTorch's default. The running variance is unbiased.
  static constexpr double momentum = 0.1;
};

/// fp32 in device memory, one per channel.
struct BatchNormState {
  const float* scale = nullptr;
  const float* shift = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
  float* saved_mean = nullptr;       ///< of the batch, from forward to backward
  float* saved_deviation = nullptr;  ///< from forward to backward; its form is private to the adapter
};

class BatchNorm {
 public:
  virtual ~BatchNorm() = default;
  /// Uses the batch's statistics, stores them in `saved_*` and updates `running_*`.
  virtual Status forward_training(const void* x, const BatchNormState& state, void* y, Stream& stream) = 0;
  /// Uses the running statistics, not `saved_*`.
  virtual Status forward_inference(const void* x, const BatchNormState& state, void* y, Stream& stream) = 0;
  /// Backward pass of forward_training; x_gradient may alias y_gradient.
  virtual Status backward(const void* x, const void* y_gradient, const BatchNormState& state,
                          float* scale_gradient, float* shift_gradient, void* x_gradient, Stream& stream) = 0;
};

enum class PoolingKind { maximum, average };

struct PoolingShape {
  PoolingKind kind = PoolingKind::maximum;
  ElementType type = ElementType::f32;  ///< f32 or bf16
  ImageShape x;
  Window window;  ///< averages exclude the padding

  ImageShape y() const { return window.over(x, x.channels); }
};

/// Pools each channel separately. If several elements of a window are its max, always the same one of them
/// gets the gradient.
class Pooling {
 public:
  virtual ~Pooling() = default;
  virtual Status forward(const void* x, void* y, Stream& stream) = 0;
  /// Runs after the forward pass of this x and y, in the same stream.
  virtual Status backward(const void* x, const void* y, const void* y_gradient, void* x_gradient,
                          Stream& stream) = 0;
};

/// The port to a library of deep-learning primitives on a device: cuDNN, oneDNN. An operation made by `make`
/// chooses its algorithms and allocates at creation, must not outlive the device and the library, and is used
/// by one stream at a time. Its calls enqueue and return, as Device's do. They give the same bits for the
/// same input on one device model. Errors: unsupported, with the reason, if the library lacks the precision
/// or shape; invalid_argument if the shape is invalid.
class Dnn {
 public:
  virtual ~Dnn() = default;
  /// "oneDNN 2.6.3". A result's bits may depend on it.
  virtual const std::string& library() const = 0;
  virtual Support supports(Precision precision) const = 0;
  virtual Result<std::unique_ptr<Convolution>> make(const ConvolutionShape& shape) = 0;
  virtual Result<std::unique_ptr<BatchNorm>> make(const BatchNormShape& shape) = 0;
  virtual Result<std::unique_ptr<Pooling>> make(const PoolingShape& shape) = 0;
};

}  // namespace egt
