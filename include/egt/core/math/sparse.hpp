#pragma once

#include <cstddef>
#include <cstdint>

#include "egt/core/math/half.hpp"
#include "egt/core/math/hd.hpp"
#include "egt/core/view.hpp"

/// Sparse vectors, and how the largest elements of a vector are told, the same on every device.
namespace egt {

struct SparseElement {
  std::uint32_t index;
  float value;
};

/// `count` elements in a row, of distinct indices.
struct SparseView {
  SparseElement* data = nullptr;
  std::int64_t count = 0;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * sizeof(SparseElement); }
};

namespace math {

/// Elements are ordered by it: of 31 bits. NaN is above infinity, -0 equals 0.
EGT_HD std::uint32_t magnitude_key(float value) {
  return float_bits(value) & 0x7fffffffu;
}

/// A key's digits, from the highest: elements are counted by one after the other (radix selection).
struct KeyDigit {
  int shift, bits;

  EGT_HD std::uint32_t of(std::uint32_t key) const { return (key >> shift) & ((1u << bits) - 1); }
  /// What the digits before this one are.
  EGT_HD std::uint32_t before(std::uint32_t key) const { return key >> (shift + bits); }
};
constexpr KeyDigit key_digits[] = {{20, 11}, {10, 10}, {0, 10}};
constexpr int most_digit_values = 1 << 11;

}  // namespace math

/// Device memory in which the largest elements are searched; its content is free.
struct TopKScratch {
  static constexpr int chunks = 1024;  ///< consecutive ranges of about the same length

  std::uint32_t histogram[math::most_digit_values];
  std::uint32_t key;   ///< of the smallest element that is selected, as far as its digits are known
  std::uint32_t left;  ///< elements with that key that are selected: those of the lowest index
  std::uint32_t larger[chunks], equal[chunks];
};

/// The k largest elements of a gradient, for its compression with error feedback: residual += gradient; of
/// that sum the k elements of the largest magnitude (math::magnitude_key) become `selected`, by ascending
/// index, of equal ones those of the lowest index; the residual becomes 0 in their places.
struct TopKSelection {
  VectorView gradient;             ///< f32, below 2^32 elements; only read
  float* residual = nullptr;       ///< device memory, of as many elements
  SparseView selected;             ///< device memory; its count is k, 0 .. gradient.count
  TopKScratch* scratch = nullptr;  ///< device memory, one
};

}  // namespace egt
