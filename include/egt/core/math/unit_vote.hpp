#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>

#include "egt/core/math/half.hpp"
#include "egt/core/math/hd.hpp"
#include "egt/core/pattern.hpp"

/// Known work of single execution units. Every voter, a multiprocessor of a GPU or a CPU of the host, repeats
/// it on the same operands, so that any difference in the bits is an error of one of them.
namespace egt {

/// Units that vote. The host has only the first ones, up to `host_units`.
enum class ComputeUnit : int {
  integer,
  branch,
  fp32,
  fp64,
  special,  ///< special function unit; on the host the functions of libm
  local,    ///< shared memory and its atomics; on the host the first-level cache
  half2,
  shuffle,
  cache,  ///< constant cache and first-level cache
  tensor_bf16,
  tensor_fp16,
  tensor_tf32,
  tensor_fp64,
  tensor_int8,
  tensor_fp8,
};
/// Names in faults and the report, in the order of the enumeration.
inline constexpr const char* compute_unit_names[] = {
    "integer",     "branch",      "fp32",        "fp64",        "special",
    "local",       "half2",       "shuffle",     "cache",       "tensor bf16",
    "tensor fp16", "tensor tf32", "tensor fp64", "tensor int8", "tensor fp8"};
constexpr int compute_units = static_cast<int>(std::size(compute_unit_names));
constexpr int host_units = static_cast<int>(ComputeUnit::local) + 1;
static_assert(compute_units == static_cast<int>(ComputeUnit::tensor_fp8) + 1);
/// `Injection::layer` of a multiprocessor: its units from 1 on, then the pattern that it computes in the
/// memory test.
constexpr int layer_of_pattern = compute_units + 1;

/// Verified operations of one lane in an iteration. Tensor cores: FLOP of the lane's share of an `mma.sync`.
/// Others: 1, since an iteration has each operation of the unit at least once.
constexpr int vote_operations(ComputeUnit unit) {
  switch (unit) {
    case ComputeUnit::tensor_bf16:
    case ComputeUnit::tensor_fp16:
      return 128;
    case ComputeUnit::tensor_tf32:
      return 64;
    case ComputeUnit::tensor_fp64:
      return 16;
    case ComputeUnit::tensor_int8:
    case ComputeUnit::tensor_fp8:
      return 256;
    default:
      return 1;
  }
}

/// A multiprocessor's sub-partitions, each with units of its own. The host uses the first.
constexpr int sub_partitions = 4;
/// Max voters; voter n is multiprocessor or CPU n.
constexpr int max_unit_voters = 1024;

/// Answers of one voter.
struct VoterAnswers {
  std::uint32_t claims;  ///< thread blocks that came to it; the first one does the work
  std::uint32_t parts;   ///< bit p: sub-partition p has answered
  std::uint64_t digest[sub_partitions][compute_units];  ///< 0: the device has no such unit

  constexpr bool has_answered() const { return parts != 0; }
};

/// Injected fault: flips the bits of `mask` in a result of one unit of a voter.
struct UnitFault {
  int voter = -1, part = 0, unit = 0;
  std::uint32_t mask = 0;

  EGT_HD std::uint32_t mask_of(int a_voter, int a_part, int a_unit) const {
    return voter == a_voter && part == a_part && unit == a_unit ? mask : 0;
  }
};

namespace math {

constexpr int vote_lanes = 32;  ///< threads of a sub-partition's warp; the host runs them in turn

/// Adds a word to a running hash. A bijection of each argument, so that a single wrong word changes the
/// result.
EGT_HD std::uint32_t fold(std::uint32_t hash, std::uint32_t word) {
  hash = (hash ^ word) * 0x9E3779B1u;
  return hash << 13 | hash >> 19;
}

/// A lane's term of its warp's digest, a sum modulo 2^64.
EGT_HD std::uint64_t vote_term(std::uint32_t hash, int lane) {
  return mix64((static_cast<std::uint64_t>(lane) + 1) << 32 | hash);
}

/// Operands and result of one lane.
struct VoteLane {
  std::uint64_t seed;
  int lane;
  int iterations;
  std::uint32_t fault_mask;  ///< flips in a result of the middle iteration

