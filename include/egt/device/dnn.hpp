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
/// it has a row a pixel and a column a channel, as Device's operations take it.
struct ImageShape {
  std::int64_t images = 0, height = 0, width = 0, channels = 0;

  std::int64_t rows() const { return images * height * width; }
  std::int64_t count() const { return rows() * channels; }
  bool operator==(const ImageShape&) const = default;
};

/// Length of what a window of `kernel` makes of a side of length `length`: 0 where it fits nowhere.
constexpr std::int64_t windows_along(std::int64_t length, std::int64_t kernel, std::int64_t stride,
                                     std::int64_t padding) {
  const std::int64_t room = length + 2 * padding - kernel;
  return room < 0 ? 0 : room / stride + 1;
}

/// A square window that moves over images whose borders are padded, on all sides alike.
struct Window {
  std::int64_t kernel = 1, stride = 1, padding = 0;

  ImageShape over(const ImageShape& x, std::int64_t channels) const {
    return {x.images, windows_along(x.height, kernel, stride, padding),
            windows_along(x.width, kernel, stride, padding), channels};
  }
};

/// y(n, oy, ox, k) = the sum over ky, kx, c of x(n, oy * stride + ky - padding, ox * stride + kx - padding,
/// c)
/// * filter(k, ky, kx, c); outside of the image x is 0. No bias: Device::activate adds one.
struct ConvolutionShape {
  Precision precision = Precision::fp32;  ///< fp32, tf32 or bf16; all but filter gradients lie as its storage
  ImageShape x;
  std::int64_t outputs = 0;  ///< channels of y
  Window window;

  ImageShape y() const { return window.over(x, outputs); }
  /// Elements of the filter: outputs x kernel x kernel x inputs.
  std::int64_t filter_count() const { return outputs * window.kernel * window.kernel * x.channels; }
  /// Floating-point operations of one of its three products.
  double flops() const { return 2.0 * static_cast<double>(y().rows()) * static_cast<double>(filter_count()); }
};

/// The three products of a convolution. Memory is the device's, of the shape's size, and does not overlap.
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

/// Batch normalization (Ioffe and Szegedy, 2015): each channel less its mean, divided by the root of its
/// variance (of all images and pixels, biased) + epsilon, times `scale`, plus `shift`.
struct BatchNormShape {
  ElementType type = ElementType::f32;  ///< of x, y and their gradients: f32 or bf16
  ImageShape x;
  bool relu = false;  ///< then y = max(0, that)

  static constexpr double epsilon = 1e-5;
  /// Weight of a batch in the running statistics, as PyTorch's default; its variance there is the unbiased
  /// one.
  static constexpr double momentum = 0.1;
};

/// fp32 in device memory, one a channel.
struct BatchNormState {
  const float* scale = nullptr;
  const float* shift = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
  float* saved_mean = nullptr;       ///< of the batch, from forward to backward
  float* saved_deviation = nullptr;  ///< likewise; in which form is the adapter's own
};

class BatchNorm {
 public:
  virtual ~BatchNorm() = default;
  /// With the batch's statistics, which are kept in `saved_*` and moved into `running_*`.
  virtual Status forward_training(const void* x, const BatchNormState& state, void* y, Stream& stream) = 0;
  /// With the running statistics; `saved_*` are not used.
  virtual Status forward_inference(const void* x, const BatchNormState& state, void* y, Stream& stream) = 0;
  /// Of forward_training; x_gradient may be y_gradient's memory.
  virtual Status backward(const void* x, const void* y_gradient, const BatchNormState& state,
                          float* scale_gradient, float* shift_gradient, void* x_gradient, Stream& stream) = 0;
};

enum class PoolingKind { maximum, average };

struct PoolingShape {
  PoolingKind kind = PoolingKind::maximum;
  ElementType type = ElementType::f32;  ///< f32 or bf16
  ImageShape x;
  Window window;  ///< an average leaves out what is padded

  ImageShape y() const { return window.over(x, x.channels); }
};

/// Each channel by itself. Where a maximum is in a window twice one of them gets its gradient, always the
/// same.
class Pooling {
 public:
  virtual ~Pooling() = default;
  virtual Status forward(const void* x, void* y, Stream& stream) = 0;
  /// Behind the forward pass of this x and y, in the same stream.
  virtual Status backward(const void* x, const void* y, const void* y_gradient, void* x_gradient,
                          Stream& stream) = 0;
};

/// The port to a library of deep-learning primitives on a device: cuDNN, oneDNN. What is made here chooses
/// its algorithms and takes its memory when it is made, from device and library, and outlives neither; it is
/// for one stream at a time. Its operations enqueue and return, as Device's do; every one gives the same bits
/// for the same input on one device model. unsupported, with the reason: a precision or shape that the
/// library has not; invalid_argument: a shape that is none.
class Dnn {
 public:
  virtual ~Dnn() = default;
  /// "oneDNN 2.6.3": a result's bits may depend on it.
  virtual const std::string& library() const = 0;
  virtual Support supports(Precision precision) const = 0;
  virtual Result<std::unique_ptr<Convolution>> make(const ConvolutionShape& shape) = 0;
  virtual Result<std::unique_ptr<BatchNorm>> make(const BatchNormShape& shape) = 0;
  virtual Result<std::unique_ptr<Pooling>> make(const PoolingShape& shape) = 0;
};

}  // namespace egt
