#pragma once

#include "egt/device/device.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/reproducer.hpp"

namespace egt {

/// invalid_argument: an unknown operation, or wrong arguments. The message begins with a verb.
Status check_call(const Reproducer& reproducer);
/// True if an injected fault of the call strikes: on the GPU, or on the host the rank, of the first fault.
bool is_accused(const Reproducer& reproducer, const DeviceInfo& device, int rank);
/// True if the call has an injected fault.
bool has_injected_fault(const Reproducer& reproducer);
/// Repeats the call on a device. `strikes`: with its injected fault.
Result<Repetitions> repeat(Device& device, const Reproducer& reproducer, bool strikes,
                           const RepetitionLimits& limits);

/// Repeats the reproducers that the previous rank of this node has written so far, if it has the same device
/// model, for `seconds` in total. Reports the counts, or why there are none. The ranks do not wait for each
/// other, and share only the run directory.
void repeat_for_peer(Environment& environment, double seconds, const std::function<bool()>& is_stopped);

}  // namespace egt
