#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/clock.hpp"
#include "loadtest/images/image_feed.hpp"
#include "workload/common/worker_thread.hpp"

namespace egt {
namespace {

/// Timeouts for the device to read a batch. It may be late, if it is held or busy with long steps.
constexpr double longest_read_seconds = 600, longest_end_seconds = 60;
/// Workers claim parts of about this many values, so that locking costs little.
constexpr std::int64_t part_values = 1 << 16;

/// Batch b, from 0, is made in slot b % slots, in parts by free workers. A slot is free for its next batch
/// once the copy out of it is enqueued. It may be written once that copy is done.
class ImageLoader : public ImageFeed {
 public:
  ImageLoader(Device& device, const ImageSet& set, const LoaderPlan& plan)
      : device_(device), set_(set), plan_(plan), slots_(static_cast<std::size_t>(plan.ahead) + 1) {
    const std::int64_t share = plan.first.images / (2 * plan.workers);
    part_images_ = std::max<std::int64_t>(1, std::min(part_values / set.values(), share));
  }
  ~ImageLoader() override {
    for (WorkerThread& worker : workers_) worker.ask_to_stop();
    workers_.clear();
    for (const Slot& slot : slots_)
      if (slot.read) static_cast<void>(wait_until(is_read(slot), {.seconds = longest_end_seconds}));
  }

  Status start() {
    const std::size_t images = static_cast<std::size_t>(plan_.first.images);
    for (Slot& slot : slots_) {
      EGT_TRY_ASSIGN(slot.labels, device_.allocate_pinned(images * sizeof(std::int32_t)));
      EGT_TRY_ASSIGN(slot.pixels, device_.allocate_pinned(images * static_cast<std::size_t>(set_.values()) *
                                                          sizeof(float)));
      EGT_TRY_ASSIGN(slot.read, device_.create_event(EventUse::order));
      slot.left = plan_.first.images;
    }
    for (int i = 0; i < plan_.workers; ++i)
      EGT_TRY(
          workers_.emplace_back("a worker of the image loader").start([this](const std::stop_token& stop) {
            return work(stop);
          }));
    return {};
  }

  Status enqueue(float* x, std::int32_t* labels, Stream& stream, const WaitLimits& limits) override {
    EGT_TRY_ASSIGN(Slot* const slot, wait_for_batch(limits));
    EGT_TRY(device_.copy(x, slot->pixels.data(), slot->pixels.bytes(), stream));
    EGT_TRY(device_.copy(labels, slot->labels.data(), slot->labels.bytes(), stream));
    EGT_TRY(device_.record(*slot->read, stream));
    const std::lock_guard lock(mutex_);
    slot->left = plan_.first.images;
    if (taken_++ == 0) first_end_ = Clock::now();
    last_end_ = Clock::now();
    changed_.notify_all();
    return {};
  }

  FeedFigures figures() const override {
    const std::lock_guard lock(mutex_);
    return {.workers = plan_.workers,
            .batch = plan_.first.images,
            .delivered = std::max<std::int64_t>(0, taken_ - 1) * plan_.first.images,
            .elapsed_seconds = std::chrono::duration<double>(last_end_ - first_end_).count(),
            .waited_seconds = waited_seconds_,
            .made = made_,
            .worker_seconds = worker_seconds_};
  }

 private:
  struct Slot {
    Buffer labels, pixels;        ///< pinned; images, and images x values
    std::unique_ptr<Event> read;  ///< by the device; recorded by the consumer before the slot is free
    std::int64_t left = 0;        ///< images still missing in its next batch; under mutex_
  };
  /// Images [first, first + count) of batch `batch`.
  struct Part {
    std::int64_t batch = 0, first = 0, count = 0;
  };

  Slot& slot_of(std::int64_t batch) { return slots_[static_cast<std::size_t>(batch) % slots_.size()]; }
  std::function<Result<bool>()> is_read(const Slot& slot) const {
    return [&] { return device_.done(*slot.read); };
  }

  /// Waits for the consumer's next batch and returns its slot. Counts the wait time after the first batch.
  Result<Slot*> wait_for_batch(const WaitLimits& limits) {
    std::unique_lock lock(mutex_);
    const Clock::time_point start = Clock::now();
    Slot& slot = slot_of(taken_);
    const auto is_over = [&] { return slot.left == 0 || !failure_.ok(); };
    const std::chrono::duration<double> seconds(std::clamp(limits.seconds, 0.0, 1e6));
    changed_.wait_for(lock, limits.stop, seconds, is_over);
    if (taken_ > 0) waited_seconds_ += seconds_since(start);
    EGT_TRY(failure_);
    if (slot.left == 0) return &slot;
    if (limits.stop.stop_requested())
      return Status(StatusCode::stopped, "a stop was asked for while waiting for images");
    return Status(StatusCode::timeout,
                  fmt::format("the image loader made no batch of {} images within {:g} s", plan_.first.images,
                              limits.seconds));
  }

