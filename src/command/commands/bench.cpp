#include "workload/bench/bench_workload.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "command/commands.hpp"
#include "command/run/measurement_run.hpp"
#include "egt/core/units.hpp"
#include "egt/ranks/agreement.hpp"
#include "egt/ranks/topology.hpp"
#include "session/stop_signal.hpp"
#include "workload/ceilings/ceilings_workload.hpp"
#include "workload/file/file_layer.hpp"

namespace egt {
namespace {

/// Allows only the injections possible in bench: slow devices, and failures that every run monitors.
Status check_bench_injections(const std::vector<Injection>& injections, const BenchOptions& bench,
                              int ranks) {
  using enum InjectionKind;
  const bool ceilings = bench.ceilings;
  const bool divides = bench.measures(Parallel::tensor) || bench.measures(Parallel::pipeline);
  for (const Injection& injection : injections) {
    const bool is_of_parts = (row_of(injection.kind).places & in_divided_bench) != 0;
    if (divides && is_of_parts) continue;
    if (is_of_parts && !ceilings)
      return refuse(injection,
                    "bench has no place for it in data parallel trials; add --parallel tensor or pipeline");
    if (divides && injection.kind == slow)
      return refuse(injection, "divided networks have no place for it; use --parallel data or task");
    EGT_TRY(check_place(injection, in_bench, "bench"));
    if (injection.kind == slow && ceilings)
      return refuse(injection, "with --ceilings both sides would be slow; leave it out");
    if (injection.kind == slow && injection.ms)
      return refuse(injection,
                    "the duration of a trial is not known in advance; use count, percent of its work");
    if (injection.kind == hang && injection.layer)
      return refuse(injection, "bench hangs by its main thread only; leave layer out");
  }
  return check_injections(injections, ranks);
}

/// The precisions supported on all ranks, since all ranks measure the same.
Result<std::vector<Precision>> common_precisions(Control& control, std::vector<Precision> own) {
  std::string names = " ";
  for (const Precision precision : own) names += fmt::format("{} ", to_string(precision));
  EGT_TRY_ASSIGN(const auto all, all_gather(control, names));
  std::erase_if(own, [&](Precision precision) {
    const std::string name = fmt::format(" {} ", to_string(precision));
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string& one) { return one.find(name) == std::string::npos; });
  });
  return own;
}

