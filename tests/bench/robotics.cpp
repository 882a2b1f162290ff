// voxelize and fuse on GPU 0 compared with a device copy of the same bytes, alternating in one run. Each is
// launched back to back 100 times between two events; the median of 7 such blocks counts.
//
// build/egt_bench_robotics
//
// Prints one line per case. "one set" repeats a call on the same arrays; small ones stay in the L2 cache.
// "sets" alternates between calls whose arrays together exceed any cache. Columns: microseconds per call,
// GB/s of the min bytes moved, the copy's time (same bytes read and written) as a share of the operation's.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "device/cuda/cuda_device.hpp"

namespace egt {
namespace {

constexpr int calls = 100, blocks = 7;
constexpr double timeout_s = 60;
constexpr std::uint64_t more_than_caches = 512ull << 20;

/// Enqueues call `i`.
using Call = std::function<Status(int i)>;

class Bench {
 public:
  static Result<Bench> make(Device& device) {
    Bench bench(device);
    EGT_TRY_ASSIGN(bench.stream_, device.create_stream(StreamPriority::normal));
    EGT_TRY_ASSIGN(bench.start_, device.create_event(EventUse::timing));
    EGT_TRY_ASSIGN(bench.end_, device.create_event(EventUse::timing));
    return bench;
  }

  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  Result<Buffer> allocate(std::uint64_t bytes) { return device_->allocate(bytes); }
  Status finish() { return device_->synchronize(*stream_, timeout_s); }

  /// Uniform in [-1, 1).
  Status randomize(float* data, std::int64_t count, std::uint64_t seed) {
    return device_->randomize({data, ElementType::f32, count}, {.seed = seed}, *stream_);
  }

  /// Time per call of all calls of `operation`, in microseconds.
  Result<double> call_us(const Call& operation) {
    EGT_TRY(block_us(operation).status());
    std::vector<double> times;
    for (int block = 0; block < blocks; ++block) {
      EGT_TRY_ASSIGN(const double us, block_us(operation));
      times.push_back(us);
    }
    std::sort(times.begin(), times.end());
    return times[blocks / 2];
  }

  /// Copies half of `bytes` to the other half, rotating over `sets` buffers.
  Result<double> copy_us(std::uint64_t bytes, int sets) {
    const std::uint64_t half = bytes / 2, stride = (half + 255) / 256 * 256;
    EGT_TRY_ASSIGN(const Buffer memory, allocate(2 * stride * static_cast<std::uint64_t>(sets)));
    EGT_TRY(device_->set_zero(memory.data(), memory.bytes(), *stream_));
    return call_us([&](int i) {
      std::byte* const from = memory.as<std::byte>() + 2 * stride * static_cast<std::uint64_t>(i % sets);
      return device_->copy(from + stride, from, half, *stream_);
    });
  }

  Status print(const std::string& what, std::uint64_t bytes, int sets, const Call& operation) {
    for (const int n : {1, sets}) {
      EGT_TRY_ASSIGN(const double us, call_us([&](int i) { return operation(i % n); }));
      EGT_TRY_ASSIGN(const double copy, copy_us(bytes, n));
      fmt::print("EGT {} sets={} bytes={} us={:.2f} gb_per_s={:.0f} copy_us={:.2f} ratio={:.3f}\n", what, n,
                 bytes, us, static_cast<double>(bytes) / us / 1e3, copy, copy / us);
      std::fflush(stdout);
      if (sets == 1) break;
    }
    return {};
  }

 private:
  explicit Bench(Device& device) : device_(&device) {}

  Result<double> block_us(const Call& operation) {
    EGT_TRY(device_->record(*start_, *stream_));
    for (int i = 0; i < calls; ++i) EGT_TRY(operation(i));
    EGT_TRY(device_->record(*end_, *stream_));
    EGT_TRY(finish());
    EGT_TRY_ASSIGN(const double ms, device_->elapsed_ms(*start_, *end_));
    return ms * 1e3 / calls;
  }

