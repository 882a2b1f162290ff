#pragma once

#include <initializer_list>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

/// What the kernels take for granted: shapes and types that fit. invalid_argument where they do not.
namespace egt {

Status check_vector(const VectorView& vector);
Status check_matrix(const MatrixView& matrix);
Status check_words(const WordsView& words);
Status check_cast(const VectorView& to, const VectorView& from);
Status check_activate(const MatrixView& h, const float* bias, int extreme_iterations);
Status check_activation_gradient(const MatrixView& gradient, const MatrixView& h,
                                 const VectorView& bias_gradient);
Status check_loss_gradient(const LossGradient& call);
/// `states`: the optimizer's arrays, of the range's count.
Status check_parameter_range(const ParameterRange& range, std::initializer_list<const float*> states);

}  // namespace egt
