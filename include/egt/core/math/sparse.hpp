#pragma once

#include <cstddef>
#include <cstdint>

#include "egt/core/math/half.hpp"
#include "egt/core/math/hd.hpp"
#include "egt/core/view.hpp"

/// Sparse vectors, and the selection of a vector's top-k elements, equal on every device.
namespace egt {

struct SparseElement {
  std::uint32_t index;
  float value;
};

/// `count` contiguous elements with distinct indices.
struct SparseView {
  SparseElement* data = nullptr;
  std::int64_t count = 0;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * sizeof(SparseElement); }
};

namespace math {

/// Sort key of elements, 31 bits. NaN is above infinity, -0 equals 0.
EGT_HD std::uint32_t magnitude_key(float value) {
  return float_bits(value) & 0x7fffffffu;
}

/// A key's digits, highest first: radix selection counts elements digit by digit.
struct KeyDigit {
  int shift, bits;

  EGT_HD std::uint32_t of(std::uint32_t key) const { return (key >> shift) & ((1u << bits) - 1); }
  /// The digits above this one, as a number.
  EGT_HD std::uint32_t before(std::uint32_t key) const { return key >> (shift + bits); }
};
constexpr KeyDigit key_digits[] = {{20, 11}, {10, 10}, {0, 10}};
constexpr int max_digit_values = 1 << 11;

}  // namespace math

/// Device memory for the top-k search; its initial content is arbitrary.
struct TopKScratch {
  static constexpr int chunks = 1024;  ///< consecutive ranges of about the same length

  std::uint32_t histogram[math::max_digit_values];
  std::uint32_t key;   ///< of the smallest selected element, as far as its digits are known
  std::uint32_t left;  ///< how many elements with that key to select: those of lowest index
  std::uint32_t larger[chunks], equal[chunks];
};

/// Selects the k elements of max magnitude, for gradient compression with error feedback. First residual +=
/// gradient. The top k of the residual by magnitude (math::magnitude_key) then become `selected`, by
/// ascending index; ties prefer the lowest index. The residual becomes 0 at these positions.
struct TopKSelection {
  static constexpr const char* name = "select_top_k";

  VectorView gradient;             ///< f32, below 2^32 elements; only read
  float* residual = nullptr;       ///< device memory, same count
  SparseView selected;             ///< device memory; its count is k, 0 .. gradient.count
  TopKScratch* scratch = nullptr;  ///< device memory for one TopKScratch
};

}  // namespace egt
