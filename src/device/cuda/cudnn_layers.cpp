#include <fmt/format.h>

#include <utility>

#include "device/cuda/cudnn_library.hpp"
#include "device/dnn_arguments.hpp"

namespace egt {
namespace {

/// Not CUDNN_BATCHNORM_SPATIAL_PERSISTENT, which may add up in scaled integers and gives NaN where these
/// overflow. Batch normalization is not among what NVIDIA's documentation names as not reproducible.
constexpr cudnnBatchNormMode_t batch_norm_mode = CUDNN_BATCHNORM_SPATIAL;

class CudnnBatchNorm : public BatchNorm {
 public:
  CudnnBatchNorm(CudnnLibrary& library, const BatchNormShape& shape) : library_(library), shape_(shape) {}

  Status prepare() {
    EGT_TRY_ASSIGN(x_, describe_images(shape_.x, shape_.type));
    EGT_TRY_ASSIGN(state_, make_cudnn(&cudnnCreateTensorDescriptor));
    return cudnn_status(cudnnDeriveBNTensorDescriptor(state_.get(), x_.get(), batch_norm_mode),
                        "describe a batch normalization");
  }

  Status forward_training(const void* x, const BatchNormState& state, void* y, Stream& stream) override {
    EGT_TRY(check_operands("batch normalization", {{"x", x}, {"y", y}}));
    EGT_TRY(check_training(shape_, state));
    return library_.enqueue(stream, "start a batch normalization", [&](cudnnHandle_t handle) {
      return cudnnBatchNormalizationForwardTraining(
          handle, batch_norm_mode, &CudnnLibrary::one, &CudnnLibrary::zero, x_.get(), x, x_.get(), y,
          state_.get(), state.scale, state.shift, BatchNormShape::momentum, state.running_mean,
          state.running_variance, BatchNormShape::epsilon, state.saved_mean, state.saved_deviation);
    });
  }

  Status forward_inference(const void* x, const BatchNormState& state, void* y, Stream& stream) override {
    EGT_TRY(check_operands("batch normalization", {{"x", x}, {"y", y}}));
    EGT_TRY(check_inference(state));
    return library_.enqueue(stream, "start a batch normalization of inference", [&](cudnnHandle_t handle) {
      return cudnnBatchNormalizationForwardInference(
          handle, batch_norm_mode, &CudnnLibrary::one, &CudnnLibrary::zero, x_.get(), x, x_.get(), y,
          state_.get(), state.scale, state.shift, state.running_mean, state.running_variance,
          BatchNormShape::epsilon);
    });
  }

  /// saved_deviation is cuDNN's: one by the root of the variance + epsilon.
  Status backward(const void* x, const void* y_gradient, const BatchNormState& state, float* scale_gradient,
                  float* shift_gradient, void* x_gradient, Stream& stream) override {
    EGT_TRY(check_operands("batch normalization", {{"x", x},
                                                   {"y_gradient", y_gradient},
                                                   {"scale_gradient", scale_gradient},
                                                   {"shift_gradient", shift_gradient},
                                                   {"x_gradient", x_gradient}}));
    EGT_TRY(check_backward(state));
    return library_.enqueue(stream, "start a batch normalization's gradient", [&](cudnnHandle_t handle) {
      return cudnnBatchNormalizationBackward(handle, batch_norm_mode, &CudnnLibrary::one, &CudnnLibrary::zero,
                                             &CudnnLibrary::one, &CudnnLibrary::zero, x_.get(), x, x_.get(),
                                             y_gradient, x_.get(), x_gradient, state_.get(), state.scale,
                                             scale_gradient, shift_gradient, BatchNormShape::epsilon,
                                             state.saved_mean, state.saved_deviation);
    });
  }

 private:
  CudnnLibrary& library_;
  const BatchNormShape shape_;
  CudnnTensor x_;
  CudnnTensor state_;  ///< one fp32 a channel
};

class CudnnPooling : public Pooling {
 public:
  CudnnPooling(CudnnLibrary& library, const PoolingShape& shape) : library_(library), shape_(shape) {}

  Status prepare() {
    EGT_TRY_ASSIGN(x_, describe_images(shape_.x, shape_.type));
    EGT_TRY_ASSIGN(y_, describe_images(shape_.y(), shape_.type));
    EGT_TRY_ASSIGN(window_, make_cudnn(&cudnnCreatePoolingDescriptor));
    const cudnnPoolingMode_t mode = shape_.kind == PoolingKind::maximum
                                        ? CUDNN_POOLING_MAX_DETERMINISTIC
                                        : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
    const int kernel = cudnn_int(shape_.window.kernel), stride = cudnn_int(shape_.window.stride),
              padding = cudnn_int(shape_.window.padding);
    return cudnn_status(cudnnSetPooling2dDescriptor(window_.get(), mode, CUDNN_PROPAGATE_NAN, kernel, kernel,
                                                    padding, padding, stride, stride),
                        "describe a pooling");
  }

  Status forward(const void* x, void* y, Stream& stream) override {
    EGT_TRY(check_operands("pooling", {{"x", x}, {"y", y}}));
    return library_.enqueue(stream, "start a pooling", [&](cudnnHandle_t handle) {
      return cudnnPoolingForward(handle, window_.get(), &CudnnLibrary::one, x_.get(), x, &CudnnLibrary::zero,
                                 y_.get(), y);
    });
  }

  Status backward(const void* x, const void* y, const void* y_gradient, void* x_gradient,
                  Stream& stream) override {
    EGT_TRY(check_operands("pooling",
                           {{"x", x}, {"y", y}, {"y_gradient", y_gradient}, {"x_gradient", x_gradient}}));
    return library_.enqueue(stream, "start a pooling's gradient", [&](cudnnHandle_t handle) {
      return cudnnPoolingBackward(handle, window_.get(), &CudnnLibrary::one, y_.get(), y, y_.get(),
                                  y_gradient, x_.get(), x, &CudnnLibrary::zero, x_.get(), x_gradient);
    });
  }

 private:
  CudnnLibrary& library_;
  const PoolingShape shape_;
  CudnnTensor x_, y_;
  CudnnOwned<cudnnPoolingDescriptor_t> window_;
};

}  // namespace

Result<std::unique_ptr<BatchNorm>> make_cudnn_batch_norm(CudnnLibrary& library, const BatchNormShape& shape) {
  auto made = std::make_unique<CudnnBatchNorm>(library, shape);
  EGT_TRY(made->prepare());
  return std::unique_ptr<BatchNorm>(std::move(made));
}

Result<std::unique_ptr<Pooling>> make_cudnn_pooling(CudnnLibrary& library, const PoolingShape& shape) {
  auto made = std::make_unique<CudnnPooling>(library, shape);
  EGT_TRY(made->prepare());
  return std::unique_ptr<Pooling>(std::move(made));
}

}  // namespace egt
