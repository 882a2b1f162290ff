#pragma once

#include <cstdint>

#include "egt/core/math/hd.hpp"

namespace egt {

/// Words of a tensor or region that are changed on purpose: word (first + i * stride) modulo the number of
/// words, for i below `count`, becomes (word & keep) ^ mask. keep == ~0: bits are flipped; keep == 0: the
/// word becomes `mask` (a NaN, say).
struct Flip {
  std::uint64_t first = 0;
  std::uint64_t count = 1;
  std::uint64_t stride = 1;
  std::uint32_t keep = ~0u;
  std::uint32_t mask = 1;

  EGT_HD std::uint32_t operator()(std::uint32_t word) const { return (word & keep) ^ mask; }
  /// Is this word hit, where the words do not go round?
  EGT_HD bool hits(std::uint64_t index) const {
    return index >= first && (index - first) % stride == 0 && (index - first) / stride < count;
  }
};

}  // namespace egt
