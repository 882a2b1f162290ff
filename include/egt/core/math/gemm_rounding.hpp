#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <vector>

#include "egt/core/math/hd.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/types.hpp"

namespace egt {

/// Half the distance of neighbouring values, relative to the value.
double unit_roundoff(ElementType type);
double largest_finite(ElementType type);

namespace math {

/// Weight of column `j` in VerifyExactGemm: odd, 1 to 255, so that no single error is multiplied by 0.
EGT_HD double exact_weight(std::int64_t j) {
  return static_cast<double>((lowbias32(static_cast<std::uint32_t>(j)) & 255u) | 1u);
}

}  // namespace math

/// `undecided`: a partial sum may have overflowed, which would explain the element.
enum class ElementVerdict : int { right, wrong, undecided };

/// Max error of an element of a correct GEMM of k terms, for any order of its sums: |d - exact| <= terms *
/// sum |op(a)| |op(b)| + stored * (|d| + |bias|) + quantum. It includes the error of `exact` itself, which is
/// computed in fp64. The sources are in gemm_rounding.cpp.
struct GemmRounding {
  double terms = 0;
  double stored = 0;
  double quantum = 0;      ///< for results below the normal range, which may be flushed to zero
  double largest = 0;      ///< max finite element; above it, infinity is right
  double largest_sum = 0;  ///< max finite partial sum
  /// Min magnitude that the bound assumes for an operand, because tensor cores align subnormal operands as if
  /// they were the min normal number. 0: no minimum.
  double operand_floor = 0;
  bool has_relu = false;  ///< max(sum + bias, 0): a NaN or an overflow may have become 0

  static GemmRounding of(Precision precision, ElementType stored_as, std::int64_t k, bool has_relu = false);

  /// Upper bound of the sum of |op(a)| |op(b)| with operands raised to `operand_floor`. `products`: the sum
  /// without it; `a`, `b`: the sums of |op(a)| and of |op(b)|.
  EGT_HD double magnitude(double products, double a, double b, std::int64_t k) const {
    return products + operand_floor * (a + b + static_cast<double>(k) * operand_floor);
  }

  /// `magnitude`: as returned above, times the scales, plus |bias|. Allows a rounding before the bias.
  EGT_HD double bound(double actual, double magnitude, double bias) const {
    return terms * magnitude + stored * (fabs(actual) + fabs(bias)) + quantum;
  }

  /// `bias` is 0 if there is none.
  EGT_HD ElementVerdict judge(double actual, double expected, double magnitude, double bias) const {
    const bool is_finite = actual - actual == 0;
    if (has_relu && !(magnitude * (1 + 2 * terms) < largest)) return ElementVerdict::undecided;
    if (!(magnitude - magnitude == 0)) {
      // NaN or infinity in an operand makes all elements that use it NaN or infinite. However, sums in fp64
      // may be infinite because this verification overflowed.
      if (largest_sum == DBL_MAX) return ElementVerdict::undecided;
      return is_finite ? ElementVerdict::wrong : ElementVerdict::right;
    }
    if (is_finite)
      return fabs(actual - expected) <= bound(actual, magnitude, bias) ? ElementVerdict::right
                                                                       : ElementVerdict::wrong;
    if (magnitude * (1 + 2 * terms) >= largest_sum) return ElementVerdict::undecided;
    if (actual != actual) return ElementVerdict::wrong;
    // Max value of the element that rounding allows, in the direction of this infinity.
    const double reach = (actual > 0 ? expected : -expected) + bound(largest, magnitude, bias);
    return reach < largest ? ElementVerdict::wrong : ElementVerdict::right;
  }
};

/// Result of GEMM verifications. All zero before them.
struct GemmMismatches {
  static constexpr int max_samples = 64;
  std::uint64_t compared;   ///< elements; fewer than d has: the verification did not complete
  std::uint64_t wrong;      ///< elements outside the rounding bound
  std::uint64_t undecided;  ///< non-finite elements that an overflow may explain
  std::uint64_t largest;    ///< fp64 bits of the max error of a right element, as a share of its bound
  /// Both are maxima, since a report starts with zeros.
  struct Range {
    std::uint32_t last, complement_of_first;

    EGT_HD static Range of(std::int64_t line) {
      return {static_cast<std::uint32_t>(line), ~static_cast<std::uint32_t>(line)};
    }
    std::uint32_t first() const { return ~complement_of_first; }
  };
  Range rows;     ///< of d, of all wrong elements, also of rows that were not located
  Range columns;  ///< of all wrong elements
  struct Sample {
    std::uint32_t row, column;
    double expected, actual, bound;
  } sample[max_samples];  ///< the first wrong elements, in any order

  double largest_share() const;
  /// The recorded wrong elements in row-major order.
  std::vector<Sample> samples() const;
};

}  // namespace egt
