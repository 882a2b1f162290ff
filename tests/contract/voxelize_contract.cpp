#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "arena.hpp"
#include "device_contract.hpp"
#include "robotics_reference.hpp"

namespace egt::contract {
namespace {

using reference::below;
using reference::Engine;
using reference::fraction;

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Cloud {
  VoxelGrid grid;
  std::vector<float> points;  ///< x, y, z of each point

  std::int64_t count() const { return static_cast<std::int64_t>(points.size() / 3); }
  std::size_t voxels() const { return static_cast<std::size_t>(grid.voxels()); }
};

/// The outputs as bits.
struct Voxelized {
  std::vector<std::uint8_t> occupancy;
  std::vector<VoxelFeatures> features;
  VoxelCounts counts;

  std::uint64_t digest() const {
    std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
    const auto add = [&hash](const void* data, std::size_t bytes) {
      for (std::size_t i = 0; i < bytes; ++i)
        hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3u;
    };
    add(occupancy.data(), occupancy.size());
    add(features.data(), features.size() * sizeof(VoxelFeatures));
    add(&counts, sizeof counts);
    return hash;
  }
};

/// A cloud's arrays on a device.
class CloudOnDevice {
 public:
  CloudOnDevice(const Cloud& cloud, Arena& arena, std::size_t shift = 0) : arena_(arena) {
    arena.clear();
    call_.grid = cloud.grid;
    call_.count = cloud.count();
    call_.points = arena.put(cloud.points, shift);
    call_.occupancy = arena.reserve<std::uint8_t>(cloud.voxels(), shift / 4);
    call_.features = arena.reserve<VoxelFeatures>(cloud.voxels());
    call_.counts = arena.reserve<VoxelCounts>(1);
    call_.scratch_bytes = voxelization_scratch_bytes(call_.count, call_.grid);
    call_.scratch = arena.reserve<std::byte>(call_.scratch_bytes);
  }

  const Voxelization& call() const { return call_; }
  Voxelized result() const {
    const auto voxels = static_cast<std::size_t>(call_.grid.voxels());
    return {arena_.get(call_.occupancy, voxels), arena_.get(call_.features, voxels),
            *arena_.image(call_.counts)};
  }
  bool ends_are_untouched() const {
    const auto voxels = static_cast<std::size_t>(call_.grid.voxels());
    return arena_.end_is_untouched(call_.occupancy, voxels) &&
           arena_.end_is_untouched(call_.features, voxels) && arena_.end_is_untouched(call_.counts, 1) &&
           arena_.end_is_untouched(static_cast<std::byte*>(call_.scratch), call_.scratch_bytes);
  }

