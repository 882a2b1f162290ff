#include "workload/common/operation_pipeline.hpp"

#include <utility>

#include "egt/core/wait.hpp"

namespace egt {

Result<std::unique_ptr<OperationPipeline>> OperationPipeline::create(Device& device, StreamPriority priority,
                                                                     StreamUse use, std::string name) {
  std::unique_ptr<OperationPipeline> made(new OperationPipeline(device, std::move(name)));
  EGT_TRY_ASSIGN(made->on_device_, device.allocate(slots * sizeof(Evidence)));
  EGT_TRY_ASSIGN(made->pinned_, device.allocate_pinned(slots * sizeof(Evidence)));
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

Status OperationPipeline::settle(std::size_t index, double seconds, const std::stop_token& stop) {
  Slot& slot = slots_[index];
  if (!slot.judge) return {};
  EGT_TRY(wait(slot, seconds, stop));
  const Judge judge = std::exchange(slot.judge, nullptr);
  EGT_TRY_ASSIGN(const double device_ms, device_.elapsed_ms(*slot.begin, *slot.end));
  return judge(pinned_.as<Evidence>()[index], device_ms);
}

Result<std::size_t> OperationPipeline::acquire(const std::stop_token& stop) {
  EGT_TRY(settle(next_, deadline_seconds, stop));
  return next_;
}

Status OperationPipeline::submit(const Enqueue& enqueue, Judge judge, const std::stop_token& stop) {
  EGT_TRY_ASSIGN(const std::size_t index, acquire(stop));
  Slot& slot = slots_[index];
  Evidence* const evidence = on_device_.as<Evidence>() + index;
  EGT_TRY(device_.set_zero(&evidence->first, 2 * sizeof(Digest), *stream_));
  EGT_TRY(device_.reset(&evidence->mismatches, *stream_));
  EGT_TRY(device_.record(*slot.begin, *stream_));
  EGT_TRY(enqueue(*stream_, evidence));
  EGT_TRY(device_.copy(pinned_.as<Evidence>() + index, evidence, sizeof(Evidence), *stream_));
  EGT_TRY(device_.record(*slot.end, *stream_));
  slot.judge = std::move(judge);
  next_ = (index + 1) % slots;
  return {};
}

Status OperationPipeline::drain(double seconds, const std::stop_token& stop) {
  for (std::size_t i = 0; i < slots; ++i) EGT_TRY(settle((next_ + i) % slots, seconds, stop));
  return {};
}

Status OperationPipeline::discard(double seconds) {
  for (Slot& slot : slots_) {
    if (!std::exchange(slot.judge, nullptr)) continue;
    EGT_TRY(wait(slot, seconds, {}));
  }
  return {};
}

}  // namespace egt
