#include <algorithm>
#include <utility>

#include "egt/core/clock.hpp"
#include "model/parameter_layout.hpp"
#include "workload/ceilings/ceiling_job.hpp"
#include "workload/common/findings.hpp"
#include "workload/common/standalone_rate.hpp"
#include "workload/links/link_host_copies.hpp"
#include "workload/memory/memory_patrol.hpp"

namespace egt {
namespace {

constexpr Pattern first{.kind = PatternKind::random, .seed = 1}, second{.kind = PatternKind::address};

/// Larger than any cache, and small enough to leave memory for other parts.
Result<std::size_t> bytes_of_memory(const CeilingWorld& world) {
  constexpr std::uint64_t of_gpu = 8ull << 30, of_host = 256u << 20, share = 8;
  EGT_TRY_ASSIGN(const MemoryInfo memory, world.environment.device.memory());
  const std::uint64_t bytes = std::min(world.is_gpu() ? of_gpu : of_host, memory.free_bytes / share);
  return bytes / (2 * memory_quantum_bytes) * (2 * memory_quantum_bytes);
}

/// Allocates memory that belongs to a trial, and initializes it in a stream.
class Maker {
 public:
  explicit Maker(const CeilingWorld& world) : world_(world), device_(world.environment.device) {}

  Status open() {
    EGT_TRY_ASSIGN(stream_, device_.create_stream(StreamPriority::normal));
    return {};
  }
  Result<void*> take(std::size_t bytes) {
    EGT_TRY_ASSIGN(Buffer buffer, device_.allocate(bytes));
    return keep(std::move(buffer));
  }
  Result<void*> take_pinned(std::size_t bytes) {
    EGT_TRY_ASSIGN(Buffer buffer, device_.allocate_pinned(bytes));
    return keep(std::move(buffer));
  }
  Result<WordsView> take_filled(std::size_t bytes, const Pattern& pattern) {
    EGT_TRY_ASSIGN(void* const data, take(bytes));
    const WordsView words{static_cast<std::uint32_t*>(data), bytes / sizeof(std::uint32_t)};
    EGT_TRY(device_.fill(words, pattern, *stream_));
    return words;
  }
  /// Allocates the mismatch report, and sets the fault for wrong words.
  Status watch(std::string kind, std::string where) {
    EGT_TRY_ASSIGN(void* const found, take(sizeof(Mismatches)));
    trial.found = static_cast<Mismatches*>(found);
    trial.fault = fault_of(world_.environment, std::move(kind), "pattern", "bench", -1);
    trial.fault.where = std::move(where);
    return device_.reset(trial.found, *stream_);
  }
  /// Sets a device-to-device copy as the limit; counts bytes read and written.
  Status beside_copy(std::size_t bytes) {
    EGT_TRY_ASSIGN(const WordsView from, take_filled(bytes / 2, first));
    EGT_TRY_ASSIGN(void* const to, take(bytes / 2));
    trial.limit = {static_cast<double>(2 * from.bytes()), [this_device = &device_, from, to](Stream& stream) {
                     return this_device->copy(to, from.data, from.bytes(), stream);
                   }};
    return {};
  }
  /// Sets a sum over the words as the limit, which is almost a plain read.
  Status beside_read(const WordsView& words) {
    EGT_TRY_ASSIGN(void* const sums, take(sizeof(Digest)));
    trial.limit = {static_cast<double>(words.bytes()), [this_device = &device_, words, sums](Stream& stream) {
                     return this_device->sum(words, static_cast<Digest*>(sums), stream);
                   }};
    return {};
  }
  Stream& stream() { return *stream_; }
  Result<std::unique_ptr<CeilingJob>> done() {
    EGT_TRY(device_.synchronize(*stream_, ready_seconds));
    return make_stream_ceiling(world_.environment, std::move(trial));
  }

  StreamTrial trial;

 private:
  void* keep(Buffer buffer) {
    trial.memory.push_back(std::move(buffer));
    return trial.memory.back().data();
  }

  const CeilingWorld& world_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
};

/// Our side verifies all blocks, one after the other. It is timed by the host clock, so that the memory
/// test's host work between two operations counts.
class PatrolCeiling final : public CeilingJob {
 public:
  PatrolCeiling(std::unique_ptr<MemoryPatrol> patrol, std::unique_ptr<CeilingJob> read)
      : patrol_(std::move(patrol)), read_(std::move(read)) {}

  Result<CeilingBurst> ours(std::int64_t count) override {
    const std::uint64_t before = patrol_->figures().bytes_verified;
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < count; ++i) EGT_TRY(patrol_->verify_all());
    const double seconds = seconds_since(start);
    const auto bytes = static_cast<double>(patrol_->figures().bytes_verified - before);
    return CeilingBurst{seconds * 1e3, {bytes / seconds}};
  }
  Result<CeilingBurst> limit(std::int64_t count) override { return read_->limit(count); }
  Result<JobReport> check() override {
    const PatrolFigures figures = patrol_->figures();
    JobReport report;
    report.work.bytes_patrolled = figures.bytes_right;
    if (figures.mismatches > 0) report.failure = "the memory test found wrong words";
    return report;
  }
  Status give_up(double seconds) override { return read_->give_up(seconds); }

