#include "command/options/choices.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "egt/ranks/agreement.hpp"
#include "model/pass_gemms.hpp"
#include "workload/train/train_workload.hpp"

namespace egt {

Result<std::vector<Precision>> choose_precisions(const std::string& wanted, const Device& device) {
  // Without fp8, since it needs sizes that not every network has. The memory-resident GEMMs use it in every
  // epoch anyway.
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
  // selftest also injects faults into fp8 training, unlike burn, which has fp8 only in memory-resident GEMMs.
  const bool has_fp8 = supports_training(device, Precision::fp8).yes() &&
                       mlp::check_fp8_shapes(burn.train.layers, parts.batch.local).ok();
  if (options.command == "selftest" && burn.precision == "cycle" && has_fp8)
    parts.train.precisions.push_back(Precision::fp8);
  return parts;
}

Result<std::vector<std::int64_t>> choose_most_samples(const BurnParts& parts, const Device& device,
                                                      Control& control) {
  constexpr std::int64_t max_times = 4;
  constexpr double share_of_free = 0.1;
  std::int64_t own = parts.batch.local;
  if (const auto memory = device.memory(); memory.ok()) {
    const auto bytes = static_cast<double>(bytes_per_sample(parts.train.layers, parts.train.precisions));
    const double fit = share_of_free * static_cast<double>(memory.value().free_bytes) / bytes;
    own = std::max(own, std::min(max_times * own, static_cast<std::int64_t>(fit)));
  }
  EGT_TRY_ASSIGN(const auto texts, all_gather(control, std::to_string(own)));
  std::vector<std::int64_t> most;
  for (const std::string& text : texts) most.push_back(std::stoll(text));
  return most;
}

Status refuse_shared_devices(Control& control, const DeviceInfo& device) {
  EGT_TRY_ASSIGN(const auto devices,
                 control.gather(device.uuid.empty() ? "" : control.place().hostname + " " + device.uuid));
  std::set<std::string> seen;
  Status own;
  for (const std::string& one : devices)
    if (!one.empty() && !seen.insert(one).second)
      own = Status(StatusCode::unavailable,
                   fmt::format("two ranks have the same device ({}): start one rank per device", one));
  return agree(control, own);
}

}  // namespace egt
