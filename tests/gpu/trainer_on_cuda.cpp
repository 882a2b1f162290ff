// The trainer on a GPU compared with the same trainer on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "device/cuda/cuda_device.hpp"
#include "device/host/host_device.hpp"
#include "model/mlp_trainer.hpp"
#include "tests/support/single_rank_communicator.hpp"
#include "tests/support/state_digests.hpp"

namespace egt {
namespace {

constexpr double timeout_s = 60;

/// A device with the resources of a trainer.
struct Platform {
  explicit Platform(std::unique_ptr<Device> opened) : device(std::move(opened)), communicator(*device) {}

  std::unique_ptr<Device> device;
  SingleRankCommunicator communicator;
};

/// Outcome of some steps: their losses, the stored gradient of the last step, digests of the weights.
struct Trained {
  std::vector<double> losses;
  std::vector<float> gradient;
  std::vector<Digest> weights;
};

/// Max difference between GPU and host in one precision. `gradient` is relative to the norm, in the first
/// step. For fp64, fp32 and bf16 it is below the error of the next coarser or finer precision (host, from
/// fp64: fp32 1e-7, tf32 3e-4, bf16 6e-3). The rest is the summation order and, for tf32, truncation where
/// the host rounds. `loss` applies to every loss, so it includes differences accumulated over the steps.
struct Tolerance {
  double gradient;
  double loss;
};

Tolerance tolerance_of(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return {5e-8, 1e-6};
    case Precision::fp32:
      return {1e-5, 1e-5};
    case Precision::tf32:
      return {2e-3, 1e-3};
    case Precision::fp16:
      return {1e-3, 1e-3};
    case Precision::fp8:  // tensor cores truncate its sums at 13 bits
      return {3e-2, 2e-2};
    default:
      return {4e-3, 5e-3};
  }
}

struct Way {
  Precision precision;
  Optimizer optimizer;
  int extreme_iterations;
};

std::string name_of(const testing::TestParamInfo<Way>& info) {
  return std::string(to_string(info.param.precision)) +
         (info.param.optimizer == Optimizer::adam ? "_adam_" : "_sgd_") +
         std::to_string(info.param.extreme_iterations) + "_turns";
}

/// Odd sizes: only the first row of a matrix is aligned for vector loads.
MlpConfig odd_network(const Way& way) {
  MlpConfig config;
  config.neurons = {33, 65, 17};
  config.batch = {.global = 7, .first = 0, .local = 7};
  if (way.precision == Precision::fp8) {  // supports multiples of 16 only
    config.neurons = {32, 64, 16};
    config.batch = {.global = 16, .first = 0, .local = 16};
  }
  config.precisions = {way.precision};
  config.optimizer = way.optimizer;
  config.learning_rate = default_learning_rate(config.neurons, config.optimizer, config.batch.global);
  config.extreme_iterations = way.extreme_iterations;
  config.seed = 7;
  return config;
}

class TrainerOnCuda : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    auto gpu = open_cuda_device(0);
    ASSERT_TRUE(gpu.ok()) << gpu.status().what();
    auto host = open_host_device({});
    ASSERT_TRUE(host.ok()) << host.status().what();
    cuda_.emplace(std::move(gpu.value()));
    host_.emplace(std::move(host.value()));
    const Support support = cuda_->device->supports(GetParam().precision);
    if (!support.yes()) GTEST_SKIP() << support.why_not;
  }

  /// `overlap`: max number of steps in flight; with 1, each step is retired before the next is enqueued.
  Trained train(Platform& on, const MlpConfig& config, std::int64_t steps, std::int64_t overlap) {
    Trained trained;
    auto made = MlpTrainer::create(*on.device, on.communicator, config);
    EXPECT_TRUE(made.ok()) << made.status().what();
    if (!made.ok()) return trained;
    MlpTrainer& trainer = *made.value();
    const auto retire = [&](std::int64_t step) {
      const auto result = trainer.retire_step(step, timeout_s);
      EXPECT_TRUE(result.ok()) << result.status().what();
      trained.losses.push_back(result.ok() ? result.value().loss : NAN);
    };
    for (std::int64_t step = 0; step < steps; ++step) {
      const Status enqueued = trainer.enqueue_step(step, {}, false);
      EXPECT_TRUE(enqueued.ok()) << enqueued.what();
      if (step + 1 >= overlap) retire(step + 1 - overlap);
    }
    for (std::int64_t step = std::max<std::int64_t>(0, steps + 1 - overlap); step < steps; ++step)
      retire(step);
    trained.gradient = read(*on.device, trainer.gradient());
    trained.weights = test::state_digests(*on.device, on.communicator, trainer).at(0);
    return trained;
  }

  static std::vector<float> read(Device& device, VectorView view) {
    auto stream = device.create_stream(StreamPriority::normal);
    auto pinned = device.allocate_pinned(view.bytes());
    EXPECT_TRUE(stream.ok() && pinned.ok());
    if (!stream.ok() || !pinned.ok()) return {};
    EXPECT_TRUE(device.copy(pinned.value().data(), view.data, view.bytes(), *stream.value()).ok());
    EXPECT_TRUE(device.synchronize(*stream.value(), timeout_s).ok());
    const float* values = pinned.value().as<float>();
    return {values, values + view.count};
  }

  std::optional<Platform> cuda_, host_;
};

