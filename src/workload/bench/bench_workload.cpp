#include "workload/bench/bench_workload.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "egt/ranks/agreement.hpp"
#include "workload/bench/task/task_trials.hpp"
#include "workload/common/findings.hpp"

namespace egt {
namespace {

/// A device is reported if it is slower than others of its model by this factor in all tests, and in this
/// many tests or more. On the host backend, other processes share the cores, so its limits are higher.
constexpr double gpu_slowness_limit = 1.1, host_slowness_limit = 1.5;
constexpr int gpu_fewest_tests = 1, host_fewest_tests = 2;

std::int64_t max_of(const std::vector<std::int64_t>& shares) {
  return *std::max_element(shares.begin(), shares.end());
}

std::string text_of(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

BenchSuite::BenchSuite(Environment& environment, Control& control, const BenchParts& parts)
    : MeasurementWorkload(environment, parts.stopping),
      control_(control),
      parts_(parts),
      context_{.meet = [this](std::span<const double> own, const char* phase) -> Result<Meeting> {
                 EGT_TRY(meet({}, own, phase));
                 return met_;
               },
               .reading = environment.reading,
               .memory_bytes = [this] { return used_memory_bytes(); },
               .trial_seconds = parts.bench.trial_seconds},
      plan_(plan_trials(parts.bench, parts.train.batch, parts.train.precisions, ranks())),
      answers_(parts.models),
      reporter_(environment) {}

BenchGroups::Needs BenchSuite::needs() const {
  BenchGroups::Needs needs{.counts = device_counts(ranks()), .places = parts_.places};
  for (const BenchTrial& trial : plan_) {
    if (trial.is_divided()) needs.plans.push_back(trial.plan);
    if (trial.mode != BenchMode::p2p) continue;
    if (trial.workload == BenchWorkload::mlp) {
      needs.peer_sums = true;
      continue;
    }
    needs.slot_bytes.push_back(slot_bytes(trial));
  }
  const auto each_once = [](auto& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  };
  each_once(needs.slot_bytes);
  each_once(needs.plans);
  return needs;
}

/// Sized for any number of batches per delivery.
std::size_t BenchSuite::slot_bytes(const BenchTrial& trial) const {
  const std::size_t stride = aligned_input(input_bytes(trial, trial.size));
  return peer_feed_bytes(stride, batches_per_delivery(0, stride));
}

std::string BenchSuite::phase_of(std::int64_t trial) const {
  return fmt::format("bench: {}", describe(plan_[static_cast<std::size_t>(trial)]));
}

/// An injected slowdown persists from its trial on, in every workload.
void BenchSuite::take_slowness(std::int64_t trial) {
  if (slow_) return;
  slow_ = environment().injector.take(InjectionKind::slow, trial);
  if (slow_)
    environment().injector.report(
        *slow_, trial, fmt::format("all work from trial {} on, +{:.3g} %", trial, slow_percent(slow_)));
}

BenchEntry BenchSuite::entry_of(std::int64_t number) const {
  BenchEntry entry;
  entry.trial = plan_[static_cast<std::size_t>(number)];
  const std::size_t devices = entry.trial.ranks.size();
  entry.shares.assign(devices, entry.trial.size);
  if (entry.trial.mode == BenchMode::strong)
    entry.shares = share_load(entry.trial.size, std::vector<double>(devices, 1), entry.trial.unit());
  if (!entry.trial.tasks.empty()) entry.not_possible = assign_tasks(entry, entries_, parts_.models);
  if (std::count(entry.shares.begin(), entry.shares.end(), 0) > 0)
    entry.not_possible = fmt::format("{} samples are too few to share", entry.trial.size);
  return entry;
}

/// Finds reasons to skip the trial before it starts.
void BenchSuite::look_at_peers(BenchEntry& entry) const {
  const BenchTrial& trial = entry.trial;
  if (trial.mode != BenchMode::p2p || !entry.not_possible.empty()) return;
  entry.not_possible = resources_.groups->why_no_peers(trial.devices());
  if (entry.not_possible.empty())
    entry.failure = trial.workload == BenchWorkload::mlp ? resources_.groups->why_no_sums(trial.devices())
                                                         : resources_.groups->why_no_slots(slot_bytes(trial));
}

Status BenchSuite::make_trial(std::int64_t number) {
  take_slowness(number);
  BenchEntry entry = entry_of(number);
  EGT_TRY(plan_network(entry));
  look_at_peers(entry);
  if (entry.not_possible.empty() && entry.failure.empty())
    EGT_TRY(entry.trial.mode == BenchMode::hetero ? measure_hetero(entry) : measure(entry));
  reporter_.end_check();
  if (!met_.interrupted) keep(std::move(entry));
  return {};
}

/// Measures the same load twice: in equal shares, and in shares weighted by each device's standalone speed.
Status BenchSuite::measure_hetero(BenchEntry& entry) {
  std::vector<double> batches_per_ms;
  for (const BenchEntry* one : each_alone(entries_, entry.trial)) batches_per_ms.push_back(1 / one->own_ms);
  if (batches_per_ms.empty()) {
    entry.failure = "what each device does alone is not known";
    return {};
  }
  BenchEntry even = entry;
  EGT_TRY(measure(even));
  entry.failure = even.failure;
  if (!even.step || !even.success()) return {};
  entry.even_items_per_second = even.items_per_second();
  entry.shares = share_load(entry.items(), batches_per_ms, entry.trial.unit());
  return measure(entry);
}

Status BenchSuite::measure(BenchEntry& entry) {
  EGT_TRY(open_job(entry));
  if (met_.interrupted || !entry.failure.empty()) {
    resources_.job.reset();
    return {};
  }
  const bool delivers = entry.trial.workload != BenchWorkload::mlp && entry.trial.tasks.empty();
  const std::int64_t multiple = delivers ? feed_shape(entry).per_delivery : 1;
  BenchTrialMaker maker(context_, multiple);
  EGT_TRY_ASSIGN(const Measured measured, maker.make(resources_.job.get()));
  resources_.job.reset();
  add(work_, measured.own.work);
  met_.interrupted = measured.interrupted;
  if (met_.interrupted) return {};
  std::vector<int> failed;
  for (std::size_t r = 0; r < measured.ranks.size(); ++r)
    if (measured.ranks[r].failures > 0) failed.push_back(static_cast<int>(r));
  if (!measured.own.failure.empty())
    entry.failure = measured.own.failure;
  else if (!failed.empty())
    entry.failure = fmt::format("{} found wrong results", text_of(failed));
  take(entry, measured);
  return {};
}

/// Opens the job and returns its known answers.
Result<Answers> BenchSuite::open_own_job(const BenchEntry& entry) {
  if (entry.trial.tasks.empty()) {
    EGT_TRY_ASSIGN(resources_.job, make_job(entry));
  } else {
    BenchEntry own = own_part(entry, rank());
    EGT_TRY_ASSIGN(auto job, make_job(own));
    resources_.job =
        repeated(std::move(job), entry.shares[static_cast<std::size_t>(rank())] / entry.trial.size);
  }
  return resources_.job->answers();
}

/// Ranks outside the trial have no answers to compare.
Status BenchSuite::open_job(BenchEntry& entry) {
  const BenchTrial& trial = entry.trial;
  std::vector<BenchEntry> parts = parts_of(entry);
  std::size_t count = 0;
  for (const BenchEntry& part : parts) count = std::max(count, answers_of(part.trial.workload));
  const Result<Answers> own = trial.has(rank()) ? open_own_job(entry) : Answers(count);
  if (is_of_trial(own.status().code()))
    environment().records.warning(fmt::format("{}: {}", describe(trial), own.status().what()));
  Answers reported = own.ok() ? own.value() : Answers();
  reported.resize(count);
  EGT_TRY(meet(own.status(), to_figures(reported), "bench: allocates memory"));
  trials_without_memory_ += met_.lacks_memory;
  entry.failure = met_.failure;
  // The jobs of a divided network compare each part with its own repetition.
  if (!entry.failure.empty() || trial.is_divided()) return {};
  for (BenchEntry& part : parts) {
    std::vector<Answers> by_rank(static_cast<std::size_t>(ranks()));
    for (const int one : part.trial.ranks) {
      const auto r = static_cast<std::size_t>(one);
      by_rank[r] = from_figures(met_.figures[r].data(), answers_of(part.trial.workload));
    }
    judge_answers(part, by_rank);
    if (!part.failure.empty()) entry.failure = part.failure;
  }
  return {};
}

/// Compares a device's answers for a known batch with its previous answers and with other devices'.
void BenchSuite::judge_answers(BenchEntry& entry, const std::vector<Answers>& by_rank) {
  const BenchTrial& trial = entry.trial;
  const bool is_mlp = trial.workload == BenchWorkload::mlp;
  std::vector<std::int64_t> sizes(by_rank.size(), trial.size);
  for (std::size_t device = 0; device < entry.shares.size(); ++device)
    // A known-answer pass uses at most as many samples as an equal share.
    sizes[static_cast<std::size_t>(trial.ranks[device])] =
        is_mlp ? std::min(entry.shares[device], entry.items() / trial.devices()) : entry.shares[device];
  // Gradients are scaled by the samples of all devices, so the answers depend on this number.
  std::string question = trial.name;
  if (is_mlp)
    question += fmt::format(", {} devices, {} in all, gradients {}", trial.devices(), entry.items(),
                            to_string(trial.compression));
  if (trial.has(rank())) work_.outputs_verified += by_rank[static_cast<std::size_t>(rank())].size();
  for (const Mismatch& dissent : answers_.judge(question, sizes, by_rank)) {
    Fault fault = fault_of(environment(), "output", "known answer", "bench", this->trial());
    fault.where = fmt::format("{}, known answer {}", trial.name, dissent.question);
    fault.expected = "0x" + to_string(dissent.expected);
    fault.actual = "0x" + to_string(dissent.actual);
    entry.failure = dissent.rank >= 0
                        ? fmt::format("rank {} gave a wrong known answer", dissent.rank)
                        : fmt::format("{} gave different known answers", text_of(dissent.suspects));
    reporter_.report(std::move(fault), dissent);
  }
}

Result<std::unique_ptr<BenchJob>> BenchSuite::make_job(const BenchEntry& entry) {
  const BenchTrial& trial = entry.trial;
  const std::vector<std::int64_t>& shares = entry.shares;
  if (trial.workload != BenchWorkload::mlp) return make_stream(entry);
  if (trial.is_divided()) return make_split(entry);
  const auto own = static_cast<std::ptrdiff_t>(rank() - trial.ranks.front());
  MlpJobConfig config{parts_.train, trial.precision, {}, trial.compression, trial.compared_steps};
  config.batch.global = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  config.batch.first = std::accumulate(shares.begin(), shares.begin() + own, std::int64_t{0});
  config.batch.local = shares[static_cast<std::size_t>(own)];
  Communicator& communicator = trial.mode == BenchMode::single ? resources_.groups->alone()
                               : trial.mode == BenchMode::p2p
                                   ? resources_.groups->peers_of_first(trial.devices())
                                   : resources_.groups->of_first(trial.devices());
  return make_mlp_job(environment(), communicator, config, slow_, reporter_);
}

Result<std::unique_ptr<BenchJob>> BenchSuite::make_stream(const BenchEntry& entry) {
  const BenchTrial& trial = entry.trial;
  Device& device = environment().device;
  const std::uint64_t seed = environment().seed;
  const FeedShape shape = feed_shape(entry);
  const BatchItems items{.own = entry.shares[static_cast<std::size_t>(shape.index)],
                         .most = max_of(entry.shares)};
  EGT_TRY_ASSIGN(auto operation, trial.workload == BenchWorkload::voxelize
                                     ? make_voxelize(device, seed, parts_.bench.grid, items)
                                     : make_multimodal(device, seed, parts_.bench.streams, items));
  const auto make = [&operation](int generation, std::byte* input, Stream& stream) {
    return operation->make_input(generation, input, stream);
  };
  EGT_TRY_ASSIGN(auto feed,
                 trial.mode == BenchMode::single ? make_local_feed(device, shape, make)
                 : trial.mode == BenchMode::p2p
                     ? make_peer_feed(device, resources_.groups->of_first(trial.devices()),
                                      resources_.groups->peer_memory(), shape, make)
                     : make_exchange_feed(device, resources_.groups->of_first(trial.devices()), shape, make));
  return make_stream_job(environment(), std::move(operation), std::move(feed), shape, slow_);
}

FeedShape BenchSuite::feed_shape(const BenchEntry& entry) const {
  const BenchTrial& trial = entry.trial;
  FeedShape shape{.index = rank() - trial.ranks.front(), .devices = trial.devices(), .bytes = {}};
  shape.stride = aligned_input(input_bytes(trial, max_of(entry.shares)));
  if (trial.devices() > 1) {
    std::vector<double> alone_ms;
    for (const BenchEntry* one : each_alone(entries_, trial)) alone_ms.push_back(one->step->p50);
    if (!alone_ms.empty())
      shape.per_delivery =
          batches_per_delivery(*std::min_element(alone_ms.begin(), alone_ms.end()), shape.stride);
  }
  const bool in_one_piece =
      trial.workload == BenchWorkload::voxelize || parts_.bench.streams == StreamOrigin::own;
  for (const std::int64_t share : entry.shares)
    shape.bytes.push_back(in_one_piece ? input_bytes(trial, share) : shape.stride);
  return shape;
}

std::size_t BenchSuite::input_bytes(const BenchTrial& trial, std::int64_t items) const {
  return trial.workload == BenchWorkload::voxelize ? voxelize_input_bytes(items)
                                                   : multimodal_input_bytes(items, parts_.bench.streams);
}

void BenchSuite::take(BenchEntry& entry, const Measured& measured) {
  const BenchTrial& trial = entry.trial;
  const double busy_ms = measured.ranks[static_cast<std::size_t>(trial.ranks.front())].busy_ms;
  const auto largest = [](double a, double b) { return std::max(a, b); };
  const auto least = [](double a, double b) { return std::min(a, b); };
  entry.step = measured.step;
  entry.own_ms = is_host() && busy_ms > 0 ? busy_ms : entry.step->p50;
  entry.memory_bytes = measured.of_devices(trial, &RankFigures::memory_bytes, largest);
  entry.power_w = measured.of_devices(trial, &RankFigures::power_w, std::plus<double>());
  entry.sm_clock_mhz = measured.of_devices(trial, &RankFigures::sm_clock_mhz, least);
  entry.compute_ms = measured.of_devices(trial, &RankFigures::busy_ms, largest);
  entry.loss = measured.of_devices(trial, &RankFigures::loss, largest);
  entry.sent_bytes = measured.of_devices(trial, &RankFigures::sent_bytes, largest);
  entry.sigma_ms = measured.of_devices(trial, &RankFigures::sigma_ms, largest);
  for (std::size_t i = 0; i < RankFigures::sum_sizes; ++i) {
    const AllReduceTime& first = measured.ranks[static_cast<std::size_t>(trial.ranks.front())].sums[i];
    const auto ms = measured.of_devices(
        trial, [i](const auto& rank) { return rank.sums[i].ms; }, largest);
    if (ms) entry.sums.push_back({first.bytes, *ms});
  }
  const auto utilization =
      measured.of_devices(trial, &RankFigures::gpu_utilization_percent, std::plus<double>());
  if (utilization) entry.gpu_utilization_percent = *utilization / trial.devices();
  add_rates(entry, measured);
  take_split(entry, measured);
}

void BenchSuite::add_rates(BenchEntry& entry, const Measured& measured) const {
  const BenchTrial& trial = entry.trial;
  const double step_ms = entry.step->p50;
  if (trial.workload == BenchWorkload::mlp) {
    entry.tflops =
        flops_per_sample(parts_.train.layers) * static_cast<double>(entry.items()) / step_ms * 1e-9;
    return;
  }
  if (!trial.tasks.empty()) return;
  if (trial.mode != BenchMode::single) {
    entry.moved_bytes = static_cast<double>(input_bytes(trial, trial.size));
    return;
  }
  VoxelGrid grid;
  for (std::int32_t& dim : grid.dims) dim = parts_.bench.grid;
  const std::uint64_t bytes = trial.workload == BenchWorkload::voxelize
                                  ? voxelization_bytes(trial.size, grid)
                                  : fusion_bytes(standard_fusion_shape(trial.size));
  entry.gb_per_second = static_cast<double>(bytes) / step_ms * 1e-6;
  const double copy_ms = measured.ranks[static_cast<std::size_t>(trial.ranks.front())].copy_ms;
  if (copy_ms > 0) entry.ratio_copy_bandwidth = copy_ms / step_ms;
}

void BenchSuite::keep(BenchEntry entry) {
  complete(entry, entries_);
  if (rank() == 0) environment().records.notice(line_of(entry));
  entries_.push_back(std::move(entry));
}

std::optional<double> BenchSuite::used_memory_bytes() const {
  const auto memory = environment().device.memory();
  if (!memory.ok()) return std::nullopt;
  return static_cast<double>(memory.value().used_bytes());
}

/// Marks the trial as lost. This rank may have stored its result already, while other ranks failed in it.
void BenchSuite::lose_trial(std::int64_t number) {
  entries_.resize(std::min(entries_.size(), static_cast<std::size_t>(number)));
  BenchEntry entry = entry_of(number);
  entry.failure = "the ranks lost communication in it";
  keep(std::move(entry));
}

/// Reports a device that was slower than others of its model in all single-device tests.
Status BenchSuite::finish(const Shutdown& ending) {
  if (ending.hurry) return {};
  const auto times =
      slowness(entries_, rank(), parts_.models, is_host() ? host_fewest_tests : gpu_fewest_tests);
  const double limit = is_host() ? host_slowness_limit : gpu_slowness_limit;
  if (!times || *times <= limit) return {};
  Finding finding;
  finding.kind = "outlier";
  finding.rank = rank();
  finding.hostname = environment().place.hostname;
  finding.device_uuid = environment().device.info().uuid;
  finding.where = "speed alone";
  finding.text = fmt::format(
      "alone, its device took at least {:.2f} times as long as the others of its model in every test",
      *times);
  finding.expected = 1;
  finding.actual = *times;
  environment().records.emit(finding);
  return {};
}

PartReport BenchSuite::report() const {
  PartReport report;
  report.name = "bench checks";
  report.description = "what this rank verified of its results";
  report.figures = {{"outputs_verified", work_.outputs_verified},
                    {"replays", work_.replays},
                    {"replica_checks", work_.replica_checks},
                    {"trials_without_memory", trials_without_memory_}};
  report.work = work_;
  const auto& workloads = parts_.bench.workloads;
  if (std::find(workloads.begin(), workloads.end(), BenchWorkload::mlp) != workloads.end())
    note_not_run(report, "comparison of every training pass", "only burn compares each pass");
  note_not_run(report, "comparison with an independent result", "bench compares repetitions and ranks only");
  return report;
}

std::vector<PartReport> BenchSuite::reports() const {
  std::vector<PartReport> all;
  if (rank() == 0) {
    std::vector<BenchEntry> entries = entries_;
    recommend(entries);
    for (const BenchEntry& entry : entries) all.push_back(report_of(entry));
  }
  all.push_back(report());
  return all;
}

}  // namespace egt
