#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <source_location>
#include <string_view>
#include <type_traits>

#include "device/arguments.hpp"
#include "device/cuda/cuda_native.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/device/dnn.hpp"

/// Shared parts of the cuDNN operations: handle, tensor descriptors, errors. Uses the legacy API of cuDNN 9.
namespace egt {

struct CudnnDestroy {
  void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
  void operator()(cudnnTensorDescriptor_t tensor) const { cudnnDestroyTensorDescriptor(tensor); }
  void operator()(cudnnFilterDescriptor_t filter) const { cudnnDestroyFilterDescriptor(filter); }
  void operator()(cudnnConvolutionDescriptor_t desc) const { cudnnDestroyConvolutionDescriptor(desc); }
  void operator()(cudnnPoolingDescriptor_t pooling) const { cudnnDestroyPoolingDescriptor(pooling); }
};
template <typename Native>
using CudnnOwned = std::unique_ptr<std::remove_pointer_t<Native>, CudnnDestroy>;
using CudnnTensor = CudnnOwned<cudnnTensorDescriptor_t>;
using CudnnFilter = CudnnOwned<cudnnFilterDescriptor_t>;

/// Ok for CUDNN_STATUS_SUCCESS, else why cuDNN failed at `doing` ("choose an algorithm"), with the
/// cudnnStatus_t as native code. unsupported; unavailable: its libraries or the driver do not match;
/// out_of_memory; aborted: work failed on the GPU; internal: anything else.
Status cudnn_status(cudnnStatus_t status, std::string_view doing,
                    std::source_location where = std::source_location::current());

/// Owns the result of `create`, for example cudnnCreateTensorDescriptor.
template <typename Native>
Result<CudnnOwned<Native>> make_cudnn(cudnnStatus_t (*create)(Native*)) {
  Native made = nullptr;
  EGT_TRY(cudnn_status(create(&made), "describe an operation"));
  return CudnnOwned<Native>(made);
}

/// Supports f32 and bf16.
cudnnDataType_t cudnn_type(ElementType type);
/// NHWC, contiguous. unsupported: 2^31 elements or more.
Result<CudnnTensor> describe_images(const ImageShape& shape, ElementType type);
/// outputs x kernel x kernel x inputs. unsupported: 2^31 elements or more.
Result<CudnnFilter> describe_filter(const ConvolutionShape& shape);
/// Converts a value that passed check_shape to int for cuDNN.
inline int cudnn_int(std::int64_t value) {
  return static_cast<int>(value);
}

/// cuDNN's handle on a device. A lock serializes its use.
class CudnnLibrary {
 public:
  /// Host memory for alpha and beta: results are overwritten, never blended.
  static constexpr float one = 1.0f, zero = 0.0f;

  /// `device` must outlive the result.
  static Result<std::unique_ptr<CudnnLibrary>> open(Device& device);

  Device& device() const { return device_; }

  /// Calls `ask(handle)`, which returns a cudnnStatus_t or a Status and enqueues nothing.
  template <typename Ask>
  auto with_handle(Ask&& ask) {
    const std::lock_guard lock(mutex_);
    return ask(handle_.get());
  }

  /// Enqueues work: `start(handle)` returns a cudnnStatus_t. As with Device's operations, it waits while work
  /// is held, and a failed stream rejects it.
  template <typename Start>
  Status enqueue(Stream& any, std::string_view doing, Start&& start) {
    EGT_TRY_ASSIGN(CudaStream * begun, begin(any));
    CudaStream& stream = *begun;
    const std::lock_guard lock(mutex_);
    cudnnStatus_t status = cudnnSetStream(handle_.get(), stream.native());
    if (status == CUDNN_STATUS_SUCCESS) status = start(handle_.get());
    if (status == CUDNN_STATUS_SUCCESS) return {};
    return stream.keep(cudnn_status(status, doing));
  }
  /// As `enqueue`, for a custom kernel: `start(launch)` returns a cudaError_t as an int.
  template <typename Start>
  Status launch(Stream& any, std::string_view doing, Start&& start) {
    EGT_TRY(check_takes_products(any));  // and therefore has scratch memory
    EGT_TRY_ASSIGN(CudaStream * stream, begin(any));
    const kernels::Launch where{stream->native(), device_.info().multiprocessors, 0, stream->scratch(),
                                false};
    return stream->keep(cuda_status(static_cast<cudaError_t>(start(where)), doing));
  }

 private:
  /// An empty set_zero clears nothing but has the side effects needed here: it honors holds, checks the
  /// stream's first error, and selects the GPU for this thread.
  Result<CudaStream*> begin(Stream& stream) {
    EGT_TRY(device_.set_zero(nullptr, 0, stream));
    return &as_cuda(stream);
  }

  CudnnLibrary(Device& device, cudnnHandle_t handle) : device_(device), handle_(handle) {}

  Device& device_;
  std::mutex mutex_;
  CudnnOwned<cudnnHandle_t> handle_;
};

/// The operations of `library`, which must outlive them, for shapes that passed check_shape.
Result<std::unique_ptr<Convolution>> make_cudnn_convolution(CudnnLibrary& library,
                                                            const ConvolutionShape& shape);
Result<std::unique_ptr<BatchNorm>> make_cuda_batch_norm(CudnnLibrary& library, const BatchNormShape& shape);
Result<std::unique_ptr<Pooling>> make_cudnn_pooling(CudnnLibrary& library, const PoolingShape& shape);

}  // namespace egt
