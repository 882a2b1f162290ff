#include "device/cuda/cudnn_library.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "device/cuda/cuda_native.hpp"
#include "device/dnn_arguments.hpp"

namespace egt {
namespace {

StatusCode code_of(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_NOT_INITIALIZED:
    case CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH:
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART:
    case CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE:
      return StatusCode::unavailable;
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
      return StatusCode::out_of_memory;
    default:
      break;
  }
  // Codes below the category level differ between releases.
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case CUDNN_STATUS_NOT_SUPPORTED:
      return StatusCode::unsupported;
    case CUDNN_STATUS_EXECUTION_FAILED:
      return StatusCode::aborted;
    default:
      return StatusCode::internal;
  }
}

/// cuDNN's message for the thread's last error, in one line, or empty.
std::string last_message() {
  std::array<char, 512> text{};
  cudnnGetLastErrorString(text.data(), text.size() - 1);
  std::string line(text.data(), strnlen(text.data(), text.size()));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

Status check_count(std::int64_t count, std::string_view what) {
  if (count <= std::numeric_limits<std::int32_t>::max()) return {};
  return Status(StatusCode::unsupported,
                fmt::format("cuDNN accepts {} of less than 2^31 elements, not of {}", what, count));
}

}  // namespace

Status cudnn_status(cudnnStatus_t status, std::string_view doing, std::source_location where) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  // Otherwise a later query of the last error would return the one that cuDNN left.
  static_cast<void>(cudaGetLastError());
  const std::string message = last_message();
  return Status(code_of(status),
                fmt::format("cuDNN could not {}: {}{}{}", doing, cudnnGetErrorString(status),
                            message.empty() ? "" : "; ", message),
                status, where);
}

cudnnDataType_t cudnn_type(ElementType type) {
  return type == ElementType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

Result<CudnnTensor> describe_images(const ImageShape& shape, ElementType type) {
  EGT_TRY(check_count(shape.count(), "images"));
  EGT_TRY_ASSIGN(CudnnTensor tensor, make_cudnn(&cudnnCreateTensorDescriptor));
  EGT_TRY(cudnn_status(
      cudnnSetTensor4dDescriptor(tensor.get(), CUDNN_TENSOR_NHWC, cudnn_type(type), cudnn_int(shape.images),
                                 cudnn_int(shape.channels), cudnn_int(shape.height), cudnn_int(shape.width)),
      fmt::format("describe images of {}", to_text(shape))));
  return tensor;
}

Result<CudnnFilter> describe_filter(const ConvolutionShape& shape) {
  EGT_TRY(check_count(shape.filter_count(), "filters"));
  EGT_TRY_ASSIGN(CudnnFilter filter, make_cudnn(&cudnnCreateFilterDescriptor));
  EGT_TRY(cudnn_status(
      cudnnSetFilter4dDescriptor(filter.get(), cudnn_type(storage_type(shape.precision)), CUDNN_TENSOR_NHWC,
                                 cudnn_int(shape.outputs), cudnn_int(shape.x.channels),
                                 cudnn_int(shape.window.kernel), cudnn_int(shape.window.kernel)),
      fmt::format("describe the filter of {}", to_text(shape))));
  return filter;
}

Result<std::unique_ptr<CudnnLibrary>> CudnnLibrary::open(Device& device) {
  EGT_TRY(select_cuda_device(device.info().index));
  cudnnHandle_t handle = nullptr;
  EGT_TRY(cudnn_status(cudnnCreate(&handle), "start"));
  return std::unique_ptr<CudnnLibrary>(new CudnnLibrary(device, handle));
}

}  // namespace egt