 private:
  Arena& arena_;
  Voxelization call_;
};

Voxelized voxelize(const Cloud& cloud, Device& device, Stream& stream, Arena& arena, std::size_t shift = 0) {
  const CloudOnDevice on_device(cloud, arena, shift);
  EXPECT_OK(arena.upload(device, stream));
  EXPECT_OK(device.voxelize(on_device.call(), stream));
  EXPECT_OK(arena.download(device, stream));
  EXPECT_OK(device.synchronize(stream, 60));
  EXPECT_TRUE(on_device.ends_are_untouched());
  return on_device.result();
}

void expect_is_voxelized(const Voxelized& actual, const Cloud& cloud, const std::string& what) {
  const reference::Voxels expected = reference::voxelize(cloud.grid, cloud.points);
  EXPECT_EQ(actual.counts, expected.counts) << what;
  for (std::size_t v = 0; v < cloud.voxels(); ++v) {
    const VoxelFeatures& features = actual.features[v];
    ASSERT_EQ(actual.occupancy[v], expected.count[v] > 0) << what << ", voxel " << v;
    ASSERT_EQ(features.count, static_cast<float>(expected.count[v])) << what << ", voxel " << v;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double tolerance = expected.count[v] > 0 ? voxel_offset_tolerance : 0.0;
      ASSERT_TRUE(std::fabs(features.mean_offset[axis] - expected.mean_offset[3 * v + axis]) <= tolerance)
          << what << ", voxel " << v << ", axis " << axis << ": " << features.mean_offset[axis] << ", not "
          << expected.mean_offset[3 * v + axis];
    }
  }
}

VoxelGrid random_grid(Engine& engine) {
  constexpr std::int32_t dims[][3] = {{1, 1, 1},  {32, 4, 4}, {33, 5, 5},  {31, 3, 3}, {64, 1, 2},
                                      {1, 40, 3}, {3, 5, 70}, {100, 7, 2}, {8, 8, 8},  {1024, 1, 2}};
  constexpr float boxes[][6] = {{-1, -1, -1, 1, 1, 1},
                                {0, 0, 0, 7, 49, 98},
                                {1000, -2000.5f, 0.1f, 1000.7f, -2000.25f, 0.3f},
                                {-3.4e38f, -1, 0, 3.4e38f, 3.4e38f, 1e-3f},
                                {-1e-44f, 0, -1e-40f, 1e-44f, 1e-44f, 1e-38f},
                                {-5, 1e-30f, -1e30f, -4.999f, 1, -1e-30f}};
  const auto& box = boxes[below(std::size(boxes), engine)];
  VoxelGrid grid{{box[0], box[1], box[2]}, {box[3], box[4], box[5]}, {}};
  const auto& fixed = dims[below(std::size(dims), engine)];
  const bool any = below(2, engine) == 0;
  for (int axis = 0; axis < 3; ++axis)
    grid.dims[axis] = any ? 1 + static_cast<std::int32_t>(below(axis == 0 ? 80 : 12, engine)) : fixed[axis];
  return grid;
}

float uniform_coordinate(const VoxelGrid& grid, int axis, Engine& engine) {
  const double min = grid.min[axis], max = grid.max[axis];
  return static_cast<float>(min + (max - min) * fraction(engine));
}

/// On a face of the box or of a voxel, or the next representable number.
float face_coordinate(const VoxelGrid& grid, int axis, Engine& engine) {
  const double min = grid.min[axis], max = grid.max[axis];
  const auto dims = static_cast<std::uint64_t>(grid.dims[axis]);
  const std::uint64_t face = below(3, engine) == 0 ? below(2, engine) * dims : below(dims + 1, engine);
  const auto at =
      face == dims
          ? grid.max[axis]
          : static_cast<float>(min + (max - min) * static_cast<double>(face) / static_cast<double>(dims));
  switch (below(3, engine)) {
    case 0:
      return std::nextafter(at, -infinity);
    case 1:
      return std::nextafter(at, infinity);
    default:
      return at;
  }
}

float odd_coordinate(const VoxelGrid& grid, int axis, Engine& engine) {
  constexpr float odd[] = {std::numeric_limits<float>::quiet_NaN(),
                           infinity,
                           -infinity,
                           std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::lowest(),
                           std::numeric_limits<float>::denorm_min(),
                           -std::numeric_limits<float>::denorm_min(),
                           0.0f,
                           -0.0f,
                           1e30f};
  if (below(4, engine) > 0) return uniform_coordinate(grid, axis, engine);
  return odd[below(std::size(odd), engine)];
}

/// One of six kinds: uniform, one voxel, one point, on faces, with unusual coordinates, and a mix of these.
Cloud random_cloud(std::uint64_t seed) {
  Engine engine(seed);
  Cloud cloud;
  cloud.grid = random_grid(engine);
  constexpr std::uint64_t counts[] = {0, 1, 2, 3, 4, 5, 31, 33, 257, 1025};
  const std::uint64_t count =
      below(2, engine) == 0 ? counts[below(std::size(counts), engine)] : below(2000, engine);
  const std::uint64_t kind = below(6, engine);
  float place[3];
  for (int axis = 0; axis < 3; ++axis) place[axis] = uniform_coordinate(cloud.grid, axis, engine);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t of_point = kind < 5 ? kind : below(5, engine);
    for (int axis = 0; axis < 3; ++axis) {
      const double voxel =
          (static_cast<double>(cloud.grid.max[axis]) - cloud.grid.min[axis]) / cloud.grid.dims[axis];
      cloud.points.push_back(of_point == 0 ? uniform_coordinate(cloud.grid, axis, engine)
                             : of_point == 1
                                 ? static_cast<float>(place[axis] + 0.1 * voxel * fraction(engine))
                             : of_point == 2 ? place[axis]
                             : of_point == 3 ? face_coordinate(cloud.grid, axis, engine)
                                             : odd_coordinate(cloud.grid, axis, engine));
    }
  }
  return cloud;
}

