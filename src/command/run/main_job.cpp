#include "command/run/main_job.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "egt/ranks/agreement.hpp"
#include "model/pass_gemms.hpp"
#include "session/resumed_run.hpp"
#include "workload/train/golden_digests.hpp"
#include "workload/train/train_workload.hpp"

namespace egt {
namespace {

Result<BatchShare> choose_batch(const BurnOptions& burn, const RankPlace& place) {
  const std::int64_t global = burn.global_batch.value_or(burn.train.batch * place.size);
  if (global < place.size)
    return Status(
        StatusCode::invalid_argument,
        fmt::format("--global-batch {}: use at least one sample per rank, {} here", global, place.size));
  return share_batch(global, place.rank, place.size);
}

/// The parts of the main job for the options of `burn`. unsupported: the device lacks the precision.
/// invalid_argument: the batch has fewer samples than ranks.
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
  // selftest also injects faults into fp8 training. burn has fp8 only in memory-resident GEMMs.
  const bool has_fp8 = supports_training(device, Precision::fp8).yes() &&
                       mlp::check_fp8_shapes(burn.train.layers, parts.batch.local).ok();
  if (options.command == "selftest" && burn.precision == "cycle" && has_fp8)
    parts.train.precisions.push_back(Precision::fp8);
  return parts;
}

/// Max samples per step of each rank: as many as fit into a tenth of its free memory, but at least an even
/// share and at most four times an even share. Collective.
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

}  // namespace

Status MainJob::choose(const Options& options, const Platform& platform, Control& control) {
  place_ = control.place();
  duration_seconds_ = options.burn.duration_seconds;
  steps_ = options.burn.steps;
  auto parts = choose_parts(options, *platform.device, place_);
  EGT_TRY(agree(control, parts.status()));
  parts_ = std::move(parts.value());
  if (parts_.train.balance == Balance::automatic) {
    EGT_TRY_ASSIGN(parts_.max_samples, choose_most_samples(parts_, *platform.device, control));
  }
  add_parts(parts_);
  return read_golden_file(control);
}

/// Rank 0 reads it for all ranks, since other nodes may not have the file.
Status MainJob::read_golden_file(Control& control) {
  const std::string& path = parts_.train.golden;
  if (path.empty()) return {};
  Status read;
  std::string text;
  if (place_.rank == 0) {
    auto golden = read_golden(path);
    read = golden.status();
    if (golden.ok() && golden.value()) text = golden.value()->text();
  }
  EGT_TRY(agree(control, read));
  EGT_TRY_ASSIGN(text, control.broadcast(text));
  if (text.empty()) return {};
  EGT_TRY_ASSIGN(parts_.golden.known, Golden::parse(text, path));
  return {};
}

Session::Workloads MainJob::make_workloads(Environment& environment) {
  return make_burn_workloads(environment, parts_);
}

bool MainJob::make_smaller(RecordQueue& records) {
  const std::int64_t global = parts_.batch.global / 2;
  if (global < place_.size) return false;
  if (place_.rank == 0)
    records.warning(fmt::format("--batch: a step of {} on all ranks does not fit into memory; reduced to {}",
                                counted(static_cast<std::uint64_t>(parts_.batch.global), "sample"), global));
  parts_.batch = share_batch(global, place_.rank, place_.size);
  for (std::size_t rank = 0; rank < parts_.max_samples.size(); ++rank)
    parts_.max_samples[rank] = std::max(parts_.max_samples[rank] / 2,
                                        share_batch(global, static_cast<int>(rank), place_.size).local);
  return true;
}

SessionPlan MainJob::plan(const Options& options) {
  return {.duration_seconds = seconds_left(options.burn.duration_seconds, options.resumed),
          .steps = steps_left(options.burn.steps, options.resumed),
          .is_done = [this](std::int64_t step) { return is_done(step); },
          .fail_fast = options.burn.fail_fast,
          .before_step = {}};
}

void MainJob::describe(StartBody& body) const {
  body.batch = parts_.batch.local;
  body.duration_seconds = duration_seconds_;
  body.steps = steps_;
  body.layers = parts_.train.layers;
  body.global_batch = parts_.batch.global;
  body.precisions = parts_.train.precisions;
}

Status MainJob::keep_answers() {
  if (parts_.golden.found.empty()) return {};
  return write_golden(parts_.train.golden, parts_.golden.found);
}

}  // namespace egt
