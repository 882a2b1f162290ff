#include "device/arguments.hpp"
#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

template <typename T>
void multiply_rows(const MatrixView& m, const double* x, double* y, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* elements = row<T>(m, r);
    double sum = 0;
    for (std::int64_t c = 0; c < m.columns; ++c)
      sum += static_cast<double>(Element<T>::load(elements[c])) * x[c];
    y[r] = sum;
  }
}

template <typename T>
void multiply_columns(const MatrixView& m, const double* x, double* y, std::int64_t begin, std::int64_t end) {
  for (std::int64_t c = begin; c < end; ++c) y[c] = 0;
  for (std::int64_t r = 0; r < m.rows; ++r) {
    const T* elements = row<T>(m, r);
    for (std::int64_t c = begin; c < end; ++c)
      y[c] += static_cast<double>(Element<T>::load(elements[c])) * x[r];
  }
}

}  // namespace

Status multiply_vector(MatrixView m, bool transposed, const double* x, double* y, HostStream& stream) {
  EGT_TRY(check_multiply_vector(m, transposed, x, y));
  stream.enqueue([=, &stream] {
    const auto multiply = [&](auto type) {
      using T = typename decltype(type)::type;
      const std::int64_t sums = transposed ? m.columns : m.rows;
      for_ranges(stream, sums, 64, [&](std::int64_t begin, std::int64_t end) {
        if (transposed)
          multiply_columns<T>(m, x, y, begin, end);
        else
          multiply_rows<T>(m, x, y, begin, end);
      });
    };
    if (m.type == ElementType::i8)
      multiply(std::type_identity<std::int8_t>{});
    else if (m.type == ElementType::i32)
      multiply(std::type_identity<std::int32_t>{});
    else
      with_type(m.type, multiply);
    return Status();
  });
  return {};
}

}  // namespace egt::host
