#include "device/cuda/cuda_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "device/cuda/cuda_native.hpp"
#include "egt/core/system_files.hpp"
#include "egt/core/units.hpp"
#include "egt/core/wait.hpp"
#include "kernels/launch.hpp"

namespace egt {
namespace {

constexpr double destructor_seconds = 20;  // longer than any enqueued work

/// The device's value for a priority; lower is more urgent.
Result<int> native_priority(StreamPriority priority) {
  int least = 0, greatest = 0;
  EGT_TRY(cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for stream priorities"));
  switch (priority) {
    case StreamPriority::high:
      return greatest;
    case StreamPriority::normal:
      return (least + greatest) / 2;
    case StreamPriority::background:
      return std::min(greatest + 1, least);
    case StreamPriority::low:
      return least;
  }
  return Status(StatusCode::invalid_argument, "there is no such stream priority");
}

}  // namespace

Result<Buffer> allocate_pinned_memory(int device, std::size_t bytes) {
  if (bytes == 0) return Buffer();
  EGT_TRY(check_node_memory(fmt::format("page-locked buffers of GPU {}", device), bytes));
  EGT_TRY(select_cuda_device(device));
  void* data = nullptr;
  EGT_TRY(cuda_status(cudaMallocHost(&data, bytes),
                      fmt::format("allocate {} of page-locked host memory", format_bytes(bytes))));
  return Buffer(data, bytes, [device](void* memory) {
    if (select_cuda_device(device).ok()) cudaFreeHost(memory);
  });
}

Result<CudaMemoryHandle> allocate_cuda_memory(std::size_t bytes) {
  void* data = nullptr;
  EGT_TRY(cuda_status(cudaMalloc(&data, bytes), fmt::format("allocate {} bytes of GPU memory", bytes)));
  return CudaMemoryHandle(data);
}

Status CudaHold::allow(Device& device) {
  EGT_TRY_ASSIGN(words_, device.allocate_pinned(words * sizeof(std::uint32_t)));
  set(false);
  forget();
  return cuda_status(static_cast<cudaError_t>(kernels::load_hold()), "load the kernel that holds work back");
}

void CudaHold::set(bool is_held) {
  if (words_) std::atomic_ref(word(held)).store(is_held, std::memory_order_release);
}

int CudaHold::begin(const kernels::Launch& launch) const {
  constexpr auto limit_ns = static_cast<std::uint64_t>(Device::longest_hold_seconds * 1e9);
  return kernels::hold(launch, &word(held), &word(expired), limit_ns);
}

Status CudaHold::status() const {
  if (!words_ || std::atomic_ref(word(expired)).load(std::memory_order_acquire) == 0) return {};
  return {StatusCode::timeout,
          fmt::format("the device's work was delayed for {:g} s", Device::longest_hold_seconds)};
}

void CudaHold::forget() {
  if (words_) std::atomic_ref(word(expired)).store(0, std::memory_order_release);
}

Result<std::unique_ptr<CudaStream>> CudaStream::create(int device, StreamPriority priority, StreamUse use,
                                                       std::size_t workspace_bytes) {
  EGT_TRY(select_cuda_device(device));
  EGT_TRY_ASSIGN(const int number, native_priority(priority));
  std::unique_ptr<CudaStream> made(new CudaStream(device, priority, use));
  cudaStream_t stream = nullptr;
  EGT_TRY(cuda_status(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, number), "make a stream"));
  made->stream_.reset(stream);
  if (use == StreamUse::all) EGT_TRY(made->prepare_products(workspace_bytes));
  return made;
}

Status CudaStream::prepare_products(std::size_t workspace_bytes) {
  cublasLtHandle_t blas = nullptr;
  if (const cublasStatus_t status = cublasLtCreate(&blas); status != CUBLAS_STATUS_SUCCESS)
    return Status(StatusCode::unavailable,
                  fmt::format("cuBLAS did not start: {}", cublasLtGetStatusString(status)), status);
  blas_.reset(blas);
  EGT_TRY_ASSIGN(workspace_, allocate_cuda_memory(workspace_bytes));
  workspace_bytes_ = workspace_bytes;
  EGT_TRY_ASSIGN(scratch_, allocate_cuda_memory(kernels::scratch_bytes));
  return {};
}

CudaStream::~CudaStream() {
  if (!stream_ || !select_cuda_device(device_).ok()) return;
  const Status over = wait_until([this] { return finished(); },
                                 {.seconds = destructor_seconds, .what = "a GPU stream's end"});
  if (over.code() != StatusCode::timeout) return;
  // cudaFree would wait indefinitely for the stuck work.
  static_cast<void>(workspace_.release());
  static_cast<void>(scratch_.release());
}

Status CudaStream::keep(Status status) {
  if (first_error_.ok() && !status.ok()) first_error_ = status;
  return status;
}

Result<bool> CudaStream::finished() {
  EGT_TRY(first_error_);
  const cudaError_t error = cudaStreamQuery(stream_.get());
  if (error == cudaSuccess) return true;
  const Status status = cuda_status(error, "finish the work of a stream");
  if (error == cudaErrorNotReady) return false;
  return keep(status);
}

Result<std::unique_ptr<CudaEvent>> CudaEvent::create(int device, EventUse use) {
  EGT_TRY(select_cuda_device(device));
  cudaEvent_t event = nullptr;
  const unsigned flags = use == EventUse::timing ? cudaEventDefault : cudaEventDisableTiming;
  EGT_TRY(cuda_status(cudaEventCreateWithFlags(&event, flags), "make an event"));
  return std::unique_ptr<CudaEvent>(new CudaEvent(device, use, event));
}

CudaEvent::~CudaEvent() {
  static_cast<void>(select_cuda_device(device_));
}

cudaStream_t native(Stream& stream) {
  return as_cuda(stream).native();
}

}  // namespace egt
