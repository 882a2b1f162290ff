#pragma once

#include <cstdint>
#include <string_view>

#include "egt/core/math/half.hpp"
#include "egt/core/math/hd.hpp"

namespace egt {

/// Expected content of a region of 32-bit words: a pure function of the index, so that host and device can
/// fill and verify it without a stored copy.
enum class PatternKind : std::uint32_t {
  random,            ///< hash of (seed, index)
  random_inverse,    ///< its complement
  finite,            ///< random operands for any type: see `finite_keep`
  finite_inverse,    ///< its complement: bits that are 0 in `finite` are 1
  operands,          ///< two alternating matrices of GEMM operands: see operand_bands.hpp for `parameter`
  contribution,      ///< fp32 that a source of field `parameter` adds to a sum; 0 from field 4 on
  contribution_sum,  ///< fp32 of the sum of the fields 0 .. parameter-1: exact
  // Regular kinds, for memory tests
  address,          ///< lower half of the index ^ hash of the upper: unique among a region's 2^32
  address_inverse,  ///< its complement
  walking_ones,     ///< 1 << (index + parameter) % 32
  walking_zeros,    ///< its complement
  checkerboard,     ///< 0xAAAAAAAA if index + parameter is even, else 0x55555555
  solid,            ///< `parameter` everywhere
  modulo_20,        ///< lower half of the seed if index % 20 == parameter, else its complement
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

/// Wellons's "lowbias32" (hash-prospector, 2018), a bijection, with a key between its two rounds.
EGT_HD std::uint32_t lowbias32(std::uint32_t x, std::uint32_t key = 0) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du + key;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

/// A known-answer sum has up to four concurrent sources, each with 6 bits of its own in the 24 that fp32
/// holds exactly. Without carries the sum is exact in any order, and a wrong sum shows the faulty source.
constexpr std::uint32_t contribution_fields = 4;
constexpr std::uint32_t contribution_field_bits = 6;

/// The contributions of all four fields at `index`; the sum of the first n fields consists of the lower n.
EGT_HD std::uint32_t contribution_parts(std::uint64_t seed, std::uint64_t index) {
  return static_cast<std::uint32_t>(mix64(seed + index * 0x9E3779B97F4A7C15ull)) & 0xFFFFFFu;
}

/// For `finite`: the random bits, and the fixed bits that are 1. Each half is a bfloat16 or fp16 whose
/// exponent has up to three random bits, so that no term of a GEMM is negligible next to the max term. The
/// word is an fp32; an odd word is the upper half of an fp64 with the same property. No byte is an fp8 NaN.
constexpr std::uint32_t finite_keep = 0x83BF83BFu, finite_flip = 0x3C003C00u;

/// Words at four consecutive positions; the first position is a multiple of four.
struct FourWords {
  std::uint32_t word[4];
};

/// `x` rotated left by `bits`, 0 to 31.
EGT_HD std::uint32_t rotated(std::uint32_t x, std::uint32_t bits) {
  return (x << bits) | (x >> (0u - bits) % 32);
}

/// The 2^32 words that share the upper half of their index. Four consecutive words share one hash, each with
/// another byte rotation: word = (rotated hash(lower half / 4) & keep) ^ flip. About four 32-bit operations
/// per word keep verification memory-bound. The hash is a bijection, so `random` words at the same position
/// within their four never repeat. An address fault, which moves whole bursts, is therefore detected too.
struct PatternBlock {
  std::uint32_t key = 0;
  std::uint32_t middle_key = 0;
  std::uint32_t keep = ~0u;
  std::uint32_t flip = 0;

  EGT_HD std::uint32_t hash(std::uint32_t four) const { return lowbias32(four ^ key, middle_key); }
  EGT_HD std::uint32_t operator()(std::uint32_t low) const {
    return (rotated(hash(low / 4), 8 * (low % 4)) & keep) ^ flip;
  }
  /// `low` is a multiple of four.
  EGT_HD FourWords four(std::uint32_t low) const {
    const std::uint32_t x = hash(low / 4);
    return {{(x & keep) ^ flip, (rotated(x, 8) & keep) ^ flip, (rotated(x, 16) & keep) ^ flip,
             (rotated(x, 24) & keep) ^ flip}};
  }
};

/// As PatternBlock, for `operands`. Each word has its own hash, because repeated terms would make a GEMM's
/// sums larger.
struct OperandBlock {
  /// Bit masks of the words with even and with odd index. `keep`: random bits. `fixed`: bits that are always
  /// 1. `zeroed`: sign bits of the elements that become 0 instead of negative.
  struct Bits {
    std::uint32_t keep_even = 0, fixed_even = 0, keep_odd = 0, fixed_odd = 0, zeroed_even = 0, zeroed_odd = 0;
  };
  std::uint32_t key = 0;
  std::uint32_t middle_key = 0;
  std::uint32_t matrix_words = 0;  ///< a power of two: the bit of the index that is 1 in the words of b
  std::uint32_t sign_bit = 0;      ///< index of the sign bit in an element of up to 32 bits
  Bits a, b;