/// |a - b| / |b|; NaN if either is not finite or b is 0.
double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

TEST_P(TrainerOnCuda, TheFirstGradientIsTheHosts) {
  const MlpConfig config = odd_network(GetParam());
  const Trained gpu = train(*cuda_, config, 1, 1), host = train(*host_, config, 1, 1);
  ASSERT_EQ(gpu.gradient.size(), host.gradient.size());
  ASSERT_FALSE(host.gradient.empty());
  EXPECT_LT(relative_distance(gpu.gradient, host.gradient), tolerance_of(GetParam().precision).gradient);
}

TEST_P(TrainerOnCuda, TheLossesAreTheHosts) {
  constexpr std::int64_t steps = 6;
  const MlpConfig config = odd_network(GetParam());
  const Trained gpu = train(*cuda_, config, steps, 1), host = train(*host_, config, steps, 1);
  ASSERT_EQ(gpu.losses.size(), static_cast<std::size_t>(steps));
  ASSERT_EQ(host.losses.size(), static_cast<std::size_t>(steps));
  for (std::size_t step = 0; step < gpu.losses.size(); ++step)
    EXPECT_NEAR(gpu.losses[step] / host.losses[step], 1.0, tolerance_of(GetParam().precision).loss)
        << "step " << step << ", host " << host.losses[step];
}

TEST_P(TrainerOnCuda, TheSameStepsGiveTheSameBitsAlsoWhileStepsOverlap) {
  constexpr std::int64_t steps = 20;
  MlpConfig config = odd_network(GetParam());
  const Trained one = train(*cuda_, config, steps, 1), again = train(*cuda_, config, steps, 1),
                overlapped = train(*cuda_, config, steps, MlpTrainer::depth + 1);
  ASSERT_GE(one.weights.size(), 4u) << "weights and moments of two layers";
  for (const Trained& other : {again, overlapped}) {
    EXPECT_EQ(other.weights, one.weights);
    EXPECT_EQ(other.losses, one.losses);
  }
  config.seed = 8;
  EXPECT_NE(train(*cuda_, config, steps, 1).weights, one.weights);
}

TEST_P(TrainerOnCuda, TheLossFalls) {
  constexpr std::size_t steps = 60, some = 10;
  const Trained trained = train(*cuda_, odd_network(GetParam()), steps, MlpTrainer::depth + 1);
  ASSERT_EQ(trained.losses.size(), steps);
  double first = 0, last = 0;  // losses of 7 samples are noisy
  for (std::size_t i = 0; i < some; ++i) {
    first += trained.losses[i] / some;
    last += trained.losses[steps - 1 - i] / some;
  }
  EXPECT_LT(last, 0.9 * first);
}

std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const Precision precision :
       {Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16, Precision::fp8})
    for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::adam})
      for (const int extreme_iterations : {0, 3}) ways.push_back({precision, optimizer, extreme_iterations});
  return ways;
}

INSTANTIATE_TEST_SUITE_P(Ways, TrainerOnCuda, testing::ValuesIn(all_ways()), name_of);

}  // namespace
}  // namespace egt