/// Requires a run in which compression applies and has a reference.
Status check_compression(const Options& options, int ranks) {
  const BenchOptions& bench = options.bench;
  const auto given = [&](const char* name) { return options.given.contains(name); };
  if (!bench.compression.is_on())
    return given("steps") ? refuse("--steps",
                                   "of bench it needs --gradient-compression; add it, or use "
                                   "--trial-time")
                          : Status();
  const std::string text = fmt::format("--gradient-compression {}", to_string(bench.compression));
  const auto has = [](const auto& all, auto one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  if (given("gradient-dtype"))
    return refuse(text,
                  "compares with gradients sent as fp32, and bf16 is what --gradient-dtype bf16 does in all "
                  "modes; leave one of them out");
  if (!has(bench.workloads, BenchWorkload::mlp))
    return refuse(text, "of the workloads only mlp has gradients; name it");
  if (!bench.measures(Parallel::data))
    return refuse(text,
                  "only replicas of a whole network send all their gradients; use --parallel "
                  "data or all");
  if (given("mode") && has(bench.modes, BenchMode::p2p))
    return refuse(text,
                  "the mode p2p sums whole gradients in the peers' memory; leave it out of "
                  "--mode");
  if (!has(bench.modes, BenchMode::collective))
    return refuse(text, "is compared with the mode collective; add it to --mode");
  if (ranks == 1) return refuse(text, "one rank sends no gradients; start 2 ranks or more");
  return {};
}

class BenchRun final : public MeasurementRun {
 public:
  Status refine(Options& options, Backend backend, const RankPlace& place) override;
  Status choose(const Options& options, const Platform& platform, Control& control) override;
  void describe(StartBody& body) const override;
  void begin(RecordQueue& records) override;
  std::string io_directory() const override {
    return parts_.bench.ceilings && ceilings_.file.enabled ? ceilings_.file.directory : "";
  }

 private:
  std::unique_ptr<MeasurementWorkload> make_suite(Environment& environment) override {
    if (parts_.bench.ceilings) return std::make_unique<CeilingsSuite>(environment, *control_, ceilings_);
    return std::make_unique<BenchSuite>(environment, *control_, parts_);
  }
  Status choose_ceilings(const Options& options, const Device& device, Control& control);
  bool trains() const {
    const auto& workloads = parts_.bench.workloads;
    return parts_.bench.ceilings ||
           std::find(workloads.begin(), workloads.end(), BenchWorkload::mlp) != workloads.end();
  }

  BenchParts parts_;
  CeilingParts ceilings_;  ///< with --ceilings
  Control* control_ = nullptr;
  RankPlace place_;
  std::string reported_;
};

Status BenchRun::refine(Options& options, Backend, const RankPlace& place) {
  reported_ = options.command_defaults;
  EGT_TRY(check_compression(options, place.size));
  if (place.size == 1 && options.given.contains("mode") &&
      options.bench.modes != std::vector{BenchMode::single})
    return refuse(fmt::format("--mode {}", options.given.at("mode")),
                  "one rank has no others to work with; use single, or start 2 ranks or more");
  const Parallel parallel = options.bench.parallel;
  const auto& workloads = options.bench.workloads;
  if ((parallel == Parallel::tensor || parallel == Parallel::pipeline) &&
      std::find(workloads.begin(), workloads.end(), BenchWorkload::mlp) == workloads.end())
    return refuse(
        fmt::format("--parallel {}", options.given.at("parallel")),
        "divides layers, and of the workloads only mlp has them; name it, or use data, task or all");
  const auto runs = [&](BenchWorkload one) {
    return std::find(workloads.begin(), workloads.end(), one) != workloads.end();
  };
  if (parallel == Parallel::task && !(runs(BenchWorkload::voxelize) && runs(BenchWorkload::multimodal)))
    return refuse("--parallel task",
                  "runs voxelize and multimodal at the same time; name both in --workload");
  if (parallel != Parallel::data && place.size == 1 && options.given.contains("parallel"))
    return refuse(fmt::format("--parallel {}", options.given.at("parallel")),
                  "one rank has no others to divide work with; use data, or start 2 ranks or more");
  return check_bench_injections(options.run.injections, options.bench, place.size);
}

Status BenchRun::choose(const Options& options, const Platform& platform, Control& control) {
  control_ = &control;
  place_ = control.place();
  parts_.bench = options.bench;
  parts_.bench.compared_steps = options.burn.steps.value_or(parts_.bench.compared_steps);
  parts_.train = options.burn.train;
  parts_.stopping = [] { return StopSignal::received() != 0; };
  auto precisions = choose_precisions(options.burn.precision, *platform.device);
  EGT_TRY(agree(control, precisions.status()));
  parts_.train.precisions = std::move(precisions.value());
  if (parts_.bench.ceilings) EGT_TRY(choose_ceilings(options, *platform.device, control));
  EGT_TRY_ASSIGN(parts_.places, gather_places(control));
  const SensorLimits limits = platform.sensor ? platform.sensor->limits() : SensorLimits();
  EGT_TRY_ASSIGN(const auto models,
                 all_gather(control, describe_device_model(platform.device->info(), limits)));
  for (const std::string& model : models)
    parts_.models.push_back(
        static_cast<int>(std::find(models.begin(), models.end(), model) - models.begin()));
  return {};
}

Status BenchRun::choose_ceilings(const Options& options, const Device& device, Control& control) {
  ceilings_ = {.trial_seconds = parts_.bench.trial_seconds,
               .train = parts_.train,
               .file = options.burn.file,
               .products = parts_.train.precisions,
               .stopping = parts_.stopping};
  std::vector<Precision>& products = ceilings_.products;
  for (const Precision narrow : {Precision::fp8, Precision::int8}) {
    const bool is_new = std::find(products.begin(), products.end(), narrow) == products.end();
    if (is_new && device.supports(narrow).yes()) products.push_back(narrow);
  }
  for (auto* precisions : {&ceilings_.train.precisions, &ceilings_.products}) {
    EGT_TRY_ASSIGN(*precisions, common_precisions(control, std::move(*precisions)));
  }
  const FileOptions& file = ceilings_.file;
  Status there = file.enabled ? make_posix_file_layer()->space(file.directory).status() : Status();
  if (!there.ok()) there = {there.code(), fmt::format("--io-dir {}", there.what())};
  if (there.ok() && file.enabled) there = refuse_memory(file, file_system_of(file.directory));
  return agree(control, there);
}

void BenchRun::describe(StartBody& body) const {
  if (!trains()) return;
  body.batch = parts_.train.batch;
  body.layers = parts_.train.layers;
  body.global_batch = parts_.train.batch * place_.size;
  body.precisions = parts_.train.precisions;
}

void BenchRun::begin(RecordQueue& records) {
  if (place_.rank != 0) return;
  if (parts_.bench.ceilings) {
    records.notice(
        fmt::format("bench: every part compared with the machine's limit, {:.3g} s each; defaults:{}",
                    parts_.bench.trial_seconds, reported_.empty() ? " none" : reported_));
    return;
  }
  const std::size_t trials =
      plan_trials(parts_.bench, parts_.train.batch, parts_.train.precisions, place_.size).size();
  records.notice(fmt::format(
      "bench: {} of {:.3g} s on {}; defaults:{}", counted(trials, "trial"), parts_.bench.trial_seconds,
      counted(static_cast<std::uint64_t>(place_.size), "device"), reported_.empty() ? " none" : reported_));
  if (place_.size == 1)
    records.notice("bench: one rank, so single only: p2p, collective and hetero want 2 or more");
}

}  // namespace

std::unique_ptr<RunPurpose> make_bench() {
  return std::make_unique<BenchRun>();
}

}  // namespace egt
