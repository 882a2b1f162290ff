#pragma once

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

/// What the kernels take for granted: shapes and types that fit. invalid_argument where they do not.
namespace egt {

Status check_cast(const VectorView& to, const VectorView& from);
Status check_activation_gradient(const MatrixView& gradient, const MatrixView& h,
                                 const VectorView& bias_gradient);
Status check_loss_gradient(const LossGradient& call);
Status check_parameter_range(const ParameterRange& range);

}  // namespace egt
