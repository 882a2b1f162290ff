#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/ranks/communicator.hpp"

/// Shared by the implementations of `Communicator::exchange`.
namespace egt {

/// A message that a rank sends to its own buffer.
struct OwnMessage {
  const void* from;
  void* to;
  std::size_t bytes;  ///< more than 0
};

/// The messages of `rank` to its own buffers. `invalid_argument` if a peer is not one of the `size` ranks, or
/// if own sends and receives do not match.
Result<std::vector<OwnMessage>> own_messages(std::span<const Message> sends,
                                             std::span<const Message> receives, int rank, int size);

}  // namespace egt