 private:
  std::unique_ptr<MemoryPatrol> patrol_;
  std::unique_ptr<CeilingJob> read_;
};

Result<std::unique_ptr<MemoryPatrol>> make_patrol(const CeilingWorld& world, std::size_t bytes) {
  constexpr std::uint64_t blocks_held = 8;
  constexpr std::int64_t rows = 256;
  Environment& environment = world.environment;
  Device& device = environment.device;
  EGT_TRY_ASSIGN(auto in_flight,
                 OperationPipeline::create(device, StreamPriority::background, StreamUse::all,
                                           "the memory test", MemoryPatrol::operations_in_flight));
  EGT_TRY_ASSIGN(auto pipeline, OperationPipeline::create(device, StreamPriority::low, StreamUse::all,
                                                          "the memory-resident GEMMs", GemmLane::in_flight));
  EGT_TRY_ASSIGN(const double rate, product_rate_alone(device, pipeline->stream(), Precision::fp32));
  EGT_TRY_ASSIGN(auto products,
                 GemmLane::create(environment, {{Precision::fp32, rate}}, std::move(pipeline), rows));
  std::vector<MemoryBlock> blocks(blocks_held);
  const std::uint64_t block_bytes = bytes / blocks_held / memory_quantum_bytes * memory_quantum_bytes;
  for (std::uint64_t i = 0; i < blocks_held; ++i) {
    EGT_TRY_ASSIGN(blocks[i].buffer, device.allocate(block_bytes));
    blocks[i].words = blocks[i].buffer.words();
    blocks[i].offset = i * block_bytes;
  }
  auto patrol = std::make_unique<MemoryPatrol>(environment, std::move(blocks), std::move(in_flight),
                                               std::move(products), 1);
  EGT_TRY(patrol->prepare());
  return patrol;
}

}  // namespace

Result<std::unique_ptr<CeilingJob>> make_memory_ceiling(const CeilingWorld& world,
                                                        const CeilingTrial& trial) {
  Device& device = world.environment.device;
  EGT_TRY_ASSIGN(const std::size_t bytes, bytes_of_memory(world));
  Maker maker(world);
  EGT_TRY(maker.open());
  StreamTrial& both = maker.trial;
  EGT_TRY(maker.watch("memory", trial.rows.front().name));
  EGT_TRY_ASSIGN(const WordsView words, maker.take_filled(bytes, first));
  const auto size = static_cast<double>(bytes);
  Mismatches* const found = both.found;
  if (trial.kind == CeilingKind::fill) {
    EGT_TRY_ASSIGN(void* const cleared, maker.take(bytes));
    both.ours = {size, [&device, words](Stream& stream) { return device.fill(words, first, stream); }};
    both.limit = {
        size, [&device, cleared, bytes](Stream& stream) { return device.set_zero(cleared, bytes, stream); }};
  } else if (trial.kind == CeilingKind::refill) {
    EGT_TRY(maker.beside_copy(bytes));
  } else {
    EGT_TRY(maker.beside_read(words));
  }
  if (trial.kind == CeilingKind::digest) {
    EGT_TRY_ASSIGN(void* const digest, maker.take(sizeof(Digest)));
    both.ours = {size, [&device, words, digest](Stream& stream) {
                   return device.digest(words, static_cast<Digest*>(digest), stream);
                 }};
  }
  if (trial.kind == CeilingKind::verify)
    both.ours = {
        size, [&device, words, found](Stream& stream) { return device.verify(words, first, found, stream); }};
  if (trial.kind == CeilingKind::refill)
    both.ours = {4 * size, [&device, words, found](Stream& stream) -> Status {
                   EGT_TRY(device.verify_and_fill(words, first, second, Direction::ascending, found, stream));
                   return device.verify_and_fill(words, second, first, Direction::descending, found, stream);
                 }};
  both.last_look = [&device, words, found](Stream& stream) {
    return device.verify(words, first, found, stream);
  };
  both.work.bytes_patrolled = bytes;
  return maker.done();
}

Result<std::unique_ptr<CeilingJob>> make_patrol_ceiling(const CeilingWorld& world) {
  EGT_TRY_ASSIGN(const std::size_t bytes, bytes_of_memory(world));
  EGT_TRY_ASSIGN(auto patrol, make_patrol(world, bytes));
  Maker maker(world);
  EGT_TRY(maker.open());
  EGT_TRY_ASSIGN(const WordsView words, maker.take_filled(bytes, first));
  EGT_TRY(maker.beside_read(words));
  EGT_TRY_ASSIGN(auto read, maker.done());
  return std::unique_ptr<CeilingJob>(new PatrolCeiling(std::move(patrol), std::move(read)));
}