  Device* device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> start_, end_;
};

int sets_of(std::uint64_t bytes) {
  return static_cast<int>(std::clamp<std::uint64_t>(more_than_caches / bytes + 1, 1, 64));
}

struct CloudOnDevice {
  Buffer points, occupancy, features, counts, scratch;
  Voxelization call;
};

/// `spread`: the fraction of the box, along each axis, that contains points.
Result<CloudOnDevice> make_cloud(Bench& bench, std::int64_t points, float spread, std::uint64_t seed) {
  CloudOnDevice cloud;
  Voxelization& call = cloud.call;
  const auto voxels = static_cast<std::uint64_t>(call.grid.voxels());
  call.count = points;
  call.scratch_bytes = voxelization_scratch_bytes(points, call.grid);
  EGT_TRY_ASSIGN(cloud.points, bench.allocate(static_cast<std::uint64_t>(points) * 12));
  EGT_TRY_ASSIGN(cloud.occupancy, bench.allocate(voxels));
  EGT_TRY_ASSIGN(cloud.features, bench.allocate(voxels * sizeof(VoxelFeatures)));
  EGT_TRY_ASSIGN(cloud.counts, bench.allocate(sizeof(VoxelCounts)));
  EGT_TRY_ASSIGN(cloud.scratch, bench.allocate(call.scratch_bytes));
  call.points = cloud.points.as<float>();
  call.occupancy = cloud.occupancy.as<std::uint8_t>();
  call.features = cloud.features.as<VoxelFeatures>();
  call.counts = cloud.counts.as<VoxelCounts>();
  call.scratch = cloud.scratch.data();
  EGT_TRY(bench.device().randomize({cloud.points.data(), ElementType::f32, 3 * points},
                                   {.seed = seed, .scale = spread}, bench.stream()));
  return cloud;
}

Status measure_voxelize(Bench& bench, std::int64_t points, float spread) {
  const std::uint64_t bytes = voxelization_bytes(points, VoxelGrid{});
  std::vector<CloudOnDevice> clouds;
  for (int i = 0; i < sets_of(bytes); ++i) {
    EGT_TRY_ASSIGN(CloudOnDevice cloud, make_cloud(bench, points, spread, static_cast<std::uint64_t>(i)));
    clouds.push_back(std::move(cloud));
  }
  return bench.print(fmt::format("voxelize points={} spread={}", points, spread), bytes,
                     static_cast<int>(clouds.size()), [&](int i) {
                       return bench.device().voxelize(clouds[static_cast<std::size_t>(i)].call,
                                                      bench.stream());
                     });
}

struct StreamsOnDevice {
  std::vector<Buffer> buffers;
  StreamFusion call;
};

Result<double*> put_times(Bench& bench, std::vector<Buffer>& buffers, std::int64_t batch, std::int64_t count,
                          double rate_hz, double offset_s) {
  const auto bytes = static_cast<std::size_t>(batch * count) * sizeof(double);
  EGT_TRY_ASSIGN(const Buffer staging, bench.device().allocate_pinned(bytes));
  for (std::int64_t i = 0; i < batch * count; ++i)
    staging.as<double>()[i] = static_cast<double>(i % count) / rate_hz + offset_s;
  EGT_TRY_ASSIGN(Buffer buffer, bench.allocate(bytes));
  EGT_TRY(bench.device().copy(buffer.data(), staging.data(), bytes, bench.stream()));
  EGT_TRY(bench.finish());
  buffers.push_back(std::move(buffer));
  return buffers.back().as<double>();
}

Result<StreamsOnDevice> make_streams(Bench& bench, std::int64_t batch, std::uint64_t seed) {
  StreamsOnDevice streams;
  StreamFusion& call = streams.call;
  const FusionShape& shape = call.shape = standard_fusion_shape(batch);
  const auto allocate = [&](std::int64_t bytes) -> Result<void*> {
    EGT_TRY_ASSIGN(Buffer buffer, bench.allocate(static_cast<std::uint64_t>(bytes)));
    streams.buffers.push_back(std::move(buffer));
    return streams.buffers.back().data();
  };
  for (int s = 0; s < shape.streams; ++s) {
    EGT_TRY_ASSIGN(call.times[s], put_times(bench, streams.buffers, batch, shape.samples[s],
                                            standard_fusion_rates_hz[s], 0.0));
    const std::int64_t numbers = batch * shape.samples[s] * shape.dims[s];
    EGT_TRY_ASSIGN(void* const values, allocate(numbers * 4));
    EGT_TRY(bench.randomize(static_cast<float*>(values), numbers, seed));
    call.values[s] = static_cast<const float*>(values);
  }
  // Between the samples, so that every step interpolates between two of them.
  EGT_TRY_ASSIGN(call.timeline,
                 put_times(bench, streams.buffers, batch, shape.steps, standard_fusion_timeline_hz, 0.0003));
  EGT_TRY_ASSIGN(void* const fused, allocate(batch * shape.steps * shape.total_dims() * 4));
  EGT_TRY_ASSIGN(void* const dropped, allocate(batch * shape.streams * 4));
  call.scratch_bytes = fusion_scratch_bytes(shape);
  EGT_TRY_ASSIGN(call.scratch, allocate(static_cast<std::int64_t>(call.scratch_bytes)));
  call.fused = static_cast<float*>(fused);
  call.dropped = static_cast<std::uint32_t*>(dropped);
  return streams;
}

Status measure_fuse(Bench& bench, std::int64_t batch) {
  const std::uint64_t bytes = fusion_bytes(standard_fusion_shape(batch));
  std::vector<StreamsOnDevice> sets;
  for (int i = 0; i < sets_of(bytes); ++i) {
    EGT_TRY_ASSIGN(StreamsOnDevice streams, make_streams(bench, batch, static_cast<std::uint64_t>(i)));
    sets.push_back(std::move(streams));
  }
  return bench.print(fmt::format("fuse batch={}", batch), bytes, static_cast<int>(sets.size()), [&](int i) {
    return bench.device().fuse(sets[static_cast<std::size_t>(i)].call, bench.stream());
  });
}

Status run() {
  EGT_TRY_ASSIGN(const std::unique_ptr<Device> device, open_cuda_device(0));
  EGT_TRY_ASSIGN(Bench bench, Bench::make(*device));
  for (const std::int64_t points : {10'000, 100'000, 1'000'000, 10'000'000})
    EGT_TRY(measure_voxelize(bench, points, 1.0f));
  EGT_TRY(measure_voxelize(bench, 1'000'000, 0.1f));
  EGT_TRY(measure_voxelize(bench, 10'000'000, 1e-6f));  // eight voxels
  for (const std::int64_t batch : {1, 32, 256}) EGT_TRY(measure_fuse(bench, batch));
  return {};
}

}  // namespace
}  // namespace egt

int main() {
  const egt::Status status = egt::run();
  if (!status.ok()) fmt::print(stderr, "{}\n", status.what());
  return status.ok() ? 0 : 1;
}
