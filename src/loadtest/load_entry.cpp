#include "loadtest/load_entry.hpp"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr double mib = 1 << 20;

/// In the order of rank_figures.
enum Figure : std::size_t {
  throughput,
  mean_ms,
  p50_ms,
  p95_ms,
  p99_ms,
  max_ms,
  duration,
  iterations,
  loss_first,
  loss_last,
  tflops,
  peak_memory,
  peak_utilization,
  figures_a_rank
};
constexpr const char* names[] = {"throughput_samples_per_second",
                                 "avg_iteration_time_ms",
                                 "iteration_time_p50_ms",
                                 "iteration_time_p95_ms",
                                 "iteration_time_p99_ms",
                                 "iteration_time_max_ms",
                                 "duration_seconds",
                                 "iterations",
                                 "loss_first",
                                 "loss_last",
                                 "tflops",
                                 "peak_gpu_memory_mb",
                                 "peak_gpu_utilization_percent"};
static_assert(std::size(names) == figures_a_rank);

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

}  // namespace

void LoadRun::add(const SensorReading& reading, const HostLoad& host) {
  gpu_utilization.add(reading.gpu_utilization_percent);
  if (reading.memory_used_bytes)
    gpu_memory_mb.add(std::optional(static_cast<double>(*reading.memory_used_bytes) / mib));
  cpu.add(host.cpu_percent);
  host_memory.add(host.memory_percent);
}

std::vector<double> rank_figures(const LoadRun& run, const LoadJobFigures& job) {
  std::vector<double> figures(figures_a_rank, none);
  figures[loss_first] = job.loss_first;
  figures[loss_last] = job.loss_last;
  figures[peak_memory] = run.gpu_memory_mb.max().value_or(none);
  figures[peak_utilization] = run.gpu_utilization.max().value_or(none);
  figures[duration] = run.seconds;
  const auto count = static_cast<double>(run.ms.count());
  figures[iterations] = count;
  if (count == 0 || run.seconds <= 0) return figures;
  figures[throughput] = count * job.samples / run.seconds;
  figures[mean_ms] = run.ms.mean();
  figures[p50_ms] = run.ms.quantile(0.50);
  figures[p95_ms] = run.ms.quantile(0.95);
  figures[p99_ms] = run.ms.quantile(0.99);
  figures[max_ms] = run.ms.max();
  figures[tflops] = count * job.flops / run.seconds / 1e12;
  return figures;
}

Json entry_figures(const LoadTest& test, const LoadTestParts& parts, std::span<const double> all, int ranks,
                   const LoadRun& run, const LoadJobFigures& job) {
  Json figures = Json::object();
  Json per_rank = Json::array();
  const auto of = [&](int rank, std::size_t figure) {
    return all[static_cast<std::size_t>(rank) * figures_a_rank + figure];
  };
  const auto figure_json = [](std::size_t figure, double value) {
    return figure == iterations ? Json(static_cast<std::int64_t>(value)) : number(value);
  };
  const auto over_ranks = [&](std::size_t figure, auto combine) {
    double result = of(0, figure);
    for (int rank = 1; rank < ranks; ++rank) result = combine(result, of(rank, figure));
    return figure_json(figure, result);
  };
  const auto most = [](double a, double b) { return std::fmax(a, b); };
  const auto sum = [](double a, double b) { return a + b; };
  for (std::size_t figure = 0; figure < figures_a_rank; ++figure)
    figures[names[figure]] =
        figure == throughput || figure == tflops ? over_ranks(figure, sum) : over_ranks(figure, most);
  for (int rank = 0; rank < ranks; ++rank) {
    Json& own = per_rank.emplace_back(Json{{"rank", rank}});
    for (std::size_t figure = 0; figure < figures_a_rank; ++figure)
      own[names[figure]] = figure_json(figure, of(rank, figure));
  }
  const std::string model = test.type == LoadTestType::retrieval ? "encoder" : to_string(test.network);
  figures.update({{"test_type", to_string(test.type)},
                  {"model_name", model},
                  {"batch_size", test.batch > 0 ? Json(test.batch) : Json()},
                  {"precision", std::string(to_string(parts.precision))},
                  {"mode", parts.options.mode == LoadTestMode::ddp ? "ddp" : "independent"},
                  {"image_size", test.batch > 0 ? Json(parts.options.pixels) : Json()},
                  {"devices", ranks},
                  {"gpu_utilization_percent", run.gpu_utilization.json()},
                  {"gpu_memory_mb", run.gpu_memory_mb.json()},
                  {"cpu_percent", run.cpu.json()},
                  {"host_memory_percent", run.host_memory.json()},
                  {"bottleneck", job.bottleneck.empty() ? Json() : Json(job.bottleneck)},
                  {"per_rank", std::move(per_rank)}});
  figures.update(job.more);
  return figures;
}

PartReport report_of(const LoadEntry& entry) {
  PartReport report;
  report.name = entry.test.name;
  report.description = entry.test.description;
  report.success = entry.failure.empty();
  report.failure = entry.failure;
  report.of_all_ranks = true;
  report.figures = entry.figures;
  return report;
}

std::string line_of(const LoadEntry& entry) {
  const auto figure = [&](const char* name) { return value_at<double>(entry.figures, name); };
  std::string text = entry.test.name + ":";
  if (const auto rate = figure(names[throughput]))
    text += fmt::format(" {:.4g} samples/s, {:.4g} ms an iteration (p99 {:.4g})", *rate,
                        figure(names[mean_ms]).value_or(none), figure(names[p99_ms]).value_or(none));
  if (const auto recall = figure("recall_at_1"))
    text += fmt::format(", recall@1 {:.3f} (chance {:.4f})", *recall,
                        figure("recall_at_1_chance").value_or(none));
  if (const auto last = figure(names[loss_last]); last && entry.test.type == LoadTestType::training)
    text += fmt::format(", loss {:.4g} to {:.4g}", figure(names[loss_first]).value_or(none), *last);
  if (const std::string bottleneck = text_at(entry.figures, "bottleneck"); !bottleneck.empty())
    text += fmt::format("; {}", bottleneck);
  return entry.failure.empty() ? text : fmt::format("{} failed: {}", text, entry.failure);
}

}  // namespace egt
