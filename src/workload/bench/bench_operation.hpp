#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "egt/device/device.hpp"
#include "workload/bench/scaling_options.hpp"

namespace egt {

constexpr double ready_seconds = 60;  ///< timeout of a stream that prepares inputs and outputs

/// An operation that `bench` repeats batch after batch. Its input may come from another device. Other state
/// and its outputs belong to this device. One thread.
class BenchOperation {
 public:
  /// Number of different batches, which are used in rotation, so that a stale batch is detected.
  static constexpr int generations = 3;

  virtual ~BenchOperation() = default;

  /// Writes an input of a generation, sized for the max batch of all devices. The same on every device. May
  /// block.
  virtual Status make_input(int generation, std::byte* input, Stream& stream) = 0;
  /// Enqueues the work on this device's batch of that generation.
  virtual Status enqueue(int generation, const std::byte* input, Stream& stream) = 0;

  /// Memory of the operation that is verified; whole words.
  struct Output {
    const char* name;
    const Buffer* memory;
  };
  virtual std::vector<Output> outputs() const = 0;

  /// Min bytes that a batch moves to and from the device's memory.
  virtual std::uint64_t necessary_bytes() const = 0;
};

/// Batch sizes: this device's, and the max of all devices.
struct BatchItems {
  std::int64_t own = 0;
  std::int64_t most = 0;
};

constexpr int voxelize_outputs = 3, multimodal_outputs = 2;

/// Voxelizes point clouds into `grid` voxels along each axis. Allocates and initializes its memory.
Result<std::unique_ptr<BenchOperation>> make_voxelize(Device& device, std::uint64_t seed, std::int32_t grid,
                                                      const BatchItems& points);
/// Fuses three streams onto one timeline.
Result<std::unique_ptr<BenchOperation>> make_multimodal(Device& device, std::uint64_t seed,
                                                        StreamOrigin origin, const BatchItems& samples);

/// Input bytes of one batch of `items` that the first device sends to another.
std::size_t voxelize_input_bytes(std::int64_t items);
std::size_t multimodal_input_bytes(std::int64_t items, StreamOrigin origin);

/// Alignment of each part of an input in bytes.
constexpr std::size_t input_alignment = 256;
constexpr std::size_t aligned_input(std::size_t bytes) {
  return (bytes + input_alignment - 1) / input_alignment * input_alignment;
}

}  // namespace egt
