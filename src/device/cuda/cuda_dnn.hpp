#pragma once

#include <memory>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/device/dnn.hpp"

namespace egt {

/// cuDNN on a device of the CUDA adapter, which must outlive it. fp32, and tf32 and bf16 if the GPU supports
/// them. unavailable: built without cuDNN, or the library fails to start. The calling thread's current CUDA
/// device becomes that of `device`. Threads may share the result if each uses its own operations and streams.
///
/// cuDNN loads an operation's GPU code at its first use. Enqueue it once before you time it or capture it in
/// a CUDA graph.
Result<std::unique_ptr<Dnn>> open_cuda_dnn(Device& device);

}  // namespace egt
