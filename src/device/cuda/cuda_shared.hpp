#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "device/flags.hpp"
#include "egt/core/status.hpp"
#include "egt/device/handles.hpp"
#include "kernels/launch.hpp"

namespace egt {

struct SharedHandle;

/// Calls f with lists of the flags, as many as a kernel takes, until a launch fails (a cudaError_t).
template <typename F>
int for_flag_lists(std::span<const Flag> flags, F&& f) {
  for (std::size_t first = 0; first < flags.size(); first += kernels::most_flags) {
    kernels::FlagList list{};
    for (const Flag& flag :
         flags.subspan(first, std::min<std::size_t>(kernels::most_flags, flags.size() - first))) {
      list.word[list.count] = flag.word;
      list.value[list.count++] = flag.value;
    }
    if (const int error = f(list); error != 0) return error;
  }
  return 0;
}

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

}  // namespace egt
