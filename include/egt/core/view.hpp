#pragma once

#include <cstddef>
#include <cstdint>

#include "egt/core/types.hpp"

/// Views of device memory (or pinned host memory if an operation allows it). They never own or free.
namespace egt {

/// `count` 32-bit words.
struct WordsView {
  std::uint32_t* data = nullptr;
  std::uint64_t count = 0;

  std::size_t bytes() const { return count * sizeof(std::uint32_t); }
};

/// `count` contiguous elements.
struct VectorView {
  void* data = nullptr;
  ElementType type = ElementType::f32;
  std::int64_t count = 0;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(type); }
  /// The whole words in it.
  WordsView words() const { return {static_cast<std::uint32_t*>(data), bytes() / sizeof(std::uint32_t)}; }
};

/// A row-major matrix: element (r, c) at r * leading + c. `leading` counts elements, leading >= columns.
struct MatrixView {
  void* data = nullptr;
  ElementType type = ElementType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading = 0;

  MatrixView() = default;
  MatrixView(void* d, ElementType t, std::int64_t r, std::int64_t c, std::int64_t l = 0)
      : data(d), type(t), rows(r), columns(c), leading(l ? l : c) {}

  std::int64_t count() const { return rows * columns; }
  /// The columns [first, first + n).
  MatrixView column_range(std::int64_t first, std::int64_t n) const {
    return {static_cast<char*>(data) + static_cast<std::size_t>(first) * size_of(type), type, rows, n,
            leading};
  }
  /// The rows [first, first + n).
  MatrixView row_range(std::int64_t first, std::int64_t n) const {
    return {static_cast<char*>(data) + static_cast<std::size_t>(first * leading) * size_of(type), type, n,
            columns, leading};
  }
};

}  // namespace egt
