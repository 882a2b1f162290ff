#pragma once

#include "egt/core/status.hpp"
#include "egt/core/view.hpp"

/// Checks of an operation's arguments; a mismatch is invalid_argument and names operation and operand.
namespace egt::host {

Status check(bool holds, const char* operation, const char* what_is_wrong);
Status check_matrix(const MatrixView& matrix, const char* operation, const char* name);
Status check_vector(const VectorView& vector, const char* operation, const char* name);
Status check_words(const WordsView& words, const char* operation);
/// A pointer that must be there where `count` elements are.
Status check_pointer(const void* data, std::int64_t count, const char* operation, const char* name);

}  // namespace egt::host
