#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "egt/core/status.hpp"
#include "egt/device/handles.hpp"

struct CUstream_st;  // defined by CUDA

namespace egt {

struct SharedHandle;

/// Memory that one GPU shares with other processes of its node through CUDA IPC handles. Thread-safe.
class CudaSharedMemory {
 public:
  /// An IPC handle refers to the driver's whole suballocation block. An allocation of a multiple of this size
  /// has a block of its own.
  static constexpr std::size_t granularity = std::size_t{2} << 20;

  CudaSharedMemory(int device, std::string pci_bus_id)
      : device_(device), pci_bus_id_(std::move(pci_bus_id)) {}

  /// `memory`: from cudaMalloc, a multiple of `granularity`. `bytes`: the size to report.
  Result<SharedBuffer> share(Buffer memory, std::size_t bytes);
  Result<Buffer> open(const std::string& handle);

 private:
  /// CUDA cannot open an IPC handle in the process that created it. So `open` finds this process's own shared
  /// memory here, by its token.
  struct Own {
    std::mutex mutex;
    std::map<std::uint64_t, void*> memory;
  };
  Result<Buffer> open_own(const SharedHandle& handle);
  /// Checks that this GPU can access the memory of the GPU that the handle identifies.
  Status check_peer_access(const SharedHandle& handle) const;

  const int device_;
  const std::string pci_bus_id_;
  const std::shared_ptr<Own> own_ = std::make_shared<Own>();
};

/// Writes and awaits signals in registered host memory, by the driver's stream memory operations. Calls that
/// enqueue return a cudaError_t as an int.
class CudaSignals {
 public:
  Result<Buffer> register_pages(int device, void* pages, std::size_t bytes);
  int write(std::uint32_t* signal, std::uint32_t number, CUstream_st* stream) const;
  int await(const std::uint32_t* signal, std::uint32_t number, CUstream_st* stream) const;

 private:
  void *write_ = nullptr, *await_ = nullptr;  ///< driver functions, set by register_pages
};

}  // namespace egt
