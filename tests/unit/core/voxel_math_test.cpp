#include "egt/core/math/voxel_math.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "egt/core/voxelization.hpp"

namespace egt {
namespace {

using math::PointPlace;
using math::TilePoint;
using math::VoxelLocator;

TEST(VoxelMath, EveryVoxelHasAPlaceOfItsOwnInSomeTile) {
  VoxelGrid grid{{0, 0, 0}, {65, 9, 6}, {65, 9, 6}};
  const VoxelLocator locator(grid);
  EXPECT_EQ(locator.tile_count(), 3u * 3u * 2u);
  std::vector<bool> taken(locator.tile_count() * math::tile_voxels);
  for (int x = 0; x < 65; ++x)
    for (int y = 0; y < 9; ++y)
      for (int z = 0; z < 6; ++z) {
        std::uint32_t tile = 0;
        const TilePoint point = locator.locate(static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.25f,
                                               static_cast<float>(z) + 0.75f, tile);
        EXPECT_EQ(point.x(), 0x8000u);
        EXPECT_EQ(point.y(), 0x4000u);
        EXPECT_EQ(point.z(), 0xC000u);
        ASSERT_LT(tile, locator.tile_count());
        ASSERT_LT(point.voxel(), math::tile_voxels);
        const std::size_t place = tile * math::tile_voxels + point.voxel();
        EXPECT_FALSE(taken[place]) << x << ", " << y << ", " << z;
        taken[place] = true;
      }
}

TEST(VoxelMath, APointBelowTheUpperFaceIsInTheLastVoxelHoweverItsPositionIsRounded) {
  for (const float max : {1e-40f, 1e-6f, 0.1f, 3.0f, 1e30f}) {
    VoxelGrid grid{{-3e38f, 0, -1e30f}, {max, max, max}, {1024, 1000, 7}};
    const VoxelLocator locator(grid);
    const float last = std::nextafter(max, -1.0f);
    ASSERT_EQ(locator.place(last, last, last), PointPlace::in);
    for (int axis = 0; axis < 3; ++axis) EXPECT_LE(locator.position(axis, last), locator.last[axis]);
    EXPECT_EQ(locator.position(0, last), locator.last[0]);
  }
}

TEST(VoxelMath, SumsOf32BitsGiveTheBitsOf64) {
  std::mt19937 engine(1);
  for (int i = 0; i < 10000; ++i) {
    const std::uint32_t count = engine() % points_per_slice;
    const auto sum = [&] { return static_cast<std::uint32_t>(engine() % (count * 65535ull + 1)); };
    const std::uint32_t x = sum(), y = sum(), z = sum();
    const VoxelFeatures narrow = math::voxel_features(count, x, y, z);
    const VoxelFeatures wide = math::voxel_features<std::uint64_t>(count, x, y, z);
    EXPECT_EQ(narrow.count, wide.count);
    for (int axis = 0; axis < 3; ++axis) EXPECT_EQ(narrow.mean_offset[axis], wide.mean_offset[axis]);
  }
}

TEST(VoxelMath, OffsetsAreSymmetricAndInsideTheVoxel) {
  const VoxelFeatures ends = math::voxel_features(1u, 0u, 65535u, 32768u);
  EXPECT_EQ(ends.mean_offset[0], -0.5f + 0x1p-17f);
  EXPECT_EQ(ends.mean_offset[1], 0.5f - 0x1p-17f);
  EXPECT_EQ(ends.mean_offset[2], 0x1p-17f);
  const VoxelFeatures none = math::voxel_features(0u, 0u, 0u, 0u);
  for (const float offset : none.mean_offset) EXPECT_EQ(offset, 0.0f);
}

/// For any tiles of the points, the parts have enough room and do not overlap.
TEST(VoxelScratch, PartsLieApartAndHoldTheWorstCase) {
  for (const std::uint64_t points : {0ull, 1ull, 16383ull, 16384ull, 16385ull, 100'000ull, 1ull << 31}) {
    constexpr std::uint64_t tiles = 77, base = 1 << 20;
    const VoxelScratch scratch(reinterpret_cast<void*>(base), points, tiles);
    const auto address = [](const auto* part) { return reinterpret_cast<std::uintptr_t>(part); };
    EXPECT_EQ(address(scratch.header), base);
    EXPECT_GE(address(scratch.region_counts), base + sizeof(VoxelScratchHeader));
    EXPECT_GE(base + scratch.zeroed_bytes,
              address(scratch.region_counts) + scratch.regions.count * count_stride * 4);
    EXPECT_EQ(address(scratch.counts), base + scratch.zeroed_bytes);
    EXPECT_GE(address(scratch.sums), address(scratch.counts) + tiles * count_stride * 4);
    // Tiles with one point more than a slice holds: the max number of tiles with two slices each.
    const std::uint64_t full = points / (points_per_slice + 1);
    EXPECT_GE(address(scratch.counts) + scratch.sort_zeroed_bytes,
              address(scratch.sums) + full * sizeof(VoxelSums));
    EXPECT_GE(address(scratch.slices), address(scratch.counts) + scratch.sort_zeroed_bytes);
    EXPECT_GE(scratch.max_slices, 2 * full);
    EXPECT_GE(address(scratch.ranks), address(scratch.slices) + scratch.max_slices * sizeof(VoxelSlice));
    EXPECT_GE(address(scratch.ranges), address(scratch.ranks) + points * 4);
    EXPECT_GE(address(scratch.points), address(scratch.ranges) + tiles * sizeof(TileRange));
    const std::uint64_t in_bins = std::uint64_t{scratch.regions.count} * scratch.regions.room;
    EXPECT_GE(base + scratch.bytes, address(scratch.points) + std::max(points, in_bins) * sizeof(TilePoint));
    EXPECT_EQ(scratch.bytes, VoxelScratch(nullptr, points, tiles).bytes);
  }
}

TEST(VoxelRegions, HaveRoomForTheirShareAndALabelForEachTile) {
  for (const std::uint64_t tiles : {1ull, 2ull, 129ull, 32768ull, 131072ull, 524288ull})
    for (const std::uint64_t points : {0ull, 1ull, 10'000ull, 1'000'000ull, 10'000'000ull}) {
      const VoxelRegions regions(points, tiles);
      if (regions.count == 0) continue;
      EXPECT_LE(regions.count, max_regions);
      EXPECT_LE(regions.room, max_region_points);
      const std::uint64_t of_region = std::min<std::uint64_t>(tiles, 1ull << regions.shift);
      EXPECT_GE(std::uint64_t{regions.room} * tiles, points * of_region) << tiles << " " << points;
      const auto last = static_cast<std::uint32_t>(tiles - 1);
      EXPECT_EQ(regions.region(last), regions.count - 1);
      EXPECT_EQ(regions.region(last) << regions.shift | regions.label(last), last);
      EXPECT_LT(regions.label(last), 1u << TilePoint::label_bits);
    }
  EXPECT_EQ(VoxelRegions(1'000'000, 32768).count, 512u) << "1953 points in 64 tiles";
  EXPECT_EQ(VoxelRegions(10'000'000, 32768).count, 4096u);
  EXPECT_EQ(VoxelRegions(20'000'000, 32768).count, 0u) << "no 4096 regions have room for them";
  EXPECT_EQ(VoxelRegions(4000, 1).count, 0u) << "more than a bin holds";
}

TEST(Voxelization, NeedsWhatItReadsAndWritesOnce) {
  EXPECT_EQ(voxelization_bytes(1'000'000, VoxelGrid{}), 12'000'000u + 17u * 256 * 256 * 256);
  EXPECT_LT(voxelization_scratch_bytes(1'000'000, VoxelGrid{}), 36'000'000u);
}

}  // namespace
}  // namespace egt
