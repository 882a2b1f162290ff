#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/ranks/communicator.hpp"

/// What the implementers of `Communicator::exchange` share.
namespace egt {

/// A message of a rank to itself.
struct OwnMessage {
  const void* from;
  void* to;
  std::size_t bytes;  ///< more than 0
};

/// The messages of `rank` to itself. `invalid_argument` where a message names no rank of `size`, or where
/// what the rank sends itself is not what it receives from itself.
Result<std::vector<OwnMessage>> own_messages(std::span<const Message> sends,
                                             std::span<const Message> receives, int rank, int size);

}  // namespace egt
