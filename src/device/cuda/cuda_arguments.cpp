#include "cuda_arguments.hpp"

#include <fmt/format.h>

#include "kernels/launch.hpp"

namespace egt {
namespace {

Status wrong(std::string what) {
  return Status(StatusCode::invalid_argument, std::move(what));
}

bool is_gradient_type(ElementType type) {
  return type == ElementType::f32 || type == ElementType::bf16;
}

Status check_data(const void* data, std::int64_t count) {
  if (count == 0 || data != nullptr) return {};
  return wrong(fmt::format("{} elements were given without memory", count));
}

Status check_column_sums(const MatrixView& m, const VectorView& sums) {
  EGT_TRY(check_vector(sums));
  if (sums.count != m.columns)
    return wrong(fmt::format("{} column sums were asked for of {} columns", sums.count, m.columns));
  if (!is_gradient_type(sums.type))
    return wrong(fmt::format("column sums are f32 or bf16, not {}", to_string(sums.type)));
  if (m.columns > kernels::widest_column_sums)
    return Status(StatusCode::unsupported,
                  fmt::format("a layer of {} neurons is wider than {}, the most here", m.columns,
                              kernels::widest_column_sums));
  return {};
}

}  // namespace

Status check_vector(const VectorView& vector) {
  if (vector.count < 0) return wrong(fmt::format("a vector cannot have {} elements", vector.count));
  return check_data(vector.data, vector.count);
}

Status check_matrix(const MatrixView& matrix) {
  if (matrix.rows < 0 || matrix.columns < 0 || matrix.leading < matrix.columns)
    return wrong(fmt::format("a matrix cannot be {} x {} with {} elements from row to row", matrix.rows,
                             matrix.columns, matrix.leading));
  return check_data(matrix.data, matrix.count());
}

Status check_words(const WordsView& words) {
  return words.count == 0 || words.data != nullptr ? Status() : wrong("words were given without memory");
}

Status check_cast(const VectorView& to, const VectorView& from) {
  EGT_TRY(check_vector(to));
  EGT_TRY(check_vector(from));
  if (to.count == from.count) return {};
  return wrong(fmt::format("{} elements cannot be cast into {}", from.count, to.count));
}

Status check_activate(const MatrixView& h, const float* bias, int extreme_iterations) {
  EGT_TRY(check_matrix(h));
  EGT_TRY(check_data(bias, h.columns));
  return extreme_iterations >= 0 ? Status() : wrong("the number of extreme iterations is below 0");
}

Status check_activation_gradient(const MatrixView& gradient, const MatrixView& h,
                                 const VectorView& bias_gradient) {
  EGT_TRY(check_matrix(gradient));
  EGT_TRY(check_matrix(h));
  if (gradient.rows != h.rows || gradient.columns != h.columns || gradient.type != h.type)
    return wrong("a gradient and its activations differ in shape or type");
  return check_column_sums(gradient, bias_gradient);
}

Status check_loss_gradient(const LossGradient& call) {
  EGT_TRY(check_matrix(call.z));
  EGT_TRY(check_matrix(call.x));
  EGT_TRY(check_data(call.bias, call.z.columns));
  EGT_TRY(check_data(call.loss, 1));
  if (call.z.rows != call.x.rows || call.z.type != call.x.type)
    return wrong("outputs and inputs differ in batch or type");
  if (call.z.count() > 0 && call.x.columns < 1) return wrong("there are no inputs to learn from");
  return check_column_sums(call.z, call.bias_gradient);
}

Status check_parameter_range(const ParameterRange& range, std::initializer_list<const float*> states) {
  for (const float* state : states) EGT_TRY(check_data(state, range.count));
  EGT_TRY(check_data(range.weights, range.count));
  EGT_TRY(check_vector(range.gradient));
  if (range.gradient.count != range.count ||
      (range.compute_copy.data != nullptr && range.compute_copy.count != range.count))
    return wrong("a range's weights, gradient and copy differ in count");
  if (!is_gradient_type(range.gradient.type))
    return wrong(fmt::format("gradients are f32 or bf16, not {}", to_string(range.gradient.type)));
  return {};
}

}  // namespace egt
