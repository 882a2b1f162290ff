#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command/options/options.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/control.hpp"
#include "workload/table.hpp"

/// What a run's options mean on the device that it found.
namespace egt {

/// Those that a name of --precision means on this device. unsupported: it has it not.
Result<std::vector<Precision>> choose_precisions(const std::string& wanted, const Device& device);

/// The parts of the main job as `burn` asks for them. unsupported: the precision; invalid_argument: the
/// batch.
Result<BurnParts> choose_parts(const Options& options, const Device& device, const RankPlace& place);

/// The samples of a step that each rank has memory for: up to four times an even share, where a tenth of its
/// device's free memory holds them; an even share at least. All ranks call it.
Result<std::vector<std::int64_t>> choose_most_samples(const BurnParts& parts, const Device& device,
                                                      Control& control);

/// Fails where two ranks took the same device, which CUDA_VISIBLE_DEVICES or a scheduler can bring about.
/// All ranks call it.
Status refuse_shared_devices(Control& control, const DeviceInfo& device);

}  // namespace egt
