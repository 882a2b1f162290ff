#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

bool is_load_test(const Json& entry) {
  return entry.is_object() && member(entry, "rank").is_null() && !text_at(entry, "model_name").empty();
}

Row test_row(const Json& entry) {
  const auto figure = [&](const char* name, const char* format) {
    return cell(value_at<double>(entry, name), format);
  };
  const auto batch = value_at<std::int64_t>(entry, "batch_size");
  return {text_at(entry, "test_name"),
          batch ? fmt::format("{}", *batch) : not_measured,
          figure("throughput_samples_per_second", "{:.4g}"),
          figure("avg_iteration_time_ms", "{:.4g}"),
          figure("iteration_time_p50_ms", "{:.4g}"),
          figure("iteration_time_p95_ms", "{:.4g}"),
          figure("iteration_time_p99_ms", "{:.4g}"),
          figure("tflops", "{:.3g}"),
          figure("loss_first", "{:.3g}"),
          figure("loss_last", "{:.3g}"),
          value_at<bool>(entry, "success").value_or(false) ? "yes" : "NO"};
}

/// "Training | 2.1 s | 1.2 s | 1.75x" for the retrieval test.
std::string speedup_table(const Json& entry) {
  const auto figure = [&](const std::string& name, const char* format) {
    return cell(value_at<double>(entry, name.c_str()), format);
  };
  std::vector<Row> rows = {{"Phase", "Single device",
                            fmt::format("All {}", value_at<std::int64_t>(entry, "devices").value_or(0)),
                            "Speedup"}};
  for (const auto& [title, name] :
       {std::pair("Training", "training"), std::pair("Evaluation", "evaluation")}) {
    const std::string stem(name);
    rows.push_back({title, figure(stem + "_single_seconds", "{:.3g} s"),
                    figure(stem + "_all_seconds", "{:.3g} s"), figure(stem + "_speedup", "{:.2f}x")});
  }
  return titled_table("Retrieval, one device alone and all together", std::move(rows)) +
         fmt::format("  recall@1 {}, @5 {}, @10 {}; before training @1 {}, by chance {}\n",
                     figure("recall_at_1", "{:.3f}"), figure("recall_at_5", "{:.3f}"),
                     figure("recall_at_10", "{:.3f}"), figure("recall_at_1_untrained", "{:.3f}"),
                     figure("recall_at_1_chance", "{:.4f}"));
}

}  // namespace

std::string loadtest_text(const Json& result) {
  std::vector<Row> rows = {
      {"Test", "Batch", "Samples/s", "ms", "p50", "p95", "p99", "TFLOP/s", "Loss", "to", "Passed"}};
  std::string notes, retrieval;
  for (const Json& entry : member(result, "results")) {
    if (!is_load_test(entry)) continue;
    rows.push_back(test_row(entry));
    const std::string name = text_at(entry, "test_name");
    for (const char* field : {"failure", "bottleneck", "images"})
      if (const std::string text = text_at(entry, field); !text.empty())
        notes += printable(fmt::format("  {}: {}", name, text)) + "\n";
    if (text_at(entry, "test_type") == "retrieval" && member(entry, "evaluation_speedup").is_number())
      retrieval = speedup_table(entry);
  }
  if (rows.size() == 1) return {};
  std::string text = titled_table("Load tests, all devices together", std::move(rows)) + notes + retrieval;
  if (text.front() == '\n') text.erase(0, 1);
  return text;
}

}  // namespace egt
