#pragma once

#include <cstdint>

#include "egt/core/math/hd.hpp"

namespace egt {

/// Injected fault in the words of a tensor or region. Word (first + i * stride) modulo the number of words,
/// for i < `count`, becomes (word & keep) ^ mask. If `keep` is ~0, bits are flipped. If it is 0, the word is
/// set to `mask` (such as a NaN).
struct Flip {
  std::uint64_t first = 0;
  std::uint64_t count = 1;
  std::uint64_t stride = 1;
  std::uint32_t keep = ~0u;
  std::uint32_t mask = 1;

  EGT_HD std::uint32_t operator()(std::uint32_t word) const { return (word & keep) ^ mask; }
  /// True if this word is hit. Valid only if no position exceeds the number of words, and so wraps around.
  EGT_HD bool hits(std::uint64_t index) const {
    return index >= first && (index - first) % stride == 0 && (index - first) / stride < count;
  }
};

}  // namespace egt
