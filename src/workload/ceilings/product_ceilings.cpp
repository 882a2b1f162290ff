#include <algorithm>
#include <utility>

#include "model/mlp_config.hpp"
#include "model/parameter_layout.hpp"
#include "workload/ceilings/ceiling_job.hpp"
#include "workload/ceilings/step_products.hpp"

namespace egt {
namespace {

/// Rows of a GEMM large enough for the device's full rate.
std::int64_t large_rows(const CeilingWorld& world) {
  return world.is_gpu() ? 8192 : 512;
}

/// Second GEMM of two square layers. Its operand follows a ReLU, as in most GEMMs of the step.
constexpr std::size_t behind_relu = 1;

/// Compares training with the GEMMs of its step alone, in another stream. With all-reduce, the limit is the
/// slower of these GEMMs and one all-reduce of all gradients.
class StepCeiling final : public CeilingJob {
 public:
  StepCeiling(double flops, std::unique_ptr<BenchJob> training, StepGemms products, StreamTimer timer)
      : flops_(flops),
        training_(std::move(training)),
        products_(std::move(products)),
        timer_(std::move(timer)) {}

  Status add_sum(const CeilingWorld& world);

  Result<CeilingBurst> ours(std::int64_t count) override {
    EGT_TRY_ASSIGN(const BurstTimes times, training_->burst(1, count));
    return burst(count, times.chunk_ms.front());
  }
  Result<CeilingBurst> limit(std::int64_t count) override {
    EGT_TRY_ASSIGN(double ms,
                   timer_.time(count, [&](Stream& stream) { return products_.enqueue_all(stream); }));
    if (sum_) {
      EGT_TRY_ASSIGN(const double sum_ms, sum_timer_->time(count, sum_));
      ms = std::max(ms, sum_ms);
    }
    return burst(count, ms);
  }
  Result<JobReport> check() override { return training_->check(); }
  Status give_up(double seconds) override {
    EGT_TRY(training_->give_up(seconds));
    if (sum_timer_) EGT_TRY(sum_timer_->give_up(seconds));
    return timer_.give_up(seconds);
  }

 private:
  Result<CeilingBurst> burst(std::int64_t count, double ms) const {
    return CeilingBurst{ms, {flops_ * static_cast<double>(count) / ms * 1e3}};
  }

