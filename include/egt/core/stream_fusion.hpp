#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "egt/core/math/fusion_math.hpp"

namespace egt {

/// Resamples time-stamped streams of different rates to one timeline by linear interpolation, and
/// concatenates them. A sample counts only if its time is finite and greater than all earlier finite times of
/// its row; out-of-order and repeated samples are dropped. Before the first or after the last sample that
/// counts, its value is used. If none counts, or at a non-finite time, the value is 0. A NaN value is
/// 0x7fc00000. All pointers are device memory.
struct StreamFusion {
  static constexpr const char* name = "fuse";

  FusionShape shape;
  const double* times[max_fusion_streams] = {};  ///< sample times of each stream: batch x samples
  const float* values[max_fusion_streams] = {};  ///< sample values of each stream: batch x samples x dims
  const double* timeline = nullptr;              ///< batch x steps, in any order
  float* fused = nullptr;            ///< batch x steps x total_dims: each step's values of stream 0, 1, ..
  std::uint32_t* dropped = nullptr;  ///< batch x streams: number of dropped samples
  void* scratch = nullptr;           ///< 16-byte aligned, overwritten
  std::size_t scratch_bytes = 0;     ///< at least fusion_scratch_bytes
};

inline std::size_t fusion_scratch_bytes(const FusionShape& shape) {
  return static_cast<std::size_t>(shape.batch * shape.streams * shape.steps) * sizeof(math::Bracket);
}

/// Min memory traffic of a fusion in bytes, for increasing times at equal distances over the timeline. Times,
/// timeline and the used samples (up to two per step) are read once, results are written once.
inline std::uint64_t fusion_bytes(const FusionShape& shape) {
  std::int64_t bytes = shape.steps * static_cast<std::int64_t>(sizeof(double)) +
                       shape.steps * shape.total_dims() * static_cast<std::int64_t>(sizeof(float));
  for (int s = 0; s < shape.streams; ++s)
    bytes += shape.samples[s] * static_cast<std::int64_t>(sizeof(double)) +
             std::min(shape.samples[s], 2 * shape.steps) * shape.dims[s] *
                 static_cast<std::int64_t>(sizeof(float)) +
             static_cast<std::int64_t>(sizeof(std::uint32_t));
  return static_cast<std::uint64_t>(shape.batch * bytes);
}

/// A robot's streams as `bench` fuses them, over a window of 4 s: vision (an encoder's features),
/// proprioception (position, velocity, torque and command of 7 joints) and force (a wrench and two fingers).
constexpr double standard_fusion_window_s = 4.0;
constexpr double standard_fusion_timeline_hz = 50.0;
constexpr int standard_fusion_streams = 3;
constexpr const char* standard_fusion_names[standard_fusion_streams] = {"vision", "proprioception", "force"};
constexpr double standard_fusion_rates_hz[standard_fusion_streams] = {30.0, 200.0, 1000.0};
constexpr std::int64_t standard_fusion_dims[standard_fusion_streams] = {768, 28, 8};

inline FusionShape standard_fusion_shape(std::int64_t batch) {
  FusionShape shape;
  shape.batch = batch;
  shape.steps = static_cast<std::int64_t>(standard_fusion_window_s * standard_fusion_timeline_hz);
  shape.streams = standard_fusion_streams;
  for (int s = 0; s < standard_fusion_streams; ++s) {
    shape.samples[s] = static_cast<std::int64_t>(standard_fusion_window_s * standard_fusion_rates_hz[s]);
    shape.dims[s] = standard_fusion_dims[s];
  }
  return shape;
}

}  // namespace egt
