#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "egt/core/math/hd.hpp"
#include "egt/core/types.hpp"

namespace egt {

/// Half the distance of neighbours, relative to the value.
double unit_roundoff(ElementType type);
double largest_finite(ElementType type);

/// `undecided`: a sum may have overflowed on its way, and that would explain the element.
enum class ElementVerdict : int { right, wrong, undecided };

/// How far an element of a right GEMM of k terms may be from the exact one, whatever the order of its sums:
/// |d - exact| <= terms * sum |op(a)| |op(b)| + stored * (|d| + |bias|) + quantum. An exact value computed in
/// fp64 is included. The sources are in gemm_rounding.cpp.
struct GemmRounding {
  double terms = 0;
  double stored = 0;
  double quantum = 0;      ///< results below the normal numbers, which may be flushed to zero
  double largest = 0;      ///< the largest finite element; beyond it infinity is right
  double largest_sum = 0;  ///< the same for the sums, while they are made
  /// Smaller operands count as this in the magnitudes, where units align terms by exponents that subnormal
  /// operands share with it; 0: none do.
  double operand_floor = 0;
  bool has_relu = false;  ///< max(sum + bias, 0): a NaN may have become 0, and so may an overflow

  static GemmRounding of(Precision precision, ElementType stored_as, std::int64_t k, bool has_relu = false);

  /// At least the sum of |op(a)| |op(b)| with that floor, from the plain sum and those of |op(a)|, of
  /// |op(b)|.
  EGT_HD double magnitude(double products, double a, double b, std::int64_t k) const {
    return products + operand_floor * (a + b + static_cast<double>(k) * operand_floor);
  }

  /// `magnitude`: as above, times the scales, and |bias|. The sum alone may be rounded before the bias is
  /// added.
  EGT_HD double bound(double actual, double magnitude, double bias) const {
    return terms * magnitude + stored * (fabs(actual) + fabs(bias)) + quantum;
  }

  /// `bias` is 0 where there is none.
  EGT_HD ElementVerdict judge(double actual, double expected, double magnitude, double bias) const {
    const bool is_finite = actual - actual == 0;
    if (has_relu && !(magnitude * (1 + 2 * terms) < largest)) return ElementVerdict::undecided;
    if (!(magnitude - magnitude == 0)) {
      // NaN or infinity in an operand makes every element that it enters one or the other. But sums in fp64
      // may be infinite because this verification overflowed.
      if (largest_sum == DBL_MAX) return ElementVerdict::undecided;
      return is_finite ? ElementVerdict::wrong : ElementVerdict::right;
    }
    if (is_finite)
      return fabs(actual - expected) <= bound(actual, magnitude, bias) ? ElementVerdict::right
                                                                       : ElementVerdict::wrong;
    if (magnitude * (1 + 2 * terms) >= largest_sum) return ElementVerdict::undecided;
    if (actual != actual) return ElementVerdict::wrong;
    // How far to the side of this infinity the element can be.
    const double reach = (actual > 0 ? expected : -expected) + bound(largest, magnitude, bias);
    return reach < largest ? ElementVerdict::wrong : ElementVerdict::right;
  }
};

/// The result of a verification of GEMMs. All zero before it.
struct GemmMismatches {
  std::uint64_t compared;   ///< elements: all of d, else the verification itself failed
  std::uint64_t wrong;      ///< elements that differ by more than the rounding
  std::uint64_t undecided;  ///< elements that are not finite, where an overflow may be why
  std::uint64_t largest;    ///< bits of the largest share of its bound that a right element differs by, fp64
  std::uint64_t index;      ///< of one wrong element, counted row by row
  double expected, actual, bound;  ///< of it

  double largest_share() const;
};

}  // namespace egt
