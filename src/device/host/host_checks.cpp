#include "egt/device/host/host_checks.hpp"

#include <fmt/format.h>

namespace egt::host {

Status check(bool holds, const char* operation, const char* what_is_wrong) {
  if (holds) return {};
  return Status(StatusCode::invalid_argument, fmt::format("{}: {}", operation, what_is_wrong));
}

Status check_pointer(const void* data, std::int64_t count, const char* operation, const char* name) {
  if (count == 0 || data != nullptr) return {};
  return Status(StatusCode::invalid_argument,
                fmt::format("{}: {} has {} elements but no data", operation, name, count));
}

Status check_matrix(const MatrixView& matrix, const char* operation, const char* name) {
  if (matrix.rows < 0 || matrix.columns < 0 || matrix.leading < matrix.columns)
    return Status(StatusCode::invalid_argument,
                  fmt::format("{}: {} cannot be {} x {} with {} elements from row to row", operation, name,
                              matrix.rows, matrix.columns, matrix.leading));
  return check_pointer(matrix.data, matrix.count(), operation, name);
}

Status check_vector(const VectorView& vector, const char* operation, const char* name) {
  if (vector.count < 0)
    return Status(StatusCode::invalid_argument,
                  fmt::format("{}: {} cannot have {} elements", operation, name, vector.count));
  return check_pointer(vector.data, vector.count, operation, name);
}

Status check_words(const WordsView& words, const char* operation) {
  return check(words.count == 0 || words.data != nullptr, operation, "there are words but no data");
}

}  // namespace egt::host
