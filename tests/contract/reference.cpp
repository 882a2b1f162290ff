#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace egt::reference {
namespace {

/// A binary floating-point format: `mantissa` stored bits; the exponent of 1.x is in [lowest, -lowest + 1].
struct Format {
  int mantissa;
  int lowest;
};

Format format_of(ElementType type) {
  switch (type) {
    case ElementType::f64:
      return {52, -1022};
    case ElementType::f32:
      return {23, -126};
    case ElementType::f16:
      return {10, -14};
    case ElementType::bf16:
      return {7, -126};
    default:
      return {};
  }
}

int width(ElementType type) {
  return static_cast<int>(8 * size_of(type));
}

}  // namespace

std::uint64_t encode(ElementType type, double value) {
  const auto [mantissa, lowest] = format_of(type);
  const std::uint64_t sign = std::uint64_t{std::signbit(value)} << (width(type) - 1);
  const std::uint64_t infinity = static_cast<std::uint64_t>(2 - 2 * lowest + 1) << mantissa;
  if (std::isnan(value)) return sign | infinity | (std::uint64_t{1} << (mantissa - 1));
  if (std::isinf(value)) return sign | infinity;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), lowest);
  // In units of the last place; a carry into the next exponent is correct without extra code.
  const auto units = static_cast<std::uint64_t>(std::nearbyint(std::ldexp(magnitude, mantissa - exponent)));
  const std::uint64_t bits = units + (static_cast<std::uint64_t>(exponent - lowest) << mantissa);
  return sign | std::min(bits, infinity);
}

double decode(ElementType type, std::uint64_t bits) {
  const auto [mantissa, lowest] = format_of(type);
  const bool negative = (bits >> (width(type) - 1)) & 1;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << mantissa) - 1);
  const int exponent =
      static_cast<int>((bits >> mantissa) & ((std::uint64_t{1} << (width(type) - 1 - mantissa)) - 1));
  double magnitude;
  if (exponent == 2 - 2 * lowest + 1)
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(static_cast<double>(fraction), lowest - mantissa);
  else
    magnitude = std::ldexp(static_cast<double>(fraction + (std::uint64_t{1} << mantissa)),
                           exponent - 1 + lowest - mantissa);
  return negative ? -magnitude : magnitude;
}

double rounding_error(ElementType type) {
  return std::ldexp(1.0, -format_of(type).mantissa - 1);
}

Array::Array(ElementType type, std::int64_t count)
    : type_(type), count_(count), bytes_(static_cast<std::size_t>(count) * size_of(type)) {}

std::uint64_t Array::bits(std::int64_t i) const {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes_.data() + static_cast<std::size_t>(i) * size_of(type_), size_of(type_));
  return bits;
}

void Array::set(std::int64_t i, double value) {
  const std::uint64_t bits = encode(type_, value);
  std::memcpy(bytes_.data() + static_cast<std::size_t>(i) * size_of(type_), &bits, size_of(type_));
}

Matrix::Matrix(ElementType type, std::int64_t rows, std::int64_t columns, std::int64_t leading)
    : array(type, rows * leading), rows_(rows), columns_(columns), leading_(leading) {
  for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, padding);
}

bool Matrix::padding_is_intact() const {
  for (std::int64_t r = 0; r < rows_; ++r)
    for (std::int64_t c = columns_; c < leading_; ++c)
      if (get(r, c) != padding) return false;
  return true;
}

void fill_uniform(Array& array, Engine& engine) {
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, uniform(engine));
}

void fill_uniform(Matrix& matrix, Engine& engine) {
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  for (std::int64_t r = 0; r < matrix.rows(); ++r)
    for (std::int64_t c = 0; c < matrix.columns(); ++c) matrix.set(r, c, uniform(engine));
}

}  // namespace egt::reference