/// Points over the whole grid and `crowd` points in a corner of one voxel, in random order.
Cloud crowded_cloud(std::uint64_t spread, std::uint64_t crowd, std::uint64_t seed) {
  Engine engine(seed);
  Cloud cloud;
  cloud.grid.dims[0] = 40;
  cloud.grid.dims[1] = 33;
  cloud.grid.dims[2] = 21;
  constexpr double corner[] = {0.0499, 0.0302, 0.0475};  // upper corner of voxel (20, 16, 10)
  std::uint64_t left = spread;
  for (std::uint64_t i = spread + crowd; i > 0; --i) {
    const bool anywhere = below(i, engine) < left;
    left -= anywhere;
    for (const double upper : corner)
      cloud.points.push_back(
          static_cast<float>(anywhere ? 2.02 * fraction(engine) - 1.01 : upper - 1e-4 * fraction(engine)));
  }
  return cloud;
}

Cloud shuffled(const Cloud& cloud, std::uint64_t seed) {
  Engine engine(seed);
  Cloud other = cloud;
  for (std::uint64_t i = other.points.size() / 3; i > 1; --i) {
    const auto a = static_cast<std::ptrdiff_t>(3 * (i - 1)),
               b = static_cast<std::ptrdiff_t>(3 * below(i, engine));
    if (a != b)
      std::swap_ranges(other.points.begin() + a, other.points.begin() + a + 3, other.points.begin() + b);
  }
  return other;
}

}  // namespace

TEST_P(DeviceContract, VoxelizeIsThePlainOneOnManyClouds) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  for (std::uint64_t seed = 0; seed < 250 && !HasFatalFailure(); ++seed) {
    const Cloud cloud = random_cloud(seed);
    const VoxelGrid& grid = cloud.grid;
    expect_is_voxelized(voxelize(cloud, device(), stream(), arena, 4 * (seed % 4)), cloud,
                        fmt::format("cloud {}: {} points, {} x {} x {}", seed, cloud.count(), grid.dims[0],
                                    grid.dims[1], grid.dims[2]));
  }
}

