#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "egt/core/math/half.hpp"
#include "egt/core/math/hd.hpp"

/// Linear interpolation of time-stamped streams to one timeline, shared by host and device.
namespace egt {

constexpr int max_fusion_streams = 4;

/// `streams` streams of samples. Each batch element has its own samples and timeline.
struct FusionShape {
  std::int64_t batch = 0;
  std::int64_t steps = 0;                         ///< of the timeline
  int streams = 0;                                ///< 1 .. max_fusion_streams
  std::int64_t samples[max_fusion_streams] = {};  ///< of each stream, below 2^31
  std::int64_t dims[max_fusion_streams] = {};     ///< values per sample, of each stream

  std::int64_t total_dims() const {
    std::int64_t sum = 0;
    for (int s = 0; s < streams; ++s) sum += dims[s];
    return sum;
  }
};

namespace math {

EGT_HD bool is_finite(double value) {
  return value - value == 0.0;
}

/// The two samples around a time. If only one sample defines the value, both indices are that one and the
/// weight is 0. If none does, `left` is below 0.
struct alignas(16) Bracket {
  std::int32_t left;
  std::int32_t right;
  float weight;  ///< of the right sample
  std::uint32_t unused;
};

/// (time - left) / (right - left) for left <= time < right, in fp64, rounded to fp32.
EGT_HD float interpolation_weight(double time, double left, double right) {
  if (!is_finite(right - left)) {  // overflow of fp64: halving is exact at this size
    time *= 0.5;
    left *= 0.5;
    right *= 0.5;
  }
  return static_cast<float>((time - left) / (right - left));
}

/// Returns left if the weight is 0; a NaN becomes the canonical quiet NaN.
EGT_HD float interpolate(float left, float right, float weight) {
  const float between = fmaf(weight, right - left, left);
  const float value = weight == 0.0f ? left : between;
  return value == value ? value : float_from_bits(0x7FC00000u);
}

/// Finds the bracket of one time in a row of samples, given in consecutive chunks. A sample counts if its
/// time is finite and greater than all earlier finite times of the row. At these samples the running maximum
/// of the finite times (-infinity before the first) rises.
class BracketSearch {
 public:
  EGT_HD explicit BracketSearch(double time) : time_(time) {}

  /// Searches the next chunk. running[i]: running maximum at sample first + i; `before`: at sample first - 1.
  EGT_HD void look(const double* running, std::int32_t count, std::int32_t first, double before) {
    if (right_ >= 0) return;  // the right sample was found in an earlier chunk
    const std::int32_t above = first_above(running, count);
    if (above < count) {
      right_ = first + above;
      right_time_ = running[above];
    }
    if (above == 0 || !(running[above - 1] > before)) return;
    left_time_ = running[above - 1];
    left_ = first + first_at_least(running, above, left_time_);
  }

  EGT_HD Bracket bracket() const {
    if (!is_finite(time_) || (left_ < 0 && right_ < 0)) return {-1, -1, 0.0f, 0};
    if (left_ < 0) return {right_, right_, 0.0f, 0};
    if (right_ < 0 || time_ == left_time_) return {left_, left_, 0.0f, 0};
    return {left_, right_, interpolation_weight(time_, left_time_, right_time_), 0};
  }

 private:
  /// The first of `count` elements that is above the time; `count` if there is none.
  EGT_HD std::int32_t first_above(const double* running, std::int32_t count) const {
    std::int32_t low = 0, high = count;
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      if (running[middle] > time_)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  /// The first of `count` elements that is not below `value`, the last element; usually the last one itself.
  EGT_HD static std::int32_t first_at_least(const double* running, std::int32_t count, double value) {
    std::int32_t low = 0, high = count - 1;
    if (high == 0 || running[high - 1] < value) return high;
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      if (running[middle] < value)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  double time_, left_time_ = 0, right_time_ = 0;
  std::int32_t left_ = -1, right_ = -1;
};

}  // namespace math
}  // namespace egt
