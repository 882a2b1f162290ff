#include "device/cuda/cuda_shared.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>

#include "device/cuda/cuda_native.hpp"
#include "device/shared/shared_handle.hpp"

namespace egt {
namespace {

constexpr const char* backend = "cuda";

/// The same error with another code: the device or a system limit causes it, not a bug (internal).
Status told_as(StatusCode code, const Status& status) {
  return Status(code, status.what(), status.native());
}

Status sharing_failed(cudaError_t error) {
  const Status status = cuda_status(error, "share memory with other processes");
  return error == cudaErrorNotSupported ? told_as(StatusCode::unsupported, status) : status;
}

Status opening_failed(cudaError_t error) {
  const Status status =
      cuda_status(error, "open another process's memory, which it may have released, or keep from this one");
  switch (error) {
    case cudaErrorNotSupported:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
      return told_as(StatusCode::unsupported, status);
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorDeviceUninitialized:  // CUDA's name for an invalid context
      return told_as(StatusCode::unavailable, status);
    default:
      return status;
  }
}

}  // namespace

Result<SharedBuffer> CudaSharedMemory::share(Buffer memory, std::size_t bytes) {
  EGT_TRY(select_cuda_device(device_));
  cudaIpcMemHandle_t native{};
  if (const cudaError_t error = cudaIpcGetMemHandle(&native, memory.data()); error != cudaSuccess)
    return sharing_failed(error);
  SharedHandle handle = SharedHandle::make(backend, bytes);
  handle.device = pci_bus_id_;
  handle.details = to_hex(&native, sizeof native);
  void* const data = memory.data();
  {
    const std::lock_guard lock(own_->mutex);
    own_->memory[handle.token] = data;
  }
  const auto kept = std::make_shared<Buffer>(std::move(memory));
  Buffer buffer(data, bytes, [own = own_, kept, token = handle.token](void*) {
    {
      const std::lock_guard lock(own->mutex);
      own->memory.erase(token);
    }
    *kept = Buffer();
  });
  return SharedBuffer{std::move(buffer), handle.text()};
}

Result<Buffer> CudaSharedMemory::open_own(const SharedHandle& handle) {
  const std::lock_guard lock(own_->mutex);
  const auto found = own_->memory.find(handle.token);
  if (found == own_->memory.end())
    return Status(StatusCode::unavailable,
                  "shared memory cannot be opened: this process has released it, or it is of another of its "
                  "devices");
  return Buffer(found->second, handle.bytes, [](void*) {});
}

Status CudaSharedMemory::check_peer_access(const SharedHandle& handle) const {
  int owner = 0, can = 0;
  if (cudaDeviceGetByPCIBusId(&owner, handle.device.c_str()) != cudaSuccess) {
    // The other GPU is hidden from this process. Access may still work; opening the handle will show it.
    static_cast<void>(cudaGetLastError());
    return {};
  }
  if (owner == device_) return {};
  EGT_TRY(
      cuda_status(cudaDeviceCanAccessPeer(&can, device_, owner), "ask whether two GPUs reach each other"));
  if (can) return {};
  return Status(StatusCode::unsupported,
                fmt::format("GPU {} cannot reach the memory of GPU {} ({}): nothing that allows peer access "
                            "joins them",
                            device_, owner, handle.device));
}

Result<Buffer> CudaSharedMemory::open(const std::string& text) {
  EGT_TRY_ASSIGN(const SharedHandle handle, SharedHandle::parse(text));
  EGT_TRY(handle.check_reach(backend));
  EGT_TRY(select_cuda_device(device_));
  if (handle.is_own_process()) return open_own(handle);
  cudaIpcMemHandle_t native{};
  EGT_TRY(from_hex(handle.details, &native, sizeof native));
  EGT_TRY(check_peer_access(handle));
  void* data = nullptr;
  if (const cudaError_t error = cudaIpcOpenMemHandle(&data, native, cudaIpcMemLazyEnablePeerAccess);
      error != cudaSuccess)
    return opening_failed(error);
  return Buffer(data, handle.bytes, [device = device_](void* opened) {
    if (select_cuda_device(device).ok()) cudaIpcCloseMemHandle(opened);
  });
}

namespace {

/// Looks up a driver function without linking to the driver; null: not available.
void* driver_function(const char* name) {
  constexpr unsigned first_version = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, first_version, cudaEnableDefault, &result);
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) return found;
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

/// Calls a driver function. Its error numbers equal those of the runtime.
int operate(void* function, const std::uint32_t* signal, std::uint32_t number, unsigned flags,
            CUstream_st* stream) {
  using Function = CUresult(CUDAAPI*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  void* seen = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&seen, const_cast<std::uint32_t*>(signal), 0);
  if (error != cudaSuccess) return error;
  return reinterpret_cast<Function>(function)(stream, reinterpret_cast<CUdeviceptr>(seen), number, flags);
}

}  // namespace

Result<Buffer> CudaSignals::register_pages(int device, void* pages, std::size_t bytes) {
  EGT_TRY(select_cuda_device(device));
  write_ = driver_function("cuStreamWriteValue32");
  await_ = driver_function("cuStreamWaitValue32");
  if (!write_ || !await_)
    return Status(StatusCode::unsupported, "the NVIDIA driver has no operations on memory in streams");
  EGT_TRY(cuda_status(cudaHostRegister(pages, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
                      "register host memory for signals"));
  return Buffer(pages, bytes, [device](void* registered) {
    if (select_cuda_device(device).ok()) cudaHostUnregister(registered);
  });
}

int CudaSignals::write(std::uint32_t* signal, std::uint32_t number, CUstream_st* stream) const {
  return operate(write_, signal, number, CU_STREAM_WRITE_VALUE_DEFAULT, stream);
}

int CudaSignals::await(const std::uint32_t* signal, std::uint32_t number, CUstream_st* stream) const {
  return operate(await_, signal, number, CU_STREAM_WAIT_VALUE_GEQ, stream);
}

}  // namespace egt
