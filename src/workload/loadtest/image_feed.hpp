#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/core/wait.hpp"
#include "egt/device/device.hpp"
#include "workload/loadtest/image_set.hpp"

namespace egt {

/// Times are counted from the end of the first delivery to that of the last one, and so are the images that
/// were delivered between: how long the first batch takes is in none of them. The workers' are of all
/// batches.
struct FeedFigures {
  int workers = 0;             ///< 0: the device makes the images
  std::int64_t batch = 0;      ///< images a batch
  std::int64_t delivered = 0;  ///< images
  double elapsed_seconds = 0;
  double waited_seconds = 0;  ///< of these, in which the consumer waited for a batch that was not ready
  std::int64_t made = 0;      ///< images
  double worker_seconds = 0;  ///< the sum of what each worker took to make them

  /// That one batch takes if all workers are at it; 0 before one was made.
  double seconds_a_batch() const;
};

/// In one sentence, that images come too slowly, by how much, and what helps; empty where they do not: where
/// the consumer waited less than 5 % of the time, or as much as the device alone can take came all the same.
/// `device_rate`: images/s that the device takes where it never waits for any, 0: not known. `cores`: that
/// the workers can have.
std::string loader_bottleneck(const FeedFigures& figures, double device_rate, int cores);

/// Brings batches of images, step after step, into device memory. Called by one thread. Its destructor waits
/// until the device has read what was enqueued, at most a minute.
class ImageFeed {
 public:
  virtual ~ImageFeed() = default;
  /// Enqueues the next step's batch: fp32 into `x` (images x side x side x 3), int32 into `labels` (images),
  /// both device memory. Where it must wait: timeout, stopped. A failure to make images is told here.
  virtual Status enqueue(float* x, std::int32_t* labels, Stream& stream, const WaitLimits& limits) = 0;
  virtual FeedFigures figures() const = 0;
};

/// The device makes the images itself, with the same bits as GeneratedImages::make where its fp32 products
/// with 0 and 1 are exact. The host makes labels only, and waits only if it is more than four batches ahead
/// of the device. Waits for `stream` once, here. The feed's streams are for products. Keeps no reference to
/// the set.
Result<std::unique_ptr<ImageFeed>> make_device_images(Device& device, const GeneratedImages& images,
                                                      const ImageBatch& first, Stream& stream);

struct LoaderPlan {
  ImageBatch first;  ///< the others are of the steps behind it
  int workers = 1;   ///< threads
  int ahead = 2;     ///< batches that are ready or being made while the device reads one
};

/// Threads make the images in pinned memory, several of them those of one batch. `set` outlives the feed.
/// unavailable: there is no thread; out_of_memory.
Result<std::unique_ptr<ImageFeed>> make_image_loader(Device& device, const ImageSet& set,
                                                     const LoaderPlan& plan);

}  // namespace egt
