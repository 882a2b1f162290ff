#include "workload/common/operation_pipeline.hpp"

#include <algorithm>
#include <utility>

#include "egt/core/wait.hpp"

namespace egt {

Result<std::unique_ptr<OperationPipeline>> OperationPipeline::create(Device& device, StreamPriority priority,
                                                                     StreamUse use, std::string name,
                                                                     std::size_t depth) {
  std::unique_ptr<OperationPipeline> made(new OperationPipeline(device, std::move(name), depth));
  EGT_TRY_ASSIGN(made->on_device_, device.allocate(depth * sizeof(Evidence)));
  EGT_TRY_ASSIGN(made->pinned_, device.allocate_pinned(depth * sizeof(Evidence)));
  for (Slot& slot : made->slots_) {
    EGT_TRY_ASSIGN(slot.begin, device.create_event(EventUse::timing));
    EGT_TRY_ASSIGN(slot.end, device.create_event(EventUse::timing));
  }
  EGT_TRY_ASSIGN(made->stream_, device.create_stream(priority, use));
  return made;
}

Status OperationPipeline::wait(const Slot& slot, double seconds, const std::stop_token& stop) {
  return wait_until([&] { return device_.done(*slot.end); },
                    {.seconds = seconds, .stop = stop, .what = name_.c_str()});
}

Status OperationPipeline::judge_next(double seconds, const std::stop_token& stop) {
  const std::size_t index = judged_ % slots_.size();
  Slot& slot = slots_[index];
  EGT_TRY(wait(slot, seconds, stop));
  ++judged_;
  const Judge judge = std::exchange(slot.judge, nullptr);
  EGT_TRY_ASSIGN(const double device_ms, device_.elapsed_ms(*slot.begin, *slot.end));
  // Negative: the verification subtracted equal words, but its initial count of all words was lost.
  std::uint64_t& count = pinned_.as<Evidence>()[index].mismatches.count;
  count = std::min(count, 0 - count);
  return judge(pinned_.as<Evidence>()[index], device_ms);
}

Result<bool> OperationPipeline::is_full() {
  while (judged_ < submitted_) {
    EGT_TRY_ASSIGN(const bool done, device_.done(*slots_[judged_ % slots_.size()].end));
    if (!done) break;
    EGT_TRY(judge_next(deadline_seconds, {}));
  }
  return submitted_ - judged_ == slots_.size();
}

Result<std::size_t> OperationPipeline::acquire(const std::stop_token& stop) {
  if (submitted_ - judged_ == slots_.size()) EGT_TRY(judge_next(deadline_seconds, stop));
  return submitted_ % slots_.size();
}

/// Until the device's evidence arrives, the pinned evidence is invalid (one mismatch, no digests), so that a
/// copy that does nothing is detected.
Status OperationPipeline::submit(const Enqueue& enqueue, Judge judge, const std::stop_token& stop) {
  EGT_TRY_ASSIGN(const std::size_t index, acquire(stop));
  Slot& slot = slots_[index];
  Evidence* const evidence = on_device_.as<Evidence>() + index;
  EGT_TRY(device_.set_zero(&evidence->first, sizeof(Evidence) - offsetof(Evidence, first), *stream_));
  EGT_TRY(device_.reset(&evidence->mismatches, *stream_));
  EGT_TRY(device_.record(*slot.begin, *stream_));
  EGT_TRY(enqueue(*stream_, evidence));
  pinned_.as<Evidence>()[index] = {};
  pinned_.as<Evidence>()[index].mismatches.count = 1;
  EGT_TRY(device_.copy(pinned_.as<Evidence>() + index, evidence, sizeof(Evidence), *stream_));
  EGT_TRY(device_.record(*slot.end, *stream_));
  slot.judge = std::move(judge);
  ++submitted_;
  return {};
}

/// After a stop the operation is still enqueued, so its judge owns the evidence, too.
Result<Evidence> OperationPipeline::run(const Enqueue& enqueue, const std::stop_token& stop) {
  const auto found = std::make_shared<Evidence>();
  EGT_TRY(submit(
      enqueue, [found](const Evidence& evidence, double) { return *found = evidence, Status(); }, stop));
  EGT_TRY(judge_first(submitted_, stop));
  return *found;
}

Status OperationPipeline::judge_first(std::uint64_t count, const std::stop_token& stop) {
  while (judged_ < std::min(count, submitted_)) EGT_TRY(judge_next(deadline_seconds, stop));
  return {};
}

Status OperationPipeline::drain(double seconds, const std::stop_token& stop) {
  const auto begun = Clock::now();
  while (judged_ < submitted_) EGT_TRY(judge_next(seconds - seconds_since(begun), stop));
  return {};
}

Status OperationPipeline::discard(double seconds) {
  const auto begun = Clock::now();
  while (judged_ < submitted_) {
    Slot& slot = slots_[judged_++ % slots_.size()];
    slot.judge = nullptr;
    EGT_TRY(wait(slot, seconds - seconds_since(begun), {}));
  }
  return {};
}

}  // namespace egt
