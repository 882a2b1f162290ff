#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "model/mlp_trainer.hpp"
#include "model/parallel/split_mlp.hpp"
#include "tests/mpi/ranks_on_host.hpp"
#include "tests/support/single_rank_communicator.hpp"

/// Split networks compared with the same network on one device.
namespace egt::test {
namespace {

constexpr int networks = 60;

/// Every plan for this number of ranks.
std::vector<ParallelPlan> plans_of(int ranks) {
  std::vector<ParallelPlan> plans;
  for (int data = 1; data <= ranks; ++data)
    for (int tensor = 1; data * tensor <= ranks; ++tensor)
      if (ranks % (data * tensor) == 0)
        plans.push_back({.data = data, .tensor = tensor, .pipeline = ranks / data / tensor});
  return plans;
}

class SplitNetworks : public RanksOnHost {
 protected:
  /// The communicators of a plan and this rank's part of the network.
  struct Part {
    std::unique_ptr<Communicator> data, tensor, pipeline;
    std::unique_ptr<SplitMlp> mlp;
  };

  Part make(const SplitConfig& config) {
    const ParallelPlan& plan = config.plan;
    const ParallelPlace place = place_of(plan, rank());
    Part part;
    part.data = std::move(real->split(rank_of(plan, {0, place.tensor, place.stage})).value());
    part.tensor = std::move(real->split(rank_of(plan, {place.data, 0, place.stage})).value());
    part.pipeline = std::move(real->split(rank_of(plan, {place.data, place.tensor, 0})).value());
    auto made = SplitMlp::create(*device, {*part.data, *part.tensor, *part.pipeline}, config);
    EXPECT_TRUE(made.ok()) << made.status().what();
    if (made.ok()) part.mlp = std::move(made.value());
    return part;
  }

  /// Depends only on `seed`, so it is the same on all ranks.
  SplitConfig random_config(int seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto between = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    const auto plans = plans_of(size());
    SplitConfig config;
    config.rank = rank();
    config.plan = plans[static_cast<std::size_t>(between(0, static_cast<int>(plans.size()) - 1))];
    const int min_layers = config.plan.pipeline * (config.plan.tensor > 1 ? 2 : 1);
    const int layers = std::max(min_layers, between(1, 7));
    for (int l = 0; l <= layers; ++l) config.network.neurons.push_back(between(5, 37));
    config.micro_batches = config.plan.pipeline > 1 ? between(1, 7) : between(1, 2);
    config.network.batch.global = between(config.plan.data * config.micro_batches, 60);
    const Precision precisions[] = {Precision::fp32, Precision::fp32, Precision::tf32, Precision::bf16};
    config.network.precisions = {precisions[seed % 4]};
    config.network.optimizer = seed % 3 == 0 ? Optimizer::adam : Optimizer::sgd;
    config.network.learning_rate =
        default_learning_rate(config.network.neurons, config.network.optimizer, config.network.batch.global);
    config.network.extreme_iterations = config.plan.tensor == 1 && seed % 5 == 0 ? 3 : 0;
    config.network.seed = static_cast<std::uint64_t>(seed);
    std::vector<double> ms;
    for (int l = 0; l < layers; ++l) ms.push_back(between(1, 9));
    config.stages = cut_stages(config.plan, ms, std::vector<std::uint64_t>(ms.size(), 1), {}).value();
    return config;
  }

  std::vector<float> read(VectorView view, Stream& stream) {
    Buffer pinned = std::move(device->allocate_pinned(view.bytes()).value());
    EXPECT_TRUE(device->copy(pinned.data(), view.data, view.bytes(), stream).ok());
    EXPECT_TRUE(device->synchronize(stream, timeout_s).ok());
    return {pinned.as<float>(), pinned.as<float>() + view.count};
  }