TEST_P(DeviceContract, VoxelizeTakesNoPointsAndPointsOfOneVoxel) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  Cloud empty;
  empty.grid.dims[0] = empty.grid.dims[1] = empty.grid.dims[2] = 30;
  const Voxelized nothing = voxelize(empty, device(), stream(), arena);
  expect_is_voxelized(nothing, empty, "no points");
  EXPECT_EQ(nothing.counts, (VoxelCounts{0, 0, 0}));
  // Enough points to overflow 32-bit sums and to need more than one block for the sum.
  const Cloud crowd = crowded_cloud(0, 200'000, 1);
  const Voxelized crowded = voxelize(crowd, device(), stream(), arena);
  expect_is_voxelized(crowded, crowd, "all in one voxel");
  EXPECT_EQ(crowded.counts, (VoxelCounts{200'000, 0, 0}));
  EXPECT_EQ(crowded.features[(10 * 33 + 16) * 40 + 20].count, 200'000.0f);
}

TEST_P(DeviceContract, VoxelizeDropsAndCountsWhatIsNotInTheBox) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const float inside = std::nextafter(1.0f, 0.0f);
  const Cloud cloud{VoxelGrid{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}},
                    {0,      0,        0,       // the corner belongs to the box
                     0.5f,   0.5f,     0.5f,    // on a face between voxels: belongs to the upper one
                     inside, inside,   inside,  //
                     1,      0.5f,     0.5f,    // the upper face is outside the box
                     0.5f,   -1e-45f,  0.5f,    //
                     0.5f,   0.5f,     1e38f,   //
                     nan,    5,        5,       // not finite takes precedence over outside
                     0.5f,   infinity, 0.5f,    //
                     0.5f,   0.5f,     -infinity}};
  const Voxelized voxels = voxelize(cloud, device(), stream(), arena);
  EXPECT_EQ(voxels.counts, (VoxelCounts{3, 3, 3}));
  EXPECT_EQ(voxels.occupancy, (std::vector<std::uint8_t>{1, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(voxels.features[0].count, 1.0f);
  EXPECT_EQ(voxels.features[7].count, 2.0f);
  for (const float offset : voxels.features[0].mean_offset) EXPECT_NEAR(offset, -0.5, voxel_offset_tolerance);
  for (const float offset : voxels.features[7].mean_offset) EXPECT_NEAR(offset, 0.0, voxel_offset_tolerance);
}

/// The digest is of this code's own results on every device. If it changes, the bits of features change.
TEST_P(DeviceContract, VoxelizeGivesTheSameBitsInAnyOrderAndOnEveryDevice) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  const Cloud cloud = crowded_cloud(60'000, 40'000, 7);
  const Voxelized first = voxelize(cloud, device(), stream(), arena);
  expect_is_voxelized(first, cloud, "a crowded cloud");
  EXPECT_EQ(first.digest(), 7365068730773123352u);
  EXPECT_EQ(voxelize(cloud, device(), stream(), arena).digest(), first.digest()) << "again";
  EXPECT_EQ(voxelize(cloud, device(), stream(), arena, 4).digest(), first.digest()) << "at another place";
  for (const std::uint64_t seed : {1, 2, 3})
    EXPECT_EQ(voxelize(shuffled(cloud, seed), device(), stream(), arena).digest(), first.digest())
        << "shuffled";
}

TEST_P(DeviceContract, VoxelizeRefusesWhatDoesNotFit) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  const Cloud cloud{VoxelGrid{{0, 0, 0}, {1, 1, 1}, {2, 3, 4}}, {0.5f, 0.5f, 0.5f}};
  const CloudOnDevice on_device(cloud, arena);
  const auto expect_refused = [&](const auto& change) {
    Voxelization call = on_device.call();
    change(call);
    EXPECT_FAILS(invalid_argument, device().voxelize(call, stream()));
  };
  expect_refused([](Voxelization& call) { call.points = nullptr; });
  expect_refused([](Voxelization& call) { call.occupancy = nullptr; });
  expect_refused([](Voxelization& call) { call.features = nullptr; });
  expect_refused([](Voxelization& call) {
    call.features = reinterpret_cast<VoxelFeatures*>(reinterpret_cast<char*>(call.features) + 4);
  });
  expect_refused([](Voxelization& call) { call.counts = nullptr; });
  expect_refused([](Voxelization& call) { call.scratch = nullptr; });
  expect_refused([](Voxelization& call) { call.scratch = static_cast<char*>(call.scratch) + 16; });
  expect_refused([](Voxelization& call) { --call.scratch_bytes; });
  expect_refused([](Voxelization& call) { call.count = -1; });
  expect_refused([](Voxelization& call) { call.count = Voxelization::max_points + 1; });
  for (int axis = 0; axis < 3; ++axis) {
    expect_refused([axis](Voxelization& call) { call.grid.dims[axis] = 0; });
    expect_refused([axis](Voxelization& call) { call.grid.dims[axis] = VoxelGrid::max_dims + 1; });
    expect_refused([axis](Voxelization& call) { call.grid.max[axis] = call.grid.min[axis]; });
    expect_refused([axis](Voxelization& call) { call.grid.max[axis] = infinity; });
    expect_refused([axis](Voxelization& call) { call.grid.min[axis] = -infinity; });
    expect_refused(
        [axis](Voxelization& call) { call.grid.min[axis] = std::numeric_limits<float>::quiet_NaN(); });
  }
  finish();
}

}  // namespace egt::contract