  const double flops_;  ///< per step
  std::unique_ptr<BenchJob> training_;
  StepGemms products_;
  Buffer gradients_;
  std::function<Status(Stream& stream)> sum_;
  std::optional<StreamTimer> sum_timer_;
  StreamTimer timer_;  ///< declared last: its stream ends before the GEMMs' memory is freed
};

Status StepCeiling::add_sum(const CeilingWorld& world) {
  Device& device = world.environment.device;
  Communicator& communicator = world.environment.communicator;
  const ElementType type = world.train.gradient_type;
  const auto count = static_cast<std::size_t>(ParameterLayout(world.train.layers).size());
  EGT_TRY_ASSIGN(gradients_, device.allocate(count * size_of(type)));
  EGT_TRY_ASSIGN(sum_timer_, StreamTimer::make(world.environment, true));
  EGT_TRY(device.set_zero(gradients_.data(), gradients_.bytes(), sum_timer_->stream()));
  sum_ = [&communicator, data = gradients_.data(), count, type](Stream& stream) {
    return communicator.all_reduce(data, count, type, stream);
  };
  return {};
}

}  // namespace

Result<std::unique_ptr<CeilingJob>> make_product_ceiling(const CeilingWorld& world,
                                                         const CeilingTrial& trial) {
  struct Sides {
    StepGemms own, large;
  };
  Device& device = world.environment.device;
  EGT_TRY_ASSIGN(StepGemms own,
                 StepGemms::make(device, world.train.layers, world.train.batch, trial.precision));
  const std::int64_t rows = large_rows(world);
  EGT_TRY_ASSIGN(StepGemms large, StepGemms::make(device, {rows, rows, rows}, rows, trial.precision));
  const auto sides = std::make_shared<Sides>(Sides{std::move(own), std::move(large)});
  StreamTrial both;
  both.ours = {sides->own.products()[trial.product].flops(),
               [sides, index = trial.product](Stream& stream) { return sides->own.enqueue(index, stream); }};
  both.limit = {sides->large.products()[behind_relu].flops(),
                [sides](Stream& stream) { return sides->large.enqueue(behind_relu, stream); }};
  return make_stream_ceiling(world.environment, std::move(both));
}

/// GEMM like the memory test's: operands are memory patterns, with twice the inner dimension for 8-bit types.
Result<std::unique_ptr<CeilingJob>> make_checked_product_ceiling(const CeilingWorld& world,
                                                                 const CeilingTrial& trial) {
  Device& device = world.environment.device;
  const ElementType type = storage_type(trial.precision), sums = sum_type(trial.precision);
  const std::int64_t rows = large_rows(world), inner = is_narrow(trial.precision) ? 2 * rows : rows;
  const auto elements = static_cast<std::uint64_t>(rows * inner);
  EGT_TRY_ASSIGN(Buffer operands, device.allocate(2 * elements * size_of(type)));
  EGT_TRY_ASSIGN(Buffer product, device.allocate(static_cast<std::uint64_t>(rows * rows) * size_of(sums)));
  EGT_TRY_ASSIGN(Buffer digest, device.allocate(sizeof(Digest)));
  char* const a = operands.as<char>();
  const Gemm gemm{.precision = trial.precision,
                  .a = {a, type, rows, inner},
                  .b = {a + elements * size_of(type), type, rows, inner},
                  .d = {product.data(), sums, rows, rows},
                  .b_transposed = true};
  const WordsView words = product.words();
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(elements);
  StreamTrial both;
  both.limit = {flops, [&device, gemm](Stream& stream) { return device.gemm(gemm, stream); }};
  both.ours = {flops, [&device, gemm, words, into = digest.as<Digest>()](Stream& stream) -> Status {
                 EGT_TRY(device.gemm(gemm, stream));
                 return device.digest(words, into, stream);
               }};
  EGT_TRY_ASSIGN(const auto stream, device.create_stream(StreamPriority::normal));
  EGT_TRY(
      device.fill(operands.words(), {.kind = PatternKind::finite, .seed = world.environment.seed}, *stream));
  EGT_TRY(device.synchronize(*stream, ready_seconds));
  for (Buffer* buffer : {&operands, &product, &digest}) both.memory.push_back(std::move(*buffer));
  return make_stream_ceiling(world.environment, std::move(both));
}

Result<std::unique_ptr<CeilingJob>> make_step_ceiling(const CeilingWorld& world, const CeilingTrial& trial) {
  const bool joint = trial.kind == CeilingKind::joint_step;
  Environment& environment = world.environment;
  const RankPlace& place = environment.place;
  MlpJobConfig config{.train = world.train, .precision = trial.precision, .batch = {}};
  config.train.extreme_iterations = 0;
  config.batch = {.global = world.train.batch, .first = 0, .local = world.train.batch};
  if (joint) {
    config.batch.global *= place.size;
    config.batch.first = place.rank * world.train.batch;
  }
  EGT_TRY_ASSIGN(auto training, make_mlp_job(environment, joint ? environment.communicator : *world.alone,
                                             config, {}, world.reporter));
  EGT_TRY(training->answers().status());
  EGT_TRY_ASSIGN(StepGemms products,
                 StepGemms::make(environment.device, world.train.layers, world.train.batch, trial.precision));
  EGT_TRY_ASSIGN(StreamTimer timer, StreamTimer::make(environment, false));
  double flops = 0;
  for (const StepGemm& product : products.products()) flops += product.flops();
  auto made =
      std::make_unique<StepCeiling>(flops, std::move(training), std::move(products), std::move(timer));
  if (joint) EGT_TRY(made->add_sum(world));
  return std::unique_ptr<CeilingJob>(std::move(made));
}

}  // namespace egt
