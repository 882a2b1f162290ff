#pragma once

#include <memory>

#include "egt/core/status.hpp"
#include "egt/device/dnn.hpp"

namespace egt {

/// oneDNN on the host device's threads. `device`: of this adapter; must outlive the results. Not thread-safe.
/// unavailable: the program was built without oneDNN.
Result<std::unique_ptr<Dnn>> open_host_dnn(Device& device);

}  // namespace egt
