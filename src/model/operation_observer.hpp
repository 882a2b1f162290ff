#pragma once

#include <variant>

#include "egt/device/device.hpp"
#include "model/pass_tensor.hpp"

namespace egt {

/// In place: h = activation(h + bias), as Device::activate.
struct Activation {
  MatrixView h;
  const float* bias = nullptr;
  ExtremeTerm extreme;
};

/// In place, as Device::activation_gradient.
struct ActivationGradient {
  MatrixView gradient, h;
  VectorView bias_gradient;
};

/// Update of one bucket, as Device::sgd_step or adam_step.
struct OptimizerStep {
  ParameterRange range;
  float *first = nullptr, *second = nullptr;  ///< moments; null: not kept
  std::variant<math::Sgd, math::Adam> rule;
};

/// An operation of a training step.
using Operation = std::variant<Gemm, Activation, LossGradient, ActivationGradient, OptimizerStep>;

/// Called while operations are enqueued. Work that it enqueues on `stream` sees the operands immediately
/// before the operation and the results immediately after it.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  virtual Status before(const Operation&, Stream& /*stream*/) { return {}; }
  /// `tensor`: the result. For an OptimizerStep, it is the weight gradient of the bucket's lowest layer.
  virtual Status after(const Operation&, const PassTensor& /*tensor*/, Stream& /*stream*/) { return {}; }
};

}  // namespace egt
