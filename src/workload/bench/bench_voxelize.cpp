#include <utility>

#include "workload/bench/bench_operation.hpp"

namespace egt {
namespace {

constexpr std::int64_t coordinates = 3;

/// Points distributed uniformly in the grid's box.
class Voxelize final : public BenchOperation {
 public:
  Voxelize(Device& device, std::uint64_t seed, std::int32_t grid, const BatchItems& points)
      : device_(device), seed_(seed), points_(points) {
    call_.grid.dims[0] = call_.grid.dims[1] = call_.grid.dims[2] = grid;
    call_.count = points.own;
  }

  Status prepare();

  Status make_input(int generation, std::byte* input, Stream& stream) override {
    return device_.randomize({input, ElementType::f32, points_.most * coordinates},
                             {.seed = seed_, .sequence = static_cast<std::uint64_t>(generation)}, stream);
  }
  Status enqueue(int, const std::byte* input, Stream& stream) override {
    call_.points = reinterpret_cast<const float*>(input);
    return device_.voxelize(call_, stream);
  }

  std::vector<Output> outputs() const override {
    return {{"occupancy", &occupancy_}, {"features", &features_}, {"counts", &counts_}};
  }
  std::uint64_t necessary_bytes() const override { return voxelization_bytes(points_.own, call_.grid); }

 private:
  Device& device_;
  const std::uint64_t seed_;
  const BatchItems points_;
  Voxelization call_;
  Buffer occupancy_, features_, counts_, scratch_;
};

Status Voxelize::prepare() {
  const auto voxels = static_cast<std::size_t>(call_.grid.voxels());
  call_.scratch_bytes = voxelization_scratch_bytes(points_.own, call_.grid);
  // Digests need whole words.
  EGT_TRY_ASSIGN(occupancy_, device_.allocate((voxels + 3) / 4 * 4));
  EGT_TRY_ASSIGN(features_, device_.allocate(voxels * sizeof(VoxelFeatures)));
  EGT_TRY_ASSIGN(counts_, device_.allocate(sizeof(VoxelCounts)));
  EGT_TRY_ASSIGN(scratch_, device_.allocate(call_.scratch_bytes));
  call_.occupancy = occupancy_.as<std::uint8_t>();
  call_.features = features_.as<VoxelFeatures>();
  call_.counts = counts_.as<VoxelCounts>();
  call_.scratch = scratch_.data();
  EGT_TRY_ASSIGN(const auto stream,
                 device_.create_stream(StreamPriority::normal, StreamUse::without_products));
  EGT_TRY(device_.set_zero(occupancy_.data(), occupancy_.bytes(), *stream));
  return device_.synchronize(*stream, ready_seconds);
}

}  // namespace

std::size_t voxelize_input_bytes(std::int64_t items) {
  return static_cast<std::size_t>(items * coordinates) * sizeof(float);
}

Result<std::unique_ptr<BenchOperation>> make_voxelize(Device& device, std::uint64_t seed, std::int32_t grid,
                                                      const BatchItems& points) {
  auto made = std::make_unique<Voxelize>(device, seed, grid, points);
  EGT_TRY(made->prepare());
  return std::unique_ptr<BenchOperation>(std::move(made));
}

}  // namespace egt
