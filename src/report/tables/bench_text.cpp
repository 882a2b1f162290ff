#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "report/compare/comparison.hpp"
#include "report/compare/comparison_parts.hpp"
#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

using Entries = std::vector<const Json*>;

std::optional<double> figure(const Json& entry, const char* name) {
  return value_at<double>(entry, name);
}

std::string amount(const std::optional<double>& value) {
  return value ? format_amount(*value) : not_measured;
}

std::string share(const std::optional<double>& value) {
  return cell(value ? std::optional(100 * *value) : std::nullopt, "{:.1f} %");
}

/// "2, p2p"; for a single device its rank.
std::string ranks_text(const Json& entry) {
  const Json& ranks = member(entry, "ranks");
  const std::string mode = text_at(entry, "mode");
  if (mode == "single" && ranks.is_array() && ranks.size() == 1 && ranks[0].is_number_integer())
    return fmt::format("rank {} alone", ranks[0].get<std::int64_t>());
  return fmt::format("{}, {}", value_at<std::int64_t>(entry, "devices").value_or(0), mode);
}

Row row_of(const Json& entry) {
  const Json& step = member(entry, "step_ms");
  const auto memory = figure(entry, "memory_bytes");
  return {text_at(entry, "test_name"),
          ranks_text(entry),
          cell(figure(step, "p50"), "{:.4g}"),
          cell(figure(step, "p95"), "{:.4g}"),
          cell(figure(entry, "spread_percent"), "{:.1f} %"),
          amount(figure(entry, "items_per_second")),
          cell(figure(entry, "speedup"), "{:.2f}x"),
          share(figure(entry, "efficiency")),
          share(figure(entry, "efficiency_slowest")),
          cell(figure(entry, "exposed_communication_ms"), "{:.3g}"),
          memory ? format_bytes(*memory) : not_measured,
          cell(figure(entry, "gpu_utilization_percent"), "{:.0f} %"),
          cell(figure(entry, "power_w"), "{:.0f} W"),
          cell(figure(entry, "sm_clock_mhz"), "{:.0f} MHz")};
}

/// Details that do not fit into the row.
std::string notes_of(const Json& entry) {
  const std::string what = fmt::format("{} ({})", text_at(entry, "test_name"), ranks_text(entry));
  std::string text;
  const auto note = [&](const std::string& one) {
    text += printable(fmt::format("  {}: {}", what, one)) + "\n";
  };
  if (const std::string why = text_at(entry, "not_possible"); !why.empty())
    note(fmt::format("not possible: {}", why));
  if (!value_at<bool>(entry, "success").value_or(false))
    note(fmt::format("failed: {}", text_at(entry, "failure")));
  if (const auto ratio = figure(entry, "ratio_copy_bandwidth"))
    note(fmt::format("{} GB/s, {:.0f} % of the copy bandwidth",
                     cell(figure(entry, "gb_per_second"), "{:.4g}"), 100 * *ratio));
  if (const auto bytes = figure(entry, "sent_bytes"), whole = figure(entry, "whole_sent_bytes");
      bytes && whole)
    note(fmt::format(
        "{} sent per rank and step, {} without compression; a step takes {:.2f} times as long",
        format_bytes(*bytes), format_bytes(*whole),
        figure(member(entry, "step_ms"), "p50").value_or(0) / figure(entry, "whole_step_ms").value_or(0)));
  for (const Json& task : member(entry, "tasks"))
    note(fmt::format("{} on {} {}", text_at(task, "test_name"),
                     member(task, "ranks").size() == 1 ? "rank" : "ranks", member(task, "ranks").dump()));
  if (const auto ms = figure(entry, "sequence_ms"))
    note(fmt::format(
        "the same batches one job after the other, on all devices: {:.4g} ms, {:.2f} times as long", *ms,
        figure(entry, "sequence_speedup").value_or(0)));
  if (const auto excess = figure(entry, "loss_excess_percent"))
    note(fmt::format("loss {:.4g} after as many steps as whole gradients give {:.4g}: {:+.1f} %, {} 10 %",
                     figure(entry, "loss").value_or(0), figure(entry, "whole_loss").value_or(0), *excess,
                     *excess <= 10 ? "within" : "not within"));
  if (const auto tflops = figure(entry, "tflops")) note(format_amount(1e12 * *tflops, "FLOP/s"));
  if (const auto even = figure(entry, "even_items_per_second"))
    note(fmt::format("shares {}, {} {}/s; in equal shares {} {}/s", member(entry, "shares").dump(),
                     amount(figure(entry, "items_per_second")), text_at(entry, "items"), amount(even),
                     text_at(entry, "items")));
  return text;
}

std::string table_of(const std::string& workload, const Entries& entries) {
  const std::string items = text_at(*entries.front(), "items");
  std::vector<Row> rows = {{"Test", "Devices", "Step ms", "p95", "Spread", items + "/s", "Speedup",
                            "Efficiency", "Of slowest", "Exposed ms", "Memory", "Util", "Power", "Clock"}};
  std::string notes;
  for (const Json* entry : entries) {
    rows.push_back(row_of(*entry));
    notes += notes_of(*entry);
  }
  return titled_table(printable(workload), std::move(rows)) + notes;
}

/// Entries by workload, in order of first appearance.
std::vector<std::pair<std::string, Entries>> by_workload(const Json& result) {
  std::vector<std::pair<std::string, Entries>> groups;
  for (const Json& entry : member(result, "results")) {
    const std::string workload = text_at(entry, "workload");
    if (workload.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](auto& one) { return one.first == workload; });
    if (group == groups.end()) group = groups.insert(groups.end(), {workload, {}});
    group->second.push_back(&entry);
  }
  return groups;
}

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

std::string bench_text(const Json& result) {
  if (const std::string ceilings = ceilings_text(result); !ceilings.empty()) return ceilings;
  std::string text;
  if (const auto alone = compare_results({{.path = "", .label = "", .result = result, .problem = ""}}, {});
      alone.ok())
    text = scaling_text(alone.value());
  for (const auto& [workload, entries] : by_workload(result)) text += table_of(workload, entries);
  text += parallel_text(result);
  if (!text.empty() && text.front() == '\n') text.erase(0, 1);
  return text;
}

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
