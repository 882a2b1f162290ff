#pragma once

#include <cstdint>
#include <string>

#include "egt/core/status.hpp"

namespace egt {

/// Identifies memory of one process to another on the same node, as one printable word.
/// `Device::allocate_shared` returns it and `open_shared` accepts it.
struct SharedHandle {
  std::string backend;      ///< "cuda" or "host"
  std::string host;         ///< the node's boot id, which is unique per node
  std::string processes;    ///< PID namespace of `pid`: a container may have its own
  int pid = 0;              ///< process id of the owner
  std::uint64_t token = 0;  ///< unique per allocation, to detect reuse
  std::uint64_t bytes = 0;
  std::string device;   ///< adapter-specific: the device that owns the memory
  std::string details;  ///< adapter-specific: how to open it

  /// Creates a handle of this process with a new token.
  static SharedHandle make(std::string backend, std::uint64_t bytes);
  static Result<SharedHandle> parse(const std::string& text);
  std::string text() const;

  bool is_own_process() const;
  /// Checks that this process may open it. `unavailable`: another node, container or backend, or the owner
  /// has exited.
  Status check_reach(const std::string& own_backend) const;
};

/// Bytes as hexadecimal digits, and back. The latter fails if `text` does not encode `bytes` bytes.
std::string to_hex(const void* data, std::size_t bytes);
Status from_hex(const std::string& text, void* data, std::size_t bytes);

}  // namespace egt
