#include "command/options/choices.hpp"

#include <fmt/format.h>

#include <set>

#include "egt/ranks/agreement.hpp"
#include "workload/train/train_workload.hpp"

namespace egt {

Result<std::vector<Precision>> choose_precisions(const std::string& wanted, const Device& device) {
  constexpr Precision cycle[] = {Precision::bf16, Precision::tf32, Precision::fp16, Precision::fp32,
                                 Precision::fp64};
  if (wanted != "cycle") {
    const Precision one = *parse_precision(wanted);
    const Support support = supports_training(device, one);
    if (!support.yes())
      return Status(StatusCode::unsupported, fmt::format("--precision {}: {}", wanted, support.why_not));
    return std::vector<Precision>{one};
  }
  std::vector<Precision> supported;
  for (const Precision precision : cycle)
    if (device.supports(precision).yes()) supported.push_back(precision);
  return supported;
}

namespace {

Result<BatchShare> choose_batch(const BurnOptions& burn, const RankPlace& place) {
  const std::int64_t global = burn.global_batch.value_or(burn.train.batch * place.size);
  if (global < place.size)
    return Status(
        StatusCode::invalid_argument,
        fmt::format("--global-batch {}: use at least one sample a rank, {} here", global, place.size));
  return share_batch(global, place.rank, place.size);
}

}  // namespace

Result<BurnParts> choose_parts(const Options& options, const Device& device, const RankPlace& place) {
  const BurnOptions& burn = options.burn;
  BurnParts parts;
  parts.train = burn.train;
  parts.collective = burn.collective;
  parts.memory = burn.memory;
  parts.memory.limit = options.run.guard.memory_limit;
  parts.file = burn.file;
  EGT_TRY_ASSIGN(parts.train.precisions, choose_precisions(burn.precision, device));
  EGT_TRY_ASSIGN(parts.batch, choose_batch(burn, place));
  return parts;
}

Status refuse_shared_devices(Control& control, const DeviceInfo& device) {
  EGT_TRY_ASSIGN(const auto devices,
                 control.gather(device.uuid.empty() ? "" : control.place().hostname + " " + device.uuid));
  std::set<std::string> seen;
  Status own;
  for (const std::string& one : devices)
    if (!one.empty() && !seen.insert(one).second)
      own = Status(StatusCode::unavailable,
                   fmt::format("two ranks have the same device ({}): start one rank a device", one));
  return agree(control, own);
}

}  // namespace egt
