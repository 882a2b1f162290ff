#include "workload/ceilings/ceiling_job.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"
#include "workload/common/value_exchange.hpp"

namespace egt {
namespace {

constexpr double shortest_ms = 1e-6;

class StreamCeiling final : public CeilingJob {
 public:
  StreamCeiling(Environment& environment, StreamTrial trial, StreamTimer timer)
      : environment_(environment), trial_(std::move(trial)), timer_(std::move(timer)) {}

  Result<CeilingBurst> ours(std::int64_t count) override { return burst(trial_.ours, count); }
  Result<CeilingBurst> limit(std::int64_t count) override { return burst(trial_.limit, count); }
  Result<JobReport> check() override;
  Status give_up(double seconds) override { return timer_.give_up(seconds); }

 private:
  Result<CeilingBurst> burst(const StreamSide& side, std::int64_t count) {
    EGT_TRY_ASSIGN(const double ms, timer_.time(count, side.enqueue));
    return CeilingBurst{ms, {side.units * static_cast<double>(count) / ms * 1e3}};
  }

  Environment& environment_;
  StreamTrial trial_;
  StreamTimer timer_;  ///< declared last: its stream ends before the memory is freed
};

Result<JobReport> StreamCeiling::check() {
  if (trial_.found == nullptr) return JobReport();
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(const Buffer pinned, device.allocate_pinned(sizeof(Mismatches)));
  const auto look = [&](Stream& stream) -> Status {
    if (trial_.last_look) EGT_TRY(trial_.last_look(stream));
    return device.copy(pinned.data(), trial_.found, sizeof(Mismatches), stream);
  };
  EGT_TRY(timer_.time(1, look).status());
  const Mismatches& wrong = *pinned.as<Mismatches>();
  JobReport report{.failure = {}, .work = trial_.work};
  if (wrong.count == 0) return report;
  Fault fault = trial_.fault;
  show_mismatches(fault, wrong);
  environment_.records.emit(fault);
  report.failure = fmt::format("{} in {}", counted(wrong.count, "wrong word"), fault.where);
  return report;
}

}  // namespace

Result<StreamTimer> StreamTimer::make(Environment& environment, bool with_peers) {
  StreamTimer made(environment);
  made.with_peers_ = with_peers;
  EGT_TRY_ASSIGN(made.begin_, environment.device.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(made.end_, environment.device.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(made.stream_, environment.device.create_stream(StreamPriority::normal));
  return made;
}

Result<double> StreamTimer::time(std::int64_t count, const std::function<Status(Stream& stream)>& enqueue) {
  Device& device = environment_->device;
  EGT_TRY(device.record(*begin_, *stream_));
  for (std::int64_t i = 0; i < count; ++i) EGT_TRY(enqueue(*stream_));
  EGT_TRY(device.record(*end_, *stream_));
  constexpr const char* phase = "bench: a burst";
  ProgressBoard::Line& line = environment_->board.line("main");
  if (with_peers_) line.wait_for_peers(phase);
  EGT_TRY(
      wait_with_peers(device, environment_->communicator, *end_, environment_->peer_timeout_seconds, phase));
  line.go_on(phase);
  EGT_TRY_ASSIGN(const double ms, device.elapsed_ms(*begin_, *end_));
  return std::max(ms, shortest_ms);
}

Result<std::unique_ptr<CeilingJob>> make_stream_ceiling(Environment& environment, StreamTrial trial) {
  EGT_TRY_ASSIGN(StreamTimer timer, StreamTimer::make(environment, trial.with_peers));
  return std::unique_ptr<CeilingJob>(new StreamCeiling(environment, std::move(trial), std::move(timer)));
}

Result<std::unique_ptr<CeilingJob>> make_ceiling(const CeilingWorld& world, const CeilingTrial& trial) {
  switch (trial.kind) {
    using enum CeilingKind;
    case product:
      return make_product_ceiling(world, trial);
    case checked_product:
      return make_checked_product_ceiling(world, trial);
    case step:
    case joint_step:
      return make_step_ceiling(world, trial);
    case fill:
    case digest:
    case verify:
    case refill:
      return make_memory_ceiling(world, trial);
    case patrol:
      return make_patrol_ceiling(world);
    case update:
      return make_update_ceiling(world);
    case extreme:
      return make_extreme_ceiling(world);
    case host_copies:
      return make_host_copies_ceiling(world);
    case all_reduce:
    case collective:
      return make_sum_ceiling(world, trial);
    case files:
      return make_file_ceiling(world);
  }
  return Status(StatusCode::internal, "there is no such ceiling");
}

}  // namespace egt
