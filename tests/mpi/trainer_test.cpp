#include <cmath>
#include <cstring>

#include "egt/ranks/agreement.hpp"
#include "model/mlp_trainer.hpp"
#include "ranks/mpi/mpi_control.hpp"
#include "ranks_on_host.hpp"
#include "tests/support/single_rank_communicator.hpp"
#include "tests/support/state_digests.hpp"

namespace egt::test {
namespace {

constexpr std::int64_t batch_each = 12;
constexpr std::int64_t steps = 20;

struct Trained {
  std::vector<double> losses;
  std::vector<float> weights;
};

class DataParallel : public RanksOnHost,
                     public ::testing::WithParamInterface<std::pair<ElementType, Optimizer>> {
 protected:
  MlpConfig config(BatchShare batch) const {
    MlpConfig c;
    c.neurons = {24, 40, 33, 7};
    c.batch = batch;
    c.precisions = {Precision::fp32};
    c.optimizer = GetParam().second;
    c.gradient_type = GetParam().first;
    c.learning_rate = default_learning_rate(c.neurons, c.optimizer, c.batch.global);
    c.seed = 11;
    return c;
  }

  Trained train(Communicator& ranks, const MlpConfig& c) {
    Trained trained;
    auto made = MlpTrainer::create(*device, ranks, c);
    EXPECT_TRUE(made.ok()) << made.status().what();
    if (!made.ok()) return trained;
    MlpTrainer& trainer = *made.value();
    std::vector<double> own_ms;
    for (std::int64_t s = 0; s < steps + MlpTrainer::depth; ++s) {
      const bool more = s < steps;
      EXPECT_TRUE(!more || trainer.enqueue_step(s, {}, false).ok());
      if (s < MlpTrainer::depth) continue;
      auto result = trainer.retire_step(s - MlpTrainer::depth, timeout_s);
      EXPECT_TRUE(result.ok()) << result.status().what();
      if (!result.ok()) return trained;
      trained.losses.push_back(result.value().loss);
      own_ms.push_back(*result.value().compute_ms);
      expect_times_of_all(ranks, result.value().all_compute_ms, own_ms);
    }
    EXPECT_TRUE(trainer.settle().ok());
    EXPECT_TRUE(device->synchronize(trainer.compute_stream(), timeout_s).ok());
    trained.weights = read(trainer.weights());
    if (ranks.size() > 1) expect_equal_replicas(trainer);
    return trained;
  }

  /// With the step that it enqueues next, each rank sends the time of its newest pass.
  static void expect_times_of_all(const Communicator& ranks, const std::vector<double>& reported,
                                  const std::vector<double>& own_ms) {
    ASSERT_EQ(reported.size(), static_cast<std::size_t>(ranks.size()));
    constexpr std::size_t lag = MlpTrainer::depth + 1;
    if (own_ms.size() <= lag) return;
    for (const double ms : reported) EXPECT_GT(ms, 0);
    EXPECT_EQ(reported[static_cast<std::size_t>(ranks.rank())],
              static_cast<float>(own_ms[own_ms.size() - 1 - lag]));
  }

  std::vector<float> read(VectorView view) {
    auto stream = std::move(device->create_stream(StreamPriority::normal).value());
    Buffer pinned = std::move(device->allocate_pinned(view.bytes()).value());
    EXPECT_TRUE(device->copy(pinned.data(), view.data, view.bytes(), *stream).ok());
    EXPECT_TRUE(device->synchronize(*stream, timeout_s).ok());
    return {pinned.as<float>(), pinned.as<float>() + view.count};
  }

  void expect_equal_replicas(MlpTrainer& trainer) {
    const auto ranks = test::state_digests(*device, *real, trainer);
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(mpi_session().place().size));
    for (const auto& rank : ranks) EXPECT_EQ(rank, ranks.front());
  }
};

TEST_P(DataParallel, ManyRanksWithAShareEachLearnWhatOneRankWithTheWholeBatchLearns) {
  const RankPlace& place = mpi_session().place();
  const std::int64_t global = batch_each * place.size + 1;  // uneven: the last rank has one sample more
  const bool last = place.rank + 1 == place.size;
  const Trained shared = train(
      *real,
      config({.global = global, .first = batch_each * place.rank, .local = batch_each + (last ? 1 : 0)}));
  SingleRankCommunicator alone(*device);  // one rank, whatever the world size
  const Trained whole = train(alone, config({.global = global, .first = 0, .local = global}));
  ASSERT_EQ(shared.losses.size(), whole.losses.size());
  const double tolerance = GetParam().first == ElementType::bf16 ? 2e-2 : 2e-5;
  for (std::size_t s = 0; s < whole.losses.size(); ++s)
    EXPECT_NEAR(shared.losses[s] / whole.losses[s], 1.0, tolerance) << "step " << s;
  EXPECT_LT(whole.losses.back(), whole.losses.front());
}

INSTANTIATE_TEST_SUITE_P(Ways, DataParallel,
                         ::testing::Values(std::pair{ElementType::f32, Optimizer::sgd},
                                           std::pair{ElementType::f32, Optimizer::adam},
                                           std::pair{ElementType::bf16, Optimizer::sgd}));

TEST(Agreement, EveryRankLeavesWithTheFailureOfTheLowest) {
  auto control = open_mpi_control(mpi_session(), timeout_s);
  ASSERT_TRUE(control.ok());
  const RankPlace& place = control.value()->place();
  EXPECT_TRUE(agree(*control.value(), {}).ok());
  const bool last = place.rank + 1 == place.size;
  const Status agreed =
      agree(*control.value(), last ? Status(StatusCode::out_of_memory, "too much") : Status());
  EXPECT_EQ(agreed.code(), StatusCode::out_of_memory);
  EXPECT_EQ(agreed.what(),
            place.size == 1 ? "too much" : "rank " + std::to_string(place.size - 1) + ": too much");
}

TEST(Agreement, ADifferentTextFailsOnAllRanks) {
  auto control = open_mpi_control(mpi_session(), timeout_s);
  ASSERT_TRUE(control.ok());
  const RankPlace& place = control.value()->place();
  EXPECT_TRUE(agree_on_text(*control.value(), "same", "the options").ok());
  const Status agreed = agree_on_text(*control.value(), std::to_string(place.rank), "the options");
  EXPECT_EQ(agreed.ok(), place.size == 1);
  EXPECT_EQ(agreed.code(), place.size == 1 ? StatusCode::ok : StatusCode::invalid_argument);
}

}  // namespace
}  // namespace egt::test
