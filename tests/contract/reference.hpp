#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "egt/core/types.hpp"
#include "egt/core/view.hpp"

/// Plain double-precision reference for the adapters. Formats are encoded and decoded arithmetically, not
/// with the bit operations of the tested code.
namespace egt::reference {

/// The type's bits of `value`, rounded once, ties to even. A NaN results in some NaN.
std::uint64_t encode(ElementType type, double value);
double decode(ElementType type, std::uint64_t bits);
inline double rounded(ElementType type, double value) {
  return decode(type, encode(type, value));
}
/// Half the distance between neighbours, relative to the value: 2^-8 for bf16.
double rounding_error(ElementType type);

/// Elements of one type in host memory, read and written as double.
class Array {
 public:
  Array(ElementType type, std::int64_t count);

  ElementType type() const { return type_; }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return bytes_.size(); }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }

  std::uint64_t bits(std::int64_t i) const;
  double get(std::int64_t i) const { return decode(type_, bits(i)); }
  void set(std::int64_t i, double value);

  friend bool operator==(const Array&, const Array&) = default;

 private:
  ElementType type_;
  std::int64_t count_;
  std::vector<std::byte> bytes_;
};

/// A row-major matrix in an Array; the elements between `columns` and `leading` hold `padding`.
class Matrix {
 public:
  static constexpr double padding = 7.0;

  Matrix(ElementType type, std::int64_t rows, std::int64_t columns, std::int64_t leading);

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t leading() const { return leading_; }
  ElementType type() const { return array.type(); }
  double get(std::int64_t r, std::int64_t c) const { return array.get(r * leading_ + c); }
  void set(std::int64_t r, std::int64_t c, double value) { array.set(r * leading_ + c, value); }
  /// True if every element outside the columns still holds the padding.
  bool padding_is_intact() const;

  Array array;

 private:
  std::int64_t rows_, columns_, leading_;
};

using Engine = std::mt19937_64;

/// Uniform in [-1, 1), rounded to the type.
void fill_uniform(Array& array, Engine& engine);
void fill_uniform(Matrix& matrix, Engine& engine);

}  // namespace egt::reference
