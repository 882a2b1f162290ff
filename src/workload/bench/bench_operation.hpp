#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "egt/device/device.hpp"
#include "workload/bench/scaling_options.hpp"

namespace egt {

constexpr double ready_seconds = 60;  ///< for a stream to finish what makes inputs and outputs ready

/// An operation that `bench` repeats on batch after batch. Its input may come from another device; what stays
/// on this one is its own, as are its outputs. One thread.
class BenchOperation {
 public:
  /// Batches of different content that are gone through in turn, so that one left over is not taken for the
  /// next.
  static constexpr int generations = 3;

  virtual ~BenchOperation() = default;

  /// Writes an input of a generation, with room for the largest batch of all devices: the same on every
  /// device. May wait.
  virtual Status make_input(int generation, std::byte* input, Stream& stream) = 0;
  /// Enqueues the work on this device's batch.
  virtual Status enqueue(int generation, const std::byte* input, Stream& stream) = 0;

  /// What is checked: memory of the operation, whole words.
  struct Output {
    const char* name;
    const Buffer* memory;
  };
  virtual std::vector<Output> outputs() const = 0;

  /// Bytes that a batch cannot do without moving, in and out of the device's memory.
  virtual std::uint64_t necessary_bytes() const = 0;
};

/// How large the batches are: this device's, and the largest of all.
struct BatchItems {
  std::int64_t own = 0;
  std::int64_t most = 0;
};

constexpr int voxelize_outputs = 3, multimodal_outputs = 2;

/// Clouds into a grid of `grid` voxels along each axis. Takes memory and makes it ready.
Result<std::unique_ptr<BenchOperation>> make_voxelize(Device& device, std::uint64_t seed, std::int32_t grid,
                                                      const BatchItems& points);
/// Three streams onto one timeline.
Result<std::unique_ptr<BenchOperation>> make_multimodal(Device& device, std::uint64_t seed,
                                                        StreamOrigin origin, const BatchItems& samples);

/// Bytes of the input of one batch of `items`, that comes from the first device where another has it.
std::size_t voxelize_input_bytes(std::int64_t items);
std::size_t multimodal_input_bytes(std::int64_t items, StreamOrigin origin);

/// Where input bytes are counted in: the alignment of each of its parts.
constexpr std::size_t input_alignment = 256;
constexpr std::size_t aligned_input(std::size_t bytes) {
  return (bytes + input_alignment - 1) / input_alignment * input_alignment;
}

}  // namespace egt
