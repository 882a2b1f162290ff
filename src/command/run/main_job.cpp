#include "command/run/main_job.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "command/options/choices.hpp"
#include "egt/core/units.hpp"
#include "egt/ranks/agreement.hpp"
#include "session/resumed_run.hpp"
#include "workload/train/golden_digests.hpp"
#include "workload/train/train_workload.hpp"

namespace egt {

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
