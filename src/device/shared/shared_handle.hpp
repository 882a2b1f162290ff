#pragma once

#include <cstdint>
#include <string>

#include "egt/core/status.hpp"

namespace egt {

/// Names memory of one process to another of the same host: what `Device::allocate_shared` gives out and
/// `open_shared` takes, as one printable word.
struct SharedHandle {
  std::string backend;      ///< "cuda" or "host"
  std::string host;         ///< the host's boot, which two hosts do not share
  std::string processes;    ///< the namespace that `pid` counts in: a container may have its own
  int pid = 0;              ///< of the owner
  std::uint64_t token = 0;  ///< of this allocation, so that no later one is taken for it
  std::uint64_t bytes = 0;
  std::string device;   ///< the adapter's own: which device the memory is of
  std::string details;  ///< the adapter's own: how to open it

  /// Of this process, with a new token.
  static SharedHandle make(std::string backend, std::uint64_t bytes);
  static Result<SharedHandle> parse(const std::string& text);
  std::string text() const;

  bool is_own_process() const;
  /// May this process open it? `unavailable`: it is another host's or backend's, or its owner is no more.
  Status check_reach(const std::string& own_backend) const;
};

/// Bytes as hexadecimal digits, and back; the latter fails where `text` is not `bytes` of them.
std::string to_hex(const void* data, std::size_t bytes);
Status from_hex(const std::string& text, void* data, std::size_t bytes);

}  // namespace egt
