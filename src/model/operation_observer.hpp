#pragma once

#include "egt/core/operations.hpp"
#include "egt/core/status.hpp"
#include "egt/device/handles.hpp"
#include "model/pass_tensor.hpp"

namespace egt {

/// Called while operations of a training step are enqueued. Work that it enqueues on `stream` sees the
/// operands immediately before the operation and the results immediately after it.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  virtual Status before(const Operation&, Stream& /*stream*/) { return {}; }
  /// `tensor`: the result. For an OptimizerStep, it is the weight gradient of the bucket's lowest layer.
  virtual Status after(const Operation&, const PassTensor& /*tensor*/, Stream& /*stream*/) { return {}; }
};

}  // namespace egt