  std::vector<Digest> digests_of_pass(SplitMlp& mlp) {
    const std::size_t bytes = mlp.max_tensors() * sizeof(Digest);
    Buffer memory = std::move(device->allocate(bytes).value());
    Buffer pinned = std::move(device->allocate_pinned(bytes).value());
    EXPECT_TRUE(mlp.reset().ok());
    EXPECT_TRUE(mlp.enqueue_pass(99, 0, memory.as<Digest>()).ok());
    EXPECT_TRUE(device->copy(pinned.data(), memory.data(), bytes, mlp.stream()).ok());
    EXPECT_TRUE(device->synchronize(mlp.stream(), timeout_s).ok());
    EXPECT_LE(mlp.tensors().size(), mlp.max_tensors());
    return {pinned.as<Digest>(), pinned.as<Digest>() + mlp.tensors().size()};
  }
};

TEST_F(SplitNetworks, GiveTheGradientsOfOneDeviceWithinRounding) {
  double most = 0;
  for (int seed = 0; seed < networks; ++seed) {
    const SplitConfig config = random_config(seed);
    SCOPED_TRACE(fmt::format("network {}: {} of {} layers", seed, to_string(config.plan),
                             config.network.neurons.size() - 1));
    const Part part = make(config);
    ASSERT_TRUE(part.mlp);
    SplitMlp& mlp = *part.mlp;
    const auto first = digests_of_pass(mlp);
    EXPECT_EQ(first, digests_of_pass(mlp)) << "bit for bit";
    const std::int64_t rows = config.network.batch.global / (config.plan.data * config.micro_batches);
    ASSERT_OK(mlp.reset());
    ASSERT_OK(mlp.enqueue_pass(7, rows, nullptr));
    MlpConfig whole = config.network;
    whole.batch.local = rows * config.plan.data * config.micro_batches;
    SingleRankCommunicator alone(*device);
    auto trainer = MlpTrainer::create(*device, alone, whole);
    ASSERT_OK(trainer.status());
    ASSERT_OK(trainer.value()->enqueue_step(7, {}, false));
    const auto difference = difference_from_whole(*device, mlp, *trainer.value(), timeout_s);
    ASSERT_OK(difference.status());
    EXPECT_LE(difference.value(),
              allowed_difference(config.network.precisions.front(), mlp.part().all_layers()))
        << to_string(config.network.precisions.front());
    if (config.network.precisions.front() == Precision::fp32) most = std::max(most, difference.value());
    EXPECT_EQ(mlp.state_bytes(),
              egt::state_bytes(mlp.part().local_neurons(), config.network.precisions.front(),
                               config.network.optimizer, ElementType::f32));
  }
  if (size() > 1) {
    EXPECT_GT(most, 0) << "other sums would not be other orders";
  }
  if (rank() == 0) RecordProperty("most_in_fp32", fmt::format("{:.3g}", most));
}

TEST_F(SplitNetworks, TrainAsOneDeviceDoes) {
  constexpr std::int64_t steps = 6;
  for (int seed = 0; seed < 15; ++seed) {
    SplitConfig config = random_config(seed);
    config.network.precisions = {Precision::fp32};
    SCOPED_TRACE(fmt::format("network {}: {}", seed, to_string(config.plan)));
    const Part part = make(config);
    ASSERT_TRUE(part.mlp);
    SingleRankCommunicator alone(*device);
    MlpConfig whole = config.network;
    whole.batch.local = whole.batch.global;
    auto trainer = MlpTrainer::create(*device, alone, whole);
    ASSERT_OK(trainer.status());
    double split_loss = 0;
    for (std::int64_t step = 0; step < steps + SplitMlp::depth; ++step) {
      if (step < steps) {
        ASSERT_OK(part.mlp->enqueue_step(step));
      }
      if (step < SplitMlp::depth) continue;
      const std::int64_t over = step - SplitMlp::depth;
      const auto result = part.mlp->retire_step(over, timeout_s);
      ASSERT_OK(result.status());
      EXPECT_EQ(result.value().loss.has_value(), part.mlp->part().has_loss());
      EXPECT_GE(result.value().step_ms, result.value().outside_ms);
      ASSERT_OK(trainer.value()->enqueue_step(over, {}, false));
      const auto expected = trainer.value()->retire_step(over, timeout_s);
      ASSERT_OK(expected.status());
      split_loss = result.value().loss.value_or(0);
      if (config.plan.data == 1 && result.value().loss) {
        EXPECT_NEAR(split_loss / expected.value().loss, 1, 1e-3) << "step " << over;
      }
    }
    ASSERT_OK(trainer.value()->settle());
    const auto expected = read(trainer.value()->weights(), trainer.value()->compute_stream());
    const NetworkPart& own = part.mlp->part();
    for (std::size_t l = 0; l < part.mlp->layout().layers().size(); ++l) {
      const LinearLayer& layer = part.mlp->layout().layers()[l];
      const LinearLayer& all =
          trainer.value()->layout().layers()[l + static_cast<std::size_t>(own.layers.first)];
      const WordsView words = part.mlp->state({StateKind::weights, static_cast<int>(l)});
      const auto weights =
          read({words.data, ElementType::f32, static_cast<std::int64_t>(words.count)}, part.mlp->stream());
      double off = 0, norm = 0;
      for (std::int64_t row = 0; row < layer.outputs; ++row)
        for (std::int64_t column = 0; column < layer.inputs; ++column) {
          const std::int64_t at =
              all.weights + (own.outputs(l).first + row) * all.inputs + own.inputs(l).first + column;
          const double one = expected[static_cast<std::size_t>(at)];
          off += std::pow(weights[static_cast<std::size_t>(row * layer.inputs + column)] - one, 2);
          norm += one * one;
        }
      EXPECT_LE(std::sqrt(off / norm), config.network.optimizer == Optimizer::adam ? 2e-2 : 1e-3)
          << "layer " << l;
    }
  }
}

/// Used by the first stage, and by the last one for its targets.
TEST_F(SplitNetworks, TrainOnTheInputThatIsMadeForThem) {
  constexpr std::int64_t steps = 4;
  SplitConfig config = random_config(1);
  config.network.neurons = {20, 17, 31, 12, 24, 9, 16};
  config.network.precisions = {Precision::fp32};
  config.network.batch.global = 30;
  config.network.extreme_iterations = 0;
  config.network.learning_rate = default_learning_rate(config.network.neurons, Optimizer::sgd, 30);
  config.plan = {.pipeline = size()};
  config.stages =
      cut_stages(config.plan, std::vector<double>(6, 1), std::vector<std::uint64_t>(6, 1), {}).value();
  config.micro_batches = 3;
  SplitConfig drawn = config;
  std::int64_t calls = 0;
  config.make_input = [&](std::uint64_t sequence, std::int64_t first, MatrixView input, Stream& stream) {
    ++calls;
    return device->randomize(
        {input.data, input.type, input.count()},
        {.seed = 77, .sequence = sequence, .first = static_cast<std::uint64_t>(first * input.columns)},
        stream);
  };
  SplitConfig whole = config;
  whole.plan = {};
  whole.rank = 0;
  whole.stages = {{0, 6}};
  whole.micro_batches = 1;
  SingleRankCommunicator alone(*device);
  const auto one = SplitMlp::create(*device, {alone, alone, alone}, whole);
  ASSERT_OK(one.status());
  const auto losses = [&](SplitMlp& mlp) {
    std::vector<double> all;
    for (std::int64_t step = 0; step < steps; ++step) {
      EXPECT_TRUE(mlp.enqueue_step(step).ok());
      all.push_back(mlp.retire_step(step, timeout_s).value().loss.value_or(0));
    }
    return all;
  };
  const std::vector<double> expected = losses(*one.value());
  calls = 0;
  const Part part = make(config), other = make(drawn);
  ASSERT_TRUE(part.mlp && other.mlp);
  const std::vector<double> own = losses(*part.mlp), of_drawn = losses(*other.mlp);
  const NetworkPart& place = part.mlp->part();
  EXPECT_EQ(calls, place.has_input() || place.has_loss() ? steps * config.micro_batches : 0);
  if (place.has_loss()) {
    for (std::size_t step = 0; step < own.size(); ++step) {
      EXPECT_NEAR(own[step] / expected[step], 1, 1e-3) << "step " << step;
      EXPECT_GT(std::abs(of_drawn[step] / expected[step] - 1), 1e-3) << "step " << step;
    }
  }
  const auto first = digests_of_pass(*part.mlp);
  EXPECT_EQ(first, digests_of_pass(*part.mlp)) << "bit for bit";
  const auto is_input = [](const SplitTensor& one) { return one.tensor.layer < 0 && !one.is_of_peers; };
  EXPECT_EQ(std::ranges::count_if(part.mlp->tensors(), is_input),
            place.has_input() ? config.micro_batches : 0);
}

}  // namespace
}  // namespace egt::test
