#include "egt/core/math/gemm_rounding.hpp"

#include <algorithm>
#include <bit>
#include <tuple>

namespace egt {
namespace {

/// k u / (1 - k u): the error bound for sums of k products in any order, with an error of up to u per
/// operation (Higham, "Accuracy and stability of numerical algorithms", 2002, section 3.1).
double gamma(std::int64_t k, double unit_roundoff) {
  const double error = static_cast<double>(k) * unit_roundoff;
  return error / (1 - error);
}

/// Error of subnormal results: half their spacing, or the whole smallest normal number if they may be flushed
/// to zero (no conversion flushes those of fp16).
double underflow_error(ElementType type) {
  return type == ElementType::f64 ? DBL_MIN : type == ElementType::f16 ? 0x1p-25 : 0x1p-126;
}

}  // namespace

double unit_roundoff(ElementType type) {
  switch (type) {
    case ElementType::f64:
      return 0x1p-53;
    case ElementType::f16:
      return 0x1p-11;
    case ElementType::bf16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

double largest_finite(ElementType type) {
  switch (type) {
    case ElementType::f64:
      return DBL_MAX;
    case ElementType::f16:
      return 65504;
    case ElementType::bf16:
      return 0x1.FEp127;
    default:
      return FLT_MAX;
  }
}

/// Error sources of the sums (the formula must cover all of them):
/// - fp64 units round by 2^-53 per sum. fp32 units round by 2^-24 per sum, or truncate by 2^-23.
/// - Tensor cores multiply exactly, align the terms of a block of four or more with its max term, truncate
///   them at 2^-23 of that term or below, and normalize. For blocks of four: 6 errors of 2^-23 for 4 terms,
///   below 2^-22 per term (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores",
///   PeerJ CS, 2021; Blanchard et al., "Mixed precision block fused multiply-add", SIAM J. Sci. Comput.,
///   2020).
/// - Tensor cores keep subnormal operands, but align terms before they normalize them. Such an operand is
///   truncated as if it were the smallest normal one (seen on an H100 with fp16).
/// - tf32 keeps 11 bits of each operand, rounded or truncated: 2^-10 each. Operands that this rounds to
///   infinity (above 2^128 - 2^116) are not covered.
/// - fp8 terms, 32 at a time and with the sum so far, are truncated at 2^-13 of the max term. Such sums of
///   128 are added in fp32 (DeepSeek-V3, 2024): 4 times 33 errors of 2^-13.
/// - The verification's fp64 sums: gamma(k). A bias adds one term and a second rounding of the result.
GemmRounding GemmRounding::of(Precision precision, ElementType stored_as, std::int64_t k, bool has_relu) {
  if (precision == Precision::int8) return {.largest = INT32_MAX, .largest_sum = DBL_MAX};  // exact
  const bool fp64 = precision == Precision::fp64;
  const ElementType sums = fp64 ? ElementType::f64 : ElementType::f32;
  const std::int64_t terms = k + (has_relu ? 2 : 0);
  const double sum_error = gamma(terms, fp64                           ? 0x1p-53
                                        : precision == Precision::fp32 ? 0x1p-23
                                                                       : 0x1p-22) +
                           (precision == Precision::fp8 ? 132 * 0x1p-13 : 0);
  const double operand_error = precision == Precision::tf32 ? 2 * 0x1p-10 + 0x1p-20 : 0;
  const double of_verification = gamma(terms + 3, 0x1p-53), of_this_formula = 1 + 0x1p-20;
  const double unit = unit_roundoff(stored_as);
  const double roundings = has_relu ? 2 + 4 * unit : 1;
  return {.terms = of_this_formula * (operand_error + (1 + operand_error) * sum_error + of_verification),
          .stored = of_this_formula * (roundings * unit + of_verification),
          .quantum = of_this_formula * (roundings * underflow_error(stored_as) +
                                        static_cast<double>(2 * terms) * underflow_error(sums)),
          .largest = largest_finite(stored_as),
          .largest_sum = largest_finite(sums),
          .operand_floor = precision == Precision::fp16  ? 0x1p-14
                           : precision == Precision::fp8 ? 0x1p-6
                                                         : 0,
          .has_relu = has_relu};
}

double GemmMismatches::largest_share() const {
  return std::bit_cast<double>(largest);
}

std::vector<GemmMismatches::Sample> GemmMismatches::samples() const {
  std::vector<Sample> all(sample, sample + std::min<std::uint64_t>(wrong, max_samples));
  std::sort(all.begin(), all.end(), [](const Sample& a, const Sample& b) {
    return std::tie(a.row, a.column) < std::tie(b.row, b.column);
  });
  return all;
}

}  // namespace egt
