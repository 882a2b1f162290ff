#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

std::string percent(const Json& entry, const char* name) {
  const auto share = value_at<double>(entry, name);
  return cell(share ? std::optional(100 * *share) : std::nullopt, "{:.1f} %");
}

std::string bytes(const Json& entry, const char* name) {
  const auto value = value_at<double>(entry, name);
  return value ? format_bytes(*value) : not_measured;
}

/// Whether the entry uses more than data parallelism.
bool divides(const Json& entry) {
  const Json& plan = member(entry, "parallel");
  return value_at<int>(plan, "tensor").value_or(1) > 1 || value_at<int>(plan, "pipeline").value_or(1) > 1 ||
         text_at(entry, "mode") == "task";
}

Row row_of_mode(const Json& entry) {
  return {text_at(entry, "test_name"),
          fmt::format("{}, {}", value_at<std::int64_t>(entry, "devices").value_or(0), text_at(entry, "mode")),
          cell(value_at<double>(member(entry, "step_ms"), "p50"), "{:.4g}"),
          cell(value_at<double>(entry, "speedup"), "{:.2f}x"),
          percent(entry, "efficiency"),
          cell(value_at<double>(entry, "exposed_communication_ms"), "{:.3g}"),
          percent(entry, "exposed_communication_share"),
          percent(entry, "bubble_share"),
          percent(entry, "bubble_share_formula"),
          bytes(entry, "state_bytes"),
          bytes(entry, "memory_bytes")};
}

/// The pipeline stages, and the reference of the gradient comparison.
std::string cut_of(const Json& entry) {
  std::string text;
  for (const Json& stage : member(entry, "stages"))
    if (stage.is_array() && stage.size() == 2)
      text += fmt::format("{}{} to {}", text.empty() ? "layers " : ", ", stage[0].dump(), stage[1].dump());
  if (!text.empty())
    text += fmt::format(", {} micro-batches", value_at<int>(entry, "micro_batches").value_or(0));
  if (const std::string against = text_at(entry, "verified_against"); !against.empty())
    text += fmt::format("{}gradients compared with {}", text.empty() ? "" : "; ", against);
  return text;
}

}  // namespace

std::string parallel_text(const Json& result, const std::string& title) {
  std::vector<Row> rows = {{"Test", "Devices", "Step ms", "Speedup", "Efficiency", "Exposed ms", "Of step",
                            "Bubble", "By formula", "State", "Memory"}};
  std::string notes, recommended;
  const Json& entries = member(result, "results");
  const auto divided = [&](const std::string& test) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const Json& one) { return divides(one) && text_at(one, "test_name") == test; });
  };
  for (const Json& entry : entries) {
    const bool is_of_several = value_at<std::int64_t>(entry, "devices").value_or(0) > 1;
    if (!is_of_several || !divided(text_at(entry, "test_name"))) continue;
    rows.push_back(row_of_mode(entry));
    if (const std::string cut = cut_of(entry); !cut.empty())
      notes += printable(fmt::format("  {} ({}): {}", rows.back()[0], rows.back()[1], cut)) + "\n";
    if (const std::string text = text_at(entry, "recommendation"); !text.empty())
      recommended += printable("  " + text) + "\n";
  }
  if (rows.size() == 1) return "";
  return titled_table(title, std::move(rows)) + notes + recommended;
}

}  // namespace egt
