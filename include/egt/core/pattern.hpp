#pragma once

#include <cstdint>
#include <string_view>

#include "egt/core/half.hpp"
#include "egt/core/hd.hpp"

namespace egt {

/// What a region of 32-bit words must hold: a pure function of the index, so it is filled and verified
/// anywhere, on host and device, without a copy being kept.
enum class PatternKind : std::uint32_t {
  random,            ///< hash of (seed, index)
  random_inverse,    ///< its complement
  finite,            ///< random, and every 16-bit half is a finite bfloat16 below 2: usable as an operand
  finite_inverse,    ///< its complement: the bits that `finite` holds at 0 are 1
  contribution,      ///< fp32 of a small integer of `parameter` = a rank: what that rank puts into a sum
  contribution_sum,  ///< fp32 of the sum over ranks 0 .. parameter-1 of their contributions: exact
};

/// `index` counts words from the start of the region that was filled.
struct Pattern {
  PatternKind kind = PatternKind::random;
  std::uint32_t parameter = 0;
  std::uint64_t seed = 0;
};

/// The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
EGT_HD std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// Weighs ranks apart in a known-answer sum; at most 64, so sums of 2000 ranks stay below 2^24 and exact.
EGT_HD std::uint32_t contribution_weight(std::uint32_t rank) {
  return rank % 64u + 1u;
}

EGT_HD std::uint32_t contribution_base(std::uint64_t seed, std::uint64_t index) {
  return static_cast<std::uint32_t>(mix64(seed + index * 0x9E3779B97F4A7C15ull)) & 0xFFu;
}

/// A pattern made ready for many words: what does not depend on the index is computed once.
struct PatternFunction {
  Pattern pattern;
  std::uint32_t weight = 0;  ///< of the contribution, or the sum of all ranks' weights

  EGT_HD explicit PatternFunction(Pattern p) : pattern(p) {
    if (p.kind == PatternKind::contribution) weight = contribution_weight(p.parameter);
    if (p.kind == PatternKind::contribution_sum)
      for (std::uint32_t rank = 0; rank < p.parameter; ++rank) weight += contribution_weight(rank);
  }

  EGT_HD std::uint32_t operator()(std::uint64_t index) const {
    constexpr std::uint32_t finite_mask =
        0xBFFFBFFFu;  // bit 14 of a bfloat16 at 0: its exponent is below 128
    switch (pattern.kind) {
      case PatternKind::random:
        return random(index);
      case PatternKind::random_inverse:
        return ~random(index);
      case PatternKind::finite:
        return random(index) & finite_mask;
      case PatternKind::finite_inverse:
        return ~(random(index) & finite_mask);
      default:
        return float_bits(static_cast<float>(contribution_base(pattern.seed, index) * weight));
    }
  }

 private:
  EGT_HD std::uint32_t random(std::uint64_t index) const {
    return static_cast<std::uint32_t>(mix64(pattern.seed + index * 0x9E3779B97F4A7C15ull) >> 32);
  }
};

/// What a verification found, accumulated by the device; 64-bit fields so that no count wraps.
/// Starts as `Mismatches::none()`; Device::reset sets a device copy to that.
struct Mismatches {
  static constexpr int max_samples = 8;
  std::uint64_t count;        ///< words that differ
  std::uint64_t first_index;  ///< the lowest index that differs; ~0 where none does
  std::uint64_t samples;      ///< samples taken (may exceed max_samples: the rest is dropped)
  std::uint32_t xor_or;       ///< OR of all expected ^ actual
  std::uint32_t xor_and;      ///< AND of all expected ^ actual (starts at ~0)
  struct Sample {
    std::uint64_t index;
    std::uint32_t expected;
    std::uint32_t actual;
  } sample[max_samples];

  /// A report of nothing yet.
  static Mismatches none() {
    Mismatches m{};
    m.first_index = ~std::uint64_t{0};
    m.xor_and = ~std::uint32_t{0};
    return m;
  }
};

constexpr std::string_view to_string(PatternKind kind) {
  constexpr std::string_view names[] = {"random",         "random_inverse", "finite",
                                        "finite_inverse", "contribution",   "contribution_sum"};
  return names[static_cast<std::uint32_t>(kind)];
}

}  // namespace egt
