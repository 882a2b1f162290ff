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

struct CUstream_st;  // CUDA's

namespace egt {

struct SharedHandle;

/// What one GPU shares with other processes of its host, through CUDA's interprocess handles. Safe from any
/// thread.
class CudaSharedMemory {
 public:
  /// A handle names the whole piece of memory that the driver cut an allocation from: a multiple of this is a
  /// piece of its own.
  static constexpr std::size_t granularity = std::size_t{2} << 20;

  CudaSharedMemory(int device, std::string pci_bus_id)
      : device_(device), pci_bus_id_(std::move(pci_bus_id)) {}

  /// `memory`: of cudaMalloc, a multiple of `granularity`; `bytes`: how much of it is reported.
  Result<SharedBuffer> share(Buffer memory, std::size_t bytes);
  Result<Buffer> open(const std::string& handle);

 private:
  /// CUDA opens no handle in the process that made it: so what is shared is kept, by its token.
  struct Own {
    std::mutex mutex;
    std::map<std::uint64_t, void*> memory;
  };
  Result<Buffer> open_own(const SharedHandle& handle);
  /// That this GPU can reach the memory of the handle's.
  Status check_peer_access(const SharedHandle& handle) const;

  const int device_;
  const std::string pci_bus_id_;
  const std::shared_ptr<Own> own_ = std::make_shared<Own>();
};

/// Signals in host memory by the driver's stream memory operations. The calls that enqueue return a
/// cudaError_t as an int; of memory that was registered.
class CudaSignals {
 public:
  Result<Buffer> register_pages(int device, void* pages, std::size_t bytes);
  int write(std::uint32_t* signal, std::uint32_t number, CUstream_st* stream) const;
  int await(const std::uint32_t* signal, std::uint32_t number, CUstream_st* stream) const;

 private:
  void *write_ = nullptr, *await_ = nullptr;  ///< the driver's functions, once anything is registered
};

}  // namespace egt
