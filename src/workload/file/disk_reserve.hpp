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

}  // namespace egt
