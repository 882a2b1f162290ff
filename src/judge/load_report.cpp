#include "judge/load_report.hpp"

#include <optional>
#include <utility>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

constexpr double max_ratio = 1.1;  ///< tolerance of two measurements near a hardware limit

}  // namespace

PartReport load_report(const std::vector<PartReport>& parts, double seconds, const Json& telemetry) {
  PartReport load;
  load.name = "load";
  load.description = "How hard the device worked: its power, and what its parts did beside each other";
  const auto mean = value_at<double>(telemetry, "power_w_mean"),
             limit = value_at<double>(telemetry, "power_limit_w");
  std::optional<double> ratio, index;
  if (mean && limit && *limit > 0) ratio = *mean / *limit;
  LoadFigures all;
  all.alone = Json::object();
  for (const PartReport& part : parts) add(all, part.load);
  const Json& control = member(telemetry, "mix");
  if (all.mix.is_object()) all.mix["control"] = member(control, "control");
  load.figures = {{"power_w_mean", or_null(mean)},
                  {"power_limit_w", or_null(limit)},
                  {"power_ratio", or_null(ratio)},
                  {"power_sensor", member(control, "power_sensor")},
                  {"alone", all.alone},
                  {"mix", all.mix}};
  Json mistrusted = Json::object();
  for (const auto& [name, alone] : load_fields) {
    std::optional<double> share;
    if (all.*alone && seconds > 0) share = *(all.*alone) / seconds;
    if (share && *share > 1) mistrusted[name] = *std::exchange(share, std::nullopt);
    load.figures[name] = or_null(share);
    if (share) index = index.value_or(0) + *share;
  }
  for (auto& [name, ratio] : load.figures["alone"].items())
    if (name.starts_with("ratio_") && ratio.is_number() && ratio.get<double>() > max_ratio)
      mistrusted[name] = std::exchange(ratio, nullptr);
  load.figures["work_index"] = or_null(index);
  load.figures["mistrusted"] = mistrusted.empty() ? Json() : mistrusted;
  return load;
}

}  // namespace egt
