#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "egt/core/types.hpp"

namespace egt {

/// A range of values of the operands of memory-resident GEMMs, d = a b^T. In exact bands, every product is a
/// multiple of `granule`, and sums of up to `largest_exact_terms` products are exact in the accumulator, in
/// any order. Wrong elements are then detected by sums of rows, without a tolerance. In other bands, random
/// rows are recomputed.
struct OperandBand {
  /// Bits of an element.
  struct Bits {
    std::uint64_t keep = 0;   ///< random
    std::uint64_t fixed = 0;  ///< 1
  };
  Precision precision = Precision::fp32;
  const char* name = "";
  bool is_exact = true;
  Bits a, b;
  int granule = 0;               ///< log2; of exact bands
  bool is_slow_on_cpus = false;  ///< subnormal operands: a hundred times slower
  bool is_rectified = false;     ///< negative elements of a are 0
};

/// Inner dimension; for 8-bit precisions twice that.
constexpr std::int64_t largest_exact_terms = 8192;

std::span<const OperandBand> operand_bands();

/// The band of the `number`th operands in a precision, by index in operand_bands(). One of three is exact,
/// one has all bits, and one is rectified. `left_out`: exact bands that are not used.
std::size_t band_in_turn(Precision precision, std::uint64_t number, const std::set<std::size_t>& left_out);

/// `Pattern::parameter` of PatternKind::operands. `band`: index in operand_bands(). `matrix_words`: 32-bit
/// words of each matrix, a power of two from 4 on; a and b alternate, from index 0 on.
std::uint32_t operand_parameter(std::size_t band, std::uint64_t matrix_words);

}  // namespace egt
