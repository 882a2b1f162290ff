#pragma once

#include <functional>
#include <memory>

#include "device/cuda/cuda_stream.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// As Device::capture: a CUDA graph of the work that `enqueue` enqueues. The stream's device is current.
Result<std::unique_ptr<CapturedWork>> capture_graph(CudaStream& stream,
                                                    const std::function<Status()>& enqueue);
cudaError_t launch_graph(CapturedWork& work, CudaStream& stream);

}  // namespace egt