  /// Operand `k` (0 to 7) of iteration `i`.
  EGT_HD std::uint32_t word(int i, int k) const {
    const auto place = (static_cast<std::uint32_t>(i) * 8u + static_cast<std::uint32_t>(k)) * vote_lanes +
                       static_cast<std::uint32_t>(lane);
    return lowbias32(place ^ static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  }
  /// Any sign and mantissa, magnitude 2^-35 to 2^29.
  EGT_HD float number(int i, int k) const {
    const std::uint32_t bits = word(i, k);
    return float_from_bits((bits & 0x807FFFFFu) | ((bits >> 23 & 63u) + 92u) << 23);
  }
  EGT_HD double wide_number(int i, int k) const {
    const std::uint32_t high = word(i, k);
    const std::uint64_t bits =
        std::uint64_t{(high & 0x800FFFFFu) | ((high >> 20 & 63u) + 988u) << 20} << 32 | word(i, k + 1);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  /// The iteration's first result, with the injected fault.
  EGT_HD std::uint32_t result(int i, std::uint32_t bits) const {
    return i == iterations / 2 ? bits ^ fault_mask : bits;
  }
};

EGT_HD std::uint32_t double_fold(std::uint32_t hash, double value) {
  std::uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return fold(fold(hash, static_cast<std::uint32_t>(bits)), static_cast<std::uint32_t>(bits >> 32));
}

// The same bits on all IEEE 754 hardware.

EGT_HD std::uint32_t vote_integer(const VoteLane& lane) {
  std::uint32_t hash = 0;
  for (int i = 0; i < lane.iterations; ++i) {
    const std::uint32_t a = lane.word(i, 0), b = lane.word(i, 1);
#ifdef __CUDA_ARCH__
    const std::uint32_t counts = static_cast<std::uint32_t>(__popc(a) + 64 * __clz(b | 1));
#else
    const auto counts = static_cast<std::uint32_t>(__builtin_popcount(a) + 64 * __builtin_clz(b | 1));
#endif
    hash = fold(hash, lane.result(i, a * b));
    hash = fold(hash, static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32));
    hash = fold(hash, (a << (b & 31u)) + (b >> (a & 31u)));
    hash = fold(hash, (a < b ? a : b) - counts);
  }
  return hash;
}

/// Lanes diverge: 8 cases, then up to 7 iterations.
EGT_HD std::uint32_t vote_branch(const VoteLane& lane) {
  std::uint32_t hash = 0;
  for (int i = 0; i < lane.iterations; ++i) {
    std::uint32_t v = lane.word(i, 0);
    const std::uint32_t way = v & 7u;
    if (way == 0)
      v = v * 5u + 1u;
    else if (way == 1)
      v ^= v >> 7;
    else if (way == 2)
      v = v << 3 | v >> 29;
    else if (way == 3)
      v = ~v;
    else if (way == 4)
      v += v << 9;
    else if (way == 5)
      v *= 0x7FEB352Du;
    else if (way == 6)
      v ^= v << 11;
    else
      v -= v >> 5;
    for (std::uint32_t turns = lane.word(i, 1) >> 29; turns > 0; --turns) v = v & 1u ? v * 3u + 1u : v >> 1;
    hash = fold(hash, lane.result(i, v));
  }
  return hash;
}

EGT_HD std::uint32_t vote_fp32(const VoteLane& lane) {
  std::uint32_t hash = 0;
  for (int i = 0; i < lane.iterations; ++i) {
    const float a = lane.number(i, 0), b = lane.number(i, 1), c = lane.number(i, 2);
    hash = fold(hash, lane.result(i, float_bits(fmaf(a, b, c))));
    hash = fold(hash, float_bits(a + c));
    hash = fold(hash, float_bits(b * c));
    hash = fold(hash, float_bits(a * 0x1p-120f));  // often subnormal
    hash = fold(hash, static_cast<std::uint32_t>(static_cast<std::int32_t>(b)));
    hash = fold(hash, float_bits(static_cast<float>(static_cast<std::int32_t>(lane.word(i, 3)))));
  }
  return hash;
}

EGT_HD std::uint32_t vote_fp64(const VoteLane& lane) {
  std::uint32_t hash = 0;
  for (int i = 0; i < lane.iterations; ++i) {
    const double a = lane.wide_number(i, 0), b = lane.wide_number(i, 2), c = lane.wide_number(i, 4);
    hash = fold(hash, lane.result(i, float_bits(static_cast<float>(a))));
    hash = double_fold(hash, fma(a, b, c));
    hash = double_fold(hash, a + c);
    hash = double_fold(hash, b * c);
  }
  return hash;
}

}  // namespace math
}  // namespace egt
