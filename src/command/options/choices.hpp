#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command/options/options.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/control.hpp"
#include "workload/table.hpp"

/// Resolves a run's options for its device.
namespace egt {

/// The precisions that a value of --precision selects on this device. unsupported: the device lacks it.
Result<std::vector<Precision>> choose_precisions(const std::string& wanted, const Device& device);

/// The parts of the main job for the options of `burn`. unsupported: the precision; invalid_argument: the
/// batch.
Result<BurnParts> choose_parts(const Options& options, const Device& device, const RankPlace& place);

/// Max samples per step of each rank: as many as fit into a tenth of its free memory, but at least an even
/// share and at most four times an even share. Collective.
Result<std::vector<std::int64_t>> choose_most_samples(const BurnParts& parts, const Device& device,
                                                      Control& control);

/// Fails if two ranks use the same device, for example due to CUDA_VISIBLE_DEVICES or a scheduler.
/// Collective.
Status refuse_shared_devices(Control& control, const DeviceInfo& device);

}  // namespace egt
