#pragma once

#include <algorithm>
#include <cstdint>

#include "workload/file/file_layer.hpp"

/// A burn-in leaves others room on the disk: never less than 5 % of a file system, and never less than 1 GB.
namespace egt {

constexpr std::uint64_t least_free_bytes = 1'000'000'000;
constexpr std::uint64_t reserve_divisor = 20;  ///< 5 %

/// What must stay free, bytes.
constexpr std::uint64_t reserve_of(const DiskSpace& space) {
  return std::max(least_free_bytes, space.total_bytes / reserve_divisor);
}

/// What may be written until no more than the reserve is free, bytes.
constexpr std::uint64_t room_in(const DiskSpace& space) {
  return space.free_bytes - std::min(space.free_bytes, reserve_of(space));
}

/// Of one rank's files: at most 5 % of the free space. Where the host's other ranks may write to the same
/// file system: beside what they are about to write at once (`chunk_bytes`), none of them is to meet the
/// reserve.
constexpr std::uint64_t most_file_bytes(const DiskSpace& space, int ranks_of_host,
                                        std::uint64_t chunk_bytes) {
  const std::uint64_t room = room_in(space) / static_cast<std::uint64_t>(ranks_of_host);
  return std::min(space.free_bytes / 20, room - std::min(room, chunk_bytes));
}

}  // namespace egt