  EGT_HD std::uint32_t hash(std::uint32_t low) const { return lowbias32(low ^ key, middle_key); }
  EGT_HD const Bits& bits(std::uint32_t low) const { return (low & matrix_words) != 0 ? b : a; }
  EGT_HD std::uint32_t even(std::uint32_t low, const Bits& own) const {
    return without((hash(low) & own.keep_even) | own.fixed_even, own.zeroed_even);
  }
  EGT_HD std::uint32_t odd(std::uint32_t low, const Bits& own) const {
    return without((hash(low) & own.keep_odd) | own.fixed_odd, own.zeroed_odd);
  }
  EGT_HD std::uint32_t operator()(std::uint32_t low) const {
    return low % 2 != 0 ? odd(low, bits(low)) : even(low, bits(low));
  }
  /// `low` is a multiple of four.
  EGT_HD FourWords four(std::uint32_t low) const {
    const Bits& own = bits(low);
    return {{even(low, own), odd(low + 1, own), even(low + 2, own), odd(low + 3, own)}};
  }

 private:
  /// `word` with 0 in the elements whose sign bit is 1 in `word` and `signs`.
  EGT_HD std::uint32_t without(std::uint32_t word, std::uint32_t signs) const {
    const std::uint32_t found = word & signs;
    return word & ~((found << 1) - (found >> sign_bit));
  }
};
/// Without keys. `parameter`: of operand_parameter.
OperandBlock operand_bits(std::uint32_t parameter);

/// As PatternBlock, for the regular kinds. One branch-free form covers all of them: `value` rotated by the
/// index, XOR the index, and a complement at every 20th position.
struct RegularBlock {
  static constexpr std::uint32_t period = 20;
  static constexpr std::uint32_t nowhere = period;

  std::uint32_t value = 0;
  std::uint32_t turn = 0;         ///< left rotation per word, 0 or 1 bits
  std::uint32_t start = 0;        ///< left rotation at low == 0, in bits
  std::uint32_t address = 0;      ///< ~0: XOR with the lower half of the index; else 0
  std::uint32_t place = nowhere;  ///< low % period of the words that are complemented

  EGT_HD std::uint32_t operator()(std::uint32_t low) const {
    return rotated(value, (low * turn + start) % 32) ^ (low & address) ^ (low % period == place ? ~0u : 0u);
  }
  /// `low` is a multiple of four.
  EGT_HD FourWords four(std::uint32_t low) const {
    const std::uint32_t first = rotated(value, (low * turn + start) % 32), own = low & address;
    const std::uint32_t hit = low / 4 % (period / 4) == place / 4 ? ~0u : 0u;
    FourWords words;
    for (std::uint32_t i = 0; i < 4; ++i)
      words.word[i] = rotated(first, turn * i) ^ (own | (i & address)) ^ (hit & (place % 4 == i ? ~0u : 0u));
    return words;
  }
};

/// A pattern prepared for many words: everything independent of the index is computed once.
struct PatternFunction {
  Pattern pattern;
  std::uint32_t field_mask = 0;  ///< which of the 24 bits belong to the contribution or the sum

  explicit PatternFunction(Pattern p) : pattern(p) {
    constexpr std::uint32_t field = (1u << contribution_field_bits) - 1u;
    const bool has_field = p.parameter < contribution_fields;
    if (p.kind == PatternKind::contribution && has_field)
      field_mask = field << contribution_field_bits * p.parameter;
    if (p.kind == PatternKind::contribution_sum)
      field_mask = has_field ? (1u << contribution_field_bits * p.parameter) - 1u : 0xFFFFFFu;
    if (is_operands()) operands_ = operand_bits(p.parameter);
    first_block_ = block(0);
  }

  EGT_HD bool is_contribution() const {
    return pattern.kind == PatternKind::contribution || pattern.kind == PatternKind::contribution_sum;
  }

  EGT_HD bool is_operands() const { return pattern.kind == PatternKind::operands; }

  EGT_HD bool is_regular() const { return pattern.kind >= PatternKind::address; }

  EGT_HD std::uint32_t operator()(std::uint64_t index) const {
    if (is_contribution()) return contribution(index);
    const std::uint32_t high = static_cast<std::uint32_t>(index >> 32);
    const std::uint32_t low = static_cast<std::uint32_t>(index);
    if (is_regular()) return regular_block(high)(low);
    if (is_operands()) return operand_block(high)(low);
    return high == 0 ? first_block_(low) : block(high)(low);
  }

