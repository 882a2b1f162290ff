#pragma once

#include <cstdint>

#include "egt/core/math/hd.hpp"

namespace egt {

/// Four 32-bit random words.
struct Philox4 {
  std::uint32_t w[4];
};

/// Philox4x32-10, the counter-based generator of cuRAND (Salmon et al., "Parallel random numbers: as easy as
/// 1, 2, 3", SC 2011): the same counter and key give the same words everywhere. For the host; kernels call
/// cuRAND's, which a unit test compares with this one.
inline Philox4 philox4x32_10(std::uint64_t counter_low, std::uint64_t counter_high, std::uint64_t key) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low),
                c1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high),
                c3 = static_cast<std::uint32_t>(counter_high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// A uniform number in [-1, 1) from the upper 24 bits of a word: exact in fp32, so equal on every device.
EGT_HD float signed_unit(std::uint32_t word) {
  return static_cast<float>(word >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

}  // namespace egt
