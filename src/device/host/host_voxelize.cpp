#include <atomic>
#include <cstring>
#include <memory>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

using math::PointPlace;
using math::TilePoint;
using math::VoxelLocator;

constexpr std::int64_t tiles_per_chunk = 64;

template <typename T>
T increase(T& value, T by) {
  return std::atomic_ref<T>(value).fetch_add(by, std::memory_order_relaxed);
}

/// Sorts the points by tile and sums each tile's points. `run` calls the steps in order.
class Voxelizer {
 public:
  Voxelizer(const Voxelization& call, HostStream& stream)
      : call_(call),
        stream_(stream),
        locator_(call.grid),
        tiles_(locator_.tile_count()),
        scratch_(call.scratch, static_cast<std::uint64_t>(call.count), tiles_) {}

  void run() {
    *call_.counts = {};
    for_ranges(stream_, tiles_, chunk_elements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t tile = begin; tile < end; ++tile)
        scratch_.count(static_cast<std::uint32_t>(tile)) = 0;
    });
    for_ranges(stream_, call_.count, chunk_elements,
               [&](std::int64_t begin, std::int64_t end) { count_points(begin, end); });
    place_tiles();
    for_ranges(stream_, call_.count, chunk_elements,
               [&](std::int64_t begin, std::int64_t end) { scatter_points(begin, end); });
    for_ranges(stream_, tiles_, tiles_per_chunk,
               [&](std::int64_t begin, std::int64_t end) { sum_tiles(begin, end); });
  }

 private:
  struct Sums {
    std::uint64_t count[math::tile_voxels];
    std::uint64_t x[math::tile_voxels], y[math::tile_voxels], z[math::tile_voxels];
  };

  PointPlace place(std::int64_t point) const {
    const float* const p = call_.points + 3 * point;
    return locator_.place(p[0], p[1], p[2]);
  }
  TilePoint locate(std::int64_t point, std::uint32_t& tile) const {
    const float* const p = call_.points + 3 * point;
    return locator_.locate(p[0], p[1], p[2], tile);
  }

  void count_points(std::int64_t begin, std::int64_t end) {
    VoxelCounts counts{};
    for (std::int64_t i = begin; i < end; ++i) {
      const PointPlace where = place(i);
      counts.points_in += where == PointPlace::in;
      counts.points_outside += where == PointPlace::outside;
      counts.points_not_finite += where == PointPlace::not_finite;
      if (where != PointPlace::in) continue;
      std::uint32_t tile;
      locate(i, tile);
      scratch_.ranks[i] = increase(scratch_.count(tile), 1u);
    }
    increase(call_.counts->points_in, counts.points_in);
    increase(call_.counts->points_outside, counts.points_outside);
    increase(call_.counts->points_not_finite, counts.points_not_finite);
  }

  void place_tiles() {
    std::uint32_t begin = 0;
    for (std::uint32_t tile = 0; tile < tiles_; ++tile) {
      scratch_.ranges[tile] = {begin, scratch_.count(tile)};
      begin += scratch_.count(tile);
    }
  }

  void scatter_points(std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (place(i) != PointPlace::in) continue;
      std::uint32_t tile;
      const TilePoint point = locate(i, tile);
      scratch_.points[scratch_.ranges[tile].begin + scratch_.ranks[i]] = point;
    }
  }

  void sum_tiles(std::int64_t begin, std::int64_t end) {
    const auto sums = std::make_unique<Sums>();
    for (auto tile = static_cast<std::uint32_t>(begin); tile < static_cast<std::uint32_t>(end); ++tile) {
      const auto [first, count] = scratch_.ranges[tile];
      const TilePoint* const points = scratch_.points + first;
      if (count > 0) std::memset(sums.get(), 0, sizeof(Sums));
      for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t voxel = points[i].voxel();
        ++sums->count[voxel];
        sums->x[voxel] += points[i].x();
        sums->y[voxel] += points[i].y();
        sums->z[voxel] += points[i].z();
      }
      write_tile(tile, count > 0 ? sums.get() : nullptr);
    }
  }

  /// Writes all voxels of a tile. `sums`: null if the tile has no points.
  void write_tile(std::uint32_t tile, const Sums* sums) const {
    const VoxelLocator& grid = locator_;
    const std::uint32_t first[3] = {tile % grid.tiles[0] * math::tile_x,
                                    tile / grid.tiles[0] % grid.tiles[1] * math::tile_y,
                                    tile / grid.tiles[0] / grid.tiles[1] * math::tile_z};
    const std::uint32_t width = std::min(math::tile_x, grid.dims[0] - first[0]);
    for (std::uint32_t z = 0; z < math::tile_z && first[2] + z < grid.dims[2]; ++z)
      for (std::uint32_t y = 0; y < math::tile_y && first[1] + y < grid.dims[1]; ++y) {
        const std::size_t row =
            (std::size_t{first[2] + z} * grid.dims[1] + first[1] + y) * grid.dims[0] + first[0];
        if (sums == nullptr) {
          std::memset(call_.occupancy + row, 0, width);
          std::memset(static_cast<void*>(call_.features + row), 0, width * sizeof(VoxelFeatures));
        } else {
          write_row(row, width, *sums, (z * math::tile_y + y) * math::tile_x);
        }
      }
  }

  void write_row(std::size_t row, std::uint32_t width, const Sums& sums, std::uint32_t voxel) const {
    for (std::uint32_t i = 0; i < width; ++i) {
      const std::uint32_t v = voxel + i;
      call_.occupancy[row + i] = sums.count[v] > 0;
      call_.features[row + i] = math::voxel_features(sums.count[v], sums.x[v], sums.y[v], sums.z[v]);
    }
  }

  const Voxelization call_;
  HostStream& stream_;
  const VoxelLocator locator_;
  const std::uint32_t tiles_;
  const VoxelScratch scratch_;
};

}  // namespace

void run(const Voxelization& call, HostStream& stream) {
  Voxelizer(call, stream).run();
}

}  // namespace egt::host
