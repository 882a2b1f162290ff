#include "judge/load_report.hpp"

#include <optional>
#include <utility>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

constexpr std::pair<const char*, std::optional<double> LoadFigures::*> shares[] = {
    {"share_extreme", &LoadFigures::extreme},
    {"share_products", &LoadFigures::products},
    {"share_memory", &LoadFigures::memory},
    {"share_collective", &LoadFigures::collective},
    {"share_files", &LoadFigures::files},
    {"share_host_copies", &LoadFigures::host_copies},
    {"share_peer_copies", &LoadFigures::peer_copies}};

constexpr double most_ratio = 1.1;  ///< to a limit of the machine: two measurements differ by less

std::optional<double> sum(std::optional<double> a, std::optional<double> b) {
  return a || b ? std::optional(a.value_or(0) + b.value_or(0)) : std::nullopt;
}

}  // namespace

PartReport load_report(const std::vector<PartReport>& parts, double seconds, const Json& telemetry) {
  PartReport load;
  load.name = "load";
  load.description = "How hard the device worked: its power, and what its parts did beside each other";
  const auto mean = value_at<double>(telemetry, "power_w_mean"),
             limit = value_at<double>(telemetry, "power_limit_w");
  std::optional<double> ratio, index;
  if (mean && limit && *limit > 0) ratio = *mean / *limit;
  Json alone = Json::object(), mix;
  for (const PartReport& part : parts) {
    if (part.load.alone.is_object()) alone.update(part.load.alone);
    if (!part.load.mix.is_null()) mix = part.load.mix;
  }
  const Json& control = member(telemetry, "mix");
  if (mix.is_object()) mix["control"] = member(control, "control");
  load.figures = {{"power_w_mean", or_null(mean)},
                  {"power_limit_w", or_null(limit)},
                  {"power_ratio", or_null(ratio)},
                  {"power_sensor", member(control, "power_sensor")},
                  {"alone", alone},
                  {"mix", mix}};
  Json mistrusted = Json::object();
  for (const auto& [name, figure] : shares) {
    std::optional<double> alone, share;
    for (const PartReport& part : parts) alone = sum(alone, part.load.*figure);
    if (alone && seconds > 0) share = *alone / seconds;
    if (share && *share > 1) mistrusted[name] = *std::exchange(share, std::nullopt);
    load.figures[name] = or_null(share);
    index = sum(index, share);
  }
  for (auto& [name, ratio] : load.figures["alone"].items())
    if (name.starts_with("ratio_") && ratio.is_number() && ratio.get<double>() > most_ratio)
      mistrusted[name] = std::exchange(ratio, nullptr);
  load.figures["work_index"] = or_null(index);
  load.figures["mistrusted"] = mistrusted.empty() ? Json() : mistrusted;
  return load;
}

}  // namespace egt
