#include "robotics_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egt::reference {
namespace {

/// Position of the coordinate along its axis, in voxels.
double position(const VoxelGrid& grid, int axis, float coordinate) {
  const double min = grid.min[axis], max = grid.max[axis];
  return (coordinate - min) * (grid.dims[axis] / (max - min));
}

bool is_finite(const float* point) {
  return std::isfinite(point[0]) && std::isfinite(point[1]) && std::isfinite(point[2]);
}

bool is_inside(const VoxelGrid& grid, const float* point) {
  for (int axis = 0; axis < 3; ++axis)
    if (point[axis] < grid.min[axis] || point[axis] >= grid.max[axis]) return false;
  return true;
}

void add_point(const VoxelGrid& grid, const float* point, Voxels& voxels) {
  std::int64_t voxel[3];
  double offset[3];
  for (int axis = 0; axis < 3; ++axis) {
    const double exact = position(grid, axis, point[axis]);
    voxel[axis] = std::min<std::int64_t>(static_cast<std::int64_t>(std::floor(exact)), grid.dims[axis] - 1);
    offset[axis] = exact - static_cast<double>(voxel[axis]) - 0.5;
  }
  const auto index = static_cast<std::size_t>((voxel[2] * grid.dims[1] + voxel[1]) * grid.dims[0] + voxel[0]);
  ++voxels.count[index];
  for (std::size_t axis = 0; axis < 3; ++axis) voxels.mean_offset[3 * index + axis] += offset[axis];
}

/// Indices of the valid samples of one row.
std::vector<std::int64_t> counting_samples(const double* times, std::int64_t samples) {
  std::vector<std::int64_t> counting;
  double latest = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < samples; ++i) {
    if (!std::isfinite(times[i])) continue;
    if (times[i] > latest) counting.push_back(i);
    latest = std::max(latest, times[i]);
  }
  return counting;
}

float canonical(float value) {
  return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
}

/// One value of one stream at `time`. `values`: this value in the first sample; samples are `dim` apart.
float value_at(double time, const std::vector<std::int64_t>& counting, const double* times,
               const float* values, std::int64_t dim) {
  if (counting.empty() || !std::isfinite(time)) return 0.0f;
  const auto value_of = [&](std::int64_t sample) { return values[sample * dim]; };
  if (time <= times[counting.front()]) return canonical(value_of(counting.front()));
  for (std::size_t i = 1; i < counting.size(); ++i) {
    const std::int64_t left = counting[i - 1], right = counting[i];
    if (time >= times[right]) continue;
    if (time == times[left]) return canonical(value_of(left));
    // Halves avoid overflow; they are exact at the magnitudes of the test times.
    const double weight = (time / 2 - times[left] / 2) / (times[right] / 2 - times[left] / 2);
    const auto rounded = static_cast<float>(weight);
    if (rounded == 0.0f) return canonical(value_of(left));
    return canonical(std::fma(rounded, value_of(right) - value_of(left), value_of(left)));
  }
  return canonical(value_of(counting.back()));
}

}  // namespace

Voxels voxelize(const VoxelGrid& grid, const std::vector<float>& points) {
  const auto count = static_cast<std::size_t>(grid.voxels());
  Voxels voxels{std::vector<std::uint64_t>(count), std::vector<double>(3 * count), {}};
  for (std::size_t i = 0; i < points.size(); i += 3) {
    const float* const point = points.data() + i;
    if (!is_finite(point)) {
      ++voxels.counts.points_not_finite;
    } else if (!is_inside(grid, point)) {
      ++voxels.counts.points_outside;
    } else {
      ++voxels.counts.points_in;
      add_point(grid, point, voxels);
    }
  }
  for (std::size_t i = 0; i < voxels.mean_offset.size(); ++i)
    if (const std::uint64_t n = voxels.count[i / 3]; n > 0) voxels.mean_offset[i] /= static_cast<double>(n);
  return voxels;
}

Fused fuse(const Streams& streams) {
  const FusionShape& shape = streams.shape;
  Fused fused;
  fused.values.resize(static_cast<std::size_t>(shape.batch * shape.steps * shape.total_dims()));
  std::int64_t first = 0;  // offset of the stream in a fused row
  for (std::int64_t element = 0; element < shape.batch; ++element) {
    first = 0;
    for (int s = 0; s < shape.streams; ++s) {
      const std::int64_t samples = shape.samples[s], dim = shape.dims[s];
      const double* const times = streams.times[s].data() + element * samples;
      const float* const values = streams.values[s].data() + element * samples * dim;
      const std::vector<std::int64_t> counting = counting_samples(times, samples);
      fused.dropped.push_back(static_cast<std::uint32_t>(samples) -
                              static_cast<std::uint32_t>(counting.size()));
      for (std::int64_t step = 0; step < shape.steps; ++step)
        for (std::int64_t d = 0; d < dim; ++d)
          fused.values[static_cast<std::size_t>((element * shape.steps + step) * shape.total_dims() + first +
                                                d)] =
              value_at(streams.timeline[static_cast<std::size_t>(element * shape.steps + step)], counting,
                       times, values + d, dim);
      first += dim;
    }
  }
  return fused;
}

}  // namespace egt::reference
