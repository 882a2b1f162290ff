#pragma once

#include <cstddef>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

/// Preconditions that every adapter relies on: non-null memory if there are elements, and matching shapes,
/// counts and types. Device::enqueue checks those of operations, on the calling thread. invalid_argument
/// identifies the operation and the cause. An adapter checks its own additional limits.
namespace egt {

/// For elapsed_ms and busy_ms.
Status check_times(const char* operation, const Event& from, const Event& to);
Status check_takes_products(const Stream& stream);
Status check_allocate_shared(std::size_t bytes);
Status check_signals(const void* pages, std::size_t bytes);

}  // namespace egt