  /// Runs on a worker's thread.
  Status work(const std::stop_token& stop) {
    while (const std::optional<Part> part = next_part(stop)) {
      const Status status = guarded_make(*part, stop);
      if (status.ok()) continue;
      const std::lock_guard lock(mutex_);
      if (failure_.ok() && status.code() != StatusCode::stopped) failure_ = status;
      changed_.notify_all();
    }
    return {};
  }

  /// Waits for the next part. Returns std::nullopt if the worker must end.
  std::optional<Part> next_part(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const std::int64_t slots = static_cast<std::int64_t>(slots_.size());
    changed_.wait(lock, stop, [&] { return !failure_.ok() || next_.batch < taken_ + slots; });
    if (stop.stop_requested() || !failure_.ok()) return std::nullopt;
    const std::int64_t images = plan_.first.images;
    Part part = next_;
    part.count = std::min(part_images_, images - part.first);
    next_.first += part.count;
    if (next_.first == images) next_ = {.batch = part.batch + 1};
    return part;
  }

  Status guarded_make(const Part& part, const std::stop_token& stop) try {
    return make(part, stop);
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, "there is no memory to make an image"};
  } catch (const std::exception& error) {
    return {StatusCode::internal, fmt::format("a worker of the image loader: {}", error.what())};
  }

  Status make(const Part& part, const std::stop_token& stop) {
    Slot& slot = slot_of(part.batch);
    EGT_TRY(wait_until(is_read(slot), {longest_read_seconds, stop, "the device's reading of images"}));
    const Clock::time_point start = Clock::now();
    ImageBatch batch = plan_.first;
    batch.step += static_cast<std::uint64_t>(part.batch);
    for (std::int64_t i = part.first; i < part.first + part.count; ++i) {
      if (stop.stop_requested()) return {StatusCode::stopped, "a stop was asked for"};
      EGT_TRY(set_.make(batch, i, slot.pixels.as<float>() + i * set_.values(),
                        slot.labels.as<std::int32_t>() + i, stop));
    }
    const std::lock_guard lock(mutex_);
    worker_seconds_ += seconds_since(start);
    made_ += part.count;
    slot.left -= part.count;
    if (slot.left == 0) changed_.notify_all();
    return {};
  }

  Device& device_;
  const ImageSet& set_;
  const LoaderPlan plan_;
  std::int64_t part_images_ = 1;
  std::vector<Slot> slots_;

  mutable std::mutex mutex_;  ///< protects all members below except workers_
  std::condition_variable_any changed_;
  Part next_;               ///< next part; its count is not used
  std::int64_t taken_ = 0;  ///< batches
  Status failure_;          ///< first failure of a worker
  Clock::time_point first_end_, last_end_;
  double waited_seconds_ = 0, worker_seconds_ = 0;
  std::int64_t made_ = 0;

  std::deque<WorkerThread> workers_;  ///< declared last: workers end before the other members
};

}  // namespace

double FeedFigures::seconds_a_batch() const {
  if (made == 0 || workers == 0) return 0;
  return worker_seconds / static_cast<double>(made) * static_cast<double>(batch) / workers;
}

std::string loader_bottleneck(const FeedFigures& figures, double device_rate, int cores) {
  constexpr double notable = 0.05;
  if (figures.delivered == 0 || figures.waited_seconds < notable * figures.elapsed_seconds) return {};
  const double rate = static_cast<double>(figures.delivered) / figures.elapsed_seconds;
  if (device_rate > 0 && rate > (1 - notable) * device_rate) return {};
  const std::string device = device_rate > 0
                                 ? fmt::format("the device takes {:.0f}", device_rate)
                                 : fmt::format("which are waited for {:.0f} % of the time",
                                               100 * figures.waited_seconds / figures.elapsed_seconds);
  return fmt::format(
      "the loader is the bottleneck: it makes {:.0f} images/s with {} worker{}, {}: {}", rate,
      figures.workers, figures.workers == 1 ? "" : "s", device,
      figures.workers < cores ? "raise --num-workers" : fmt::format("more than {} cores would help", cores));
}

Result<std::unique_ptr<ImageFeed>> make_image_loader(Device& device, const ImageSet& set,
                                                     const LoaderPlan& plan) {
  if (plan.workers < 1 || plan.ahead < 1 || plan.first.images < 1)
    return Status(StatusCode::invalid_argument, "an image loader needs a worker, a batch ahead and an image");
  auto loader = std::make_unique<ImageLoader>(device, set, plan);
  EGT_TRY(loader->start());
  return std::unique_ptr<ImageFeed>(std::move(loader));
}

}  // namespace egt
