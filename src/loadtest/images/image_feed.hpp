#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/core/wait.hpp"
#include "egt/device/device.hpp"
#include "loadtest/images/image_set.hpp"

namespace egt {

/// Times and delivered images count from the end of the first delivery to that of the last. They exclude the
/// first batch. The workers' values include all batches.
struct FeedFigures {
  int workers = 0;             ///< 0: the device generates the images
  std::int64_t batch = 0;      ///< images per batch
  std::int64_t delivered = 0;  ///< images
  double elapsed_seconds = 0;
  double waited_seconds = 0;  ///< part in which the consumer waited for a batch
  std::int64_t made = 0;      ///< images
  double worker_seconds = 0;  ///< total time of all workers

  /// Seconds per batch with all workers busy; 0 before the first image.
  double seconds_a_batch() const;
};

/// One sentence on how much images limit the rate and what helps. Empty if the consumer waited less than 5 %
/// of the time, or if images arrived as fast as the device consumes them. `device_rate`: images/s the device
/// consumes without waiting, 0: unknown. `cores`: available to the workers.
std::string loader_bottleneck(const FeedFigures& figures, double device_rate, int cores);

/// Delivers batches of images to device memory, step after step. One thread. The destructor waits up to one
/// minute until the device has read what was enqueued.
class ImageFeed {
 public:
  virtual ~ImageFeed() = default;
  /// Enqueues the next step's batch: fp32 into `x` (images x side x side x 3) and int32 into `labels`
  /// (images), both in device memory. If it must wait: timeout, stopped. Also reports errors in making
  /// images.
  virtual Status enqueue(float* x, std::int32_t* labels, Stream& stream, const WaitLimits& limits) = 0;
  virtual FeedFigures figures() const = 0;
};

/// The device generates the images, bit for bit as GeneratedImages::make if its fp32 GEMMs with 0 and 1 are
/// exact. The host generates only the labels. It waits only if it is more than four batches ahead. Waits for
/// `stream` once, here. The feed's streams must allow GEMMs. Keeps no reference to the set.
Result<std::unique_ptr<ImageFeed>> make_device_images(Device& device, const GeneratedImages& images,
                                                      const ImageBatch& first, Stream& stream);

struct LoaderPlan {
  ImageBatch first;  ///< later batches belong to the following steps
  int workers = 1;   ///< threads
  int ahead = 2;     ///< batches ready or in progress while the device reads one
};

/// Several threads fill each batch in pinned memory. `set` must outlive the feed. Errors: unavailable if no
/// thread can start; out_of_memory.
Result<std::unique_ptr<ImageFeed>> make_image_loader(Device& device, const ImageSet& set,
                                                     const LoaderPlan& plan);

}  // namespace egt