  /// The words with `high` as the upper half of their index; not for contributions, operands and regular
  /// kinds.
  EGT_HD PatternBlock block(std::uint32_t high) const {
    const std::uint64_t key = mix64(pattern.seed + high * 0x9E3779B97F4A7C15ull);
    const bool finite = pattern.kind == PatternKind::finite || pattern.kind == PatternKind::finite_inverse;
    const bool inverse =
        pattern.kind == PatternKind::random_inverse || pattern.kind == PatternKind::finite_inverse;
    return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32),
            finite ? finite_keep : ~0u, (finite ? finite_flip : 0u) ^ (inverse ? ~0u : 0u)};
  }

  /// As `block`, for `operands`.
  EGT_HD OperandBlock operand_block(std::uint32_t high) const {
    const std::uint64_t key = mix64(pattern.seed + high * 0x9E3779B97F4A7C15ull);
    OperandBlock block = operands_;
    block.key = static_cast<std::uint32_t>(key);
    block.middle_key = static_cast<std::uint32_t>(key >> 32);
    return block;
  }

  /// As `block`, for the regular kinds.
  EGT_HD RegularBlock regular_block(std::uint32_t high) const {
    const std::uint32_t seed = static_cast<std::uint32_t>(pattern.seed);
    const std::uint32_t upper = high * 0x9E3779B1u;
    switch (pattern.kind) {
      case PatternKind::address:
        return {.value = upper, .address = ~0u};
      case PatternKind::address_inverse:
        return {.value = ~upper, .address = ~0u};
      case PatternKind::walking_ones:
        return {.value = 1u, .turn = 1, .start = pattern.parameter};
      case PatternKind::walking_zeros:
        return {.value = ~1u, .turn = 1, .start = pattern.parameter};
      case PatternKind::checkerboard:
        return {.value = 0xAAAAAAAAu, .turn = 1, .start = pattern.parameter};
      case PatternKind::modulo_20:
        return {.value = ~seed, .place = place_of_parameter(high)};
      default:
        return {.value = pattern.parameter};  // solid
    }
  }

  /// The word of a contribution or of a sum of them.
  EGT_HD std::uint32_t contribution(std::uint64_t index) const {
    return float_bits(static_cast<float>(contribution_parts(pattern.seed, index) & field_mask));
  }

 private:
  /// The value of low % period at which index % period is the parameter.
  EGT_HD std::uint32_t place_of_parameter(std::uint32_t high) const {
    constexpr std::uint32_t period = RegularBlock::period;
    if (pattern.parameter >= period) return RegularBlock::nowhere;
    const std::uint32_t base = static_cast<std::uint32_t>((std::uint64_t{high} << 32) % period);
    return (pattern.parameter + period - base) % period;
  }

  PatternBlock first_block_;
  OperandBlock operands_;  ///< without keys
};

/// Words of any pattern from `base` on, computed one by one. For the contribution patterns, and for regions
/// whose first 16-byte vector starts at a word index that is no multiple of four.
struct SingleWords {
  PatternFunction function;
  std::uint64_t base;

  EGT_HD std::uint32_t operator()(std::uint32_t low) const { return function(base + low); }
  EGT_HD FourWords four(std::uint32_t low) const {
    return {{(*this)(low), (*this)(low + 1), (*this)(low + 2), (*this)(low + 3)}};
  }
};

/// Result of a verification, accumulated by the device; 64-bit fields so that no count wraps. Starts as
/// `Mismatches::none()`, which the operation Reset writes to device memory. A verification first adds all its
/// words to `count`, then subtracts those that it compared and found equal. A verification that does not run
/// is thus detected.
struct Mismatches {
  static constexpr int max_samples = 8;
  std::uint64_t count;        ///< words that differ or were not compared
  std::uint64_t first_index;  ///< lowest index that differs; ~0: none
  std::uint64_t samples;      ///< number of samples; those beyond max_samples are dropped
  std::uint32_t xor_or;       ///< OR of all expected ^ actual
  std::uint32_t xor_and;      ///< AND of all expected ^ actual (starts at ~0)
  struct Sample {
    std::uint64_t index = 0;
    std::uint32_t expected = 0;
    std::uint32_t actual = 0;
    std::uint32_t reader = 0;  ///< multiprocessor (`%smid`), or CPU of the host, that read the word
    std::uint32_t block = 0;   ///< its thread block, or chunk of words on the host
  } sample[max_samples];

  /// An empty report.
  static Mismatches none() {
    Mismatches m{};
    m.first_index = ~std::uint64_t{0};
    m.xor_and = ~std::uint32_t{0};
    return m;
  }
};

constexpr std::string_view to_string(PatternKind kind) {
  constexpr std::string_view names[] = {
      "random",        "random_inverse",   "finite",  "finite_inverse",  "operands",
      "contribution",  "contribution_sum", "address", "address_inverse", "walking_ones",
      "walking_zeros", "checkerboard",     "solid",   "modulo_20"};
  return names[static_cast<std::uint32_t>(kind)];
}

}  // namespace egt
