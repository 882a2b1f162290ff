#pragma once

#include <memory>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/device/dnn.hpp"

namespace egt {

/// cuDNN on a device of the CUDA adapter, which must outlive it. fp32, and tf32 and bf16 where the GPU has
/// them. unavailable: this program was built without cuDNN, or the library does not start. The calling
/// thread's current CUDA device becomes that of `device`. Threads may share the result and what it makes, if
/// each uses its own operations and streams.
///
/// cuDNN loads an operation's GPU code when that is first enqueued: enqueue it once before it is captured in
/// a CUDA graph or timed.
Result<std::unique_ptr<Dnn>> open_cuda_dnn(Device& device);

}  // namespace egt