/// Updates all weights at once, without a low-precision copy for GEMMs.
Result<std::unique_ptr<CeilingJob>> make_update_ceiling(const CeilingWorld& world) {
  Device& device = world.environment.device;
  Maker maker(world);
  EGT_TRY(maker.open());
  const std::int64_t count = ParameterLayout(world.train.layers).size();
  const ElementType type = world.train.gradient_type;
  const bool is_adam = world.train.optimizer == Optimizer::adam;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  const std::size_t gradient_bytes = static_cast<std::size_t>(count) * size_of(type);
  float* state[3] = {};  // the weights, and the optimizer state of each
  for (float*& one : state) {
    EGT_TRY_ASSIGN(void* const data, maker.take(bytes));
    EGT_TRY(device.set_zero(data, bytes, maker.stream()));
    one = static_cast<float*>(data);
  }
  EGT_TRY_ASSIGN(void* const gradient, maker.take(gradient_bytes));
  const VectorView gradients{gradient, type, count};
  EGT_TRY(device.randomize(gradients, {.seed = world.environment.seed, .scale = 0.1f}, maker.stream()));
  const ParameterRange range{.weights = state[0], .gradient = gradients, .compute_copy = {}, .count = count};
  const std::size_t moved = (is_adam ? 6 : 4) * bytes + gradient_bytes;
  EGT_TRY(maker.beside_copy(moved / 8 * 8));
  maker.trial.ours.units = static_cast<double>(moved);
  constexpr float rate = 1e-6f;
  if (is_adam)
    maker.trial.ours.enqueue = [&device, range, first = state[1], second = state[2]](Stream& stream) {
      return device.adam_step(range, first, second, {rate, 0.9f, 0.999f, 1e-8f, 0.1f, 0.001f, 1.0f}, stream);
    };
  else
    maker.trial.ours.enqueue = [&device, range, velocity = state[1]](Stream& stream) {
      return device.sgd_step(range, velocity, {rate, 0.9f, 1.0f}, stream);
    };
  return maker.done();
}

/// Our side is the load's activation. The limit runs chains ten times as long on a tenth of the elements,
/// where reads, writes and launches are negligible. It shows what the chain's instructions allow.
Result<std::unique_ptr<CeilingJob>> make_extreme_ceiling(const CeilingWorld& world) {
  constexpr std::int64_t columns = 1024;
  Device& device = world.environment.device;
  const std::int64_t rows = world.is_gpu() ? 8190 : 80;
  const int turns = world.train.extreme_iterations;
  Maker maker(world);
  EGT_TRY(maker.open());
  const std::size_t bytes = static_cast<std::size_t>(rows * columns) * sizeof(float);
  EGT_TRY_ASSIGN(const WordsView words, maker.take_filled(bytes, {.kind = PatternKind::finite, .seed = 1}));
  EGT_TRY_ASSIGN(void* const bias, maker.take(columns * sizeof(float)));
  EGT_TRY(device.set_zero(bias, columns * sizeof(float), maker.stream()));
  const auto side = [&](std::int64_t of_rows, int iterations) {
    const MatrixView h{words.data, ElementType::f32, of_rows, columns};
    return StreamSide{
        static_cast<double>(of_rows * columns) * iterations, [&device, h, bias, iterations](Stream& stream) {
          return device.activate(h, static_cast<const float*>(bias), {.iterations = iterations}, stream);
        }};
  };
  maker.trial.ours = side(rows, turns);
  maker.trial.limit = side(rows / longer_chains, turns * longer_chains);
  return maker.done();
}

/// Copies to the host and back to other device memory, where every word is verified. Consecutive round trips
/// have different data.
Result<std::unique_ptr<CeilingJob>> make_host_copies_ceiling(const CeilingWorld& world) {
  constexpr std::size_t of_gpu = 256u << 20, of_host = 32u << 20;
  const std::size_t bytes = world.is_gpu() ? of_gpu : of_host;
  Device& device = world.environment.device;
  Maker maker(world);
  EGT_TRY(maker.open());
  EGT_TRY(maker.watch("link", place_of_host_copy(world.environment.place.rank, bytes)));
  EGT_TRY_ASSIGN(const WordsView one, maker.take_filled(bytes, first));
  EGT_TRY_ASSIGN(const WordsView other, maker.take_filled(bytes, second));
  EGT_TRY_ASSIGN(void* const back, maker.take(bytes));
  EGT_TRY_ASSIGN(void* const host, maker.take_pinned(bytes));
  const auto trip = [&device, one, other, back, host, bytes](bool is_other, Stream& stream) -> Status {
    EGT_TRY(device.copy(host, (is_other ? other : one).data, bytes, stream));
    return device.copy(back, host, bytes, stream);
  };
  const WordsView arrived{static_cast<std::uint32_t*>(back), one.count};
  const auto both_ways = static_cast<double>(2 * bytes);
  maker.trial.limit = {both_ways, [trip](Stream& stream) { return trip(false, stream); }};
  maker.trial.ours = {both_ways,
                      [&device, trip, arrived, found = maker.trial.found,
                       is_other = false](Stream& stream) mutable -> Status {
                        is_other = !is_other;
                        EGT_TRY(trip(is_other, stream));
                        return device.verify(arrived, is_other ? second : first, found, stream);
                      }};
  maker.trial.work.bytes_exchanged_verified = 2 * bytes;
  return maker.done();
}

}  // namespace egt
