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

Status check_column_sums(const MatrixView& m, const VectorView& sums) {
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

Status check_cast(const VectorView& to, const VectorView& from) {
  if (to.count == from.count) return {};
  return wrong(fmt::format("{} elements cannot be cast into {}", from.count, to.count));
}

Status check_activation_gradient(const MatrixView& gradient, const MatrixView& h,
                                 const VectorView& bias_gradient) {
  if (gradient.rows != h.rows || gradient.columns != h.columns || gradient.type != h.type)
    return wrong("a gradient and its activations differ in shape or type");
  return check_column_sums(gradient, bias_gradient);
}

Status check_loss_gradient(const LossGradient& call) {
  if (call.z.rows != call.x.rows || call.z.type != call.x.type)
    return wrong("outputs and inputs differ in batch or type");
  if (call.x.columns < 1) return wrong("there are no inputs to learn from");
  return check_column_sums(call.z, call.bias_gradient);
}

Status check_parameter_range(const ParameterRange& range) {
  if (range.gradient.count != range.count ||
      (range.compute_copy.data != nullptr && range.compute_copy.count != range.count))
    return wrong("a range's weights, gradient and copy differ in count");
  if (!is_gradient_type(range.gradient.type))
    return wrong(fmt::format("gradients are f32 or bf16, not {}", to_string(range.gradient.type)));
  return {};
}

}  // namespace egt
