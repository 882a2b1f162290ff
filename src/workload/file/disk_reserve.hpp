#pragma once

#include <algorithm>
#include <cstdint>

#include "workload/file/file_layer.hpp"

/// Free space that a burn-in leaves on the disk: at least 5 % of a file system and at least 1 GB.
namespace egt {

constexpr std::uint64_t min_free_bytes = 1'000'000'000;
constexpr std::uint64_t reserve_divisor = 20;  ///< 5 %

/// Bytes that must stay free.
constexpr std::uint64_t reserve_of(const DiskSpace& space) {
  return std::max(min_free_bytes, space.total_bytes / reserve_divisor);
}

/// Bytes that may be written before only the reserve is left.
constexpr std::uint64_t room_in(const DiskSpace& space) {
  return space.free_bytes - std::min(space.free_bytes, reserve_of(space));
}

/// Max bytes of one rank's files: at most 5 % of the free space. Ranks on one node may share the file system.
/// Each therefore gets an equal part, less the `chunk_bytes` that it may write at once, so that none reaches
/// the reserve.
constexpr std::uint64_t max_file_bytes(const DiskSpace& space, int ranks_of_host, std::uint64_t chunk_bytes) {
  const std::uint64_t room = room_in(space) / static_cast<std::uint64_t>(ranks_of_host);
  return std::min(space.free_bytes / 20, room - std::min(room, chunk_bytes));
}

}  // namespace egt
