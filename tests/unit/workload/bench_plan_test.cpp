#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "workload/bench/scaling_digests.hpp"
#include "workload/bench/scaling_plan.hpp"

namespace egt {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> described(const std::vector<BenchTrial>& plan) {
  std::vector<std::string> texts;
  for (const BenchTrial& trial : plan) texts.push_back(describe(trial));
  return texts;
}

TEST(BenchPlan, DevicesAreDoubledUpToAll) {
  EXPECT_THAT(device_counts(1), IsEmpty());
  EXPECT_THAT(device_counts(2), ElementsAre(2));
  EXPECT_THAT(device_counts(3), ElementsAre(2, 3));
  EXPECT_THAT(device_counts(4), ElementsAre(2, 4));
  EXPECT_THAT(device_counts(8), ElementsAre(2, 4, 8));
}

TEST(BenchPlan, EverySizeAloneFirstThenTogether) {
  BenchOptions options;
  options.workloads = {BenchWorkload::voxelize};
  options.points = {10, 20};
  EXPECT_THAT(
      described(plan_trials(options, 64, {Precision::fp32}, 3)),
      ElementsAre("voxelize 10 points: rank 0 alone", "voxelize 10 points: rank 1 alone",
                  "voxelize 10 points: rank 2 alone", "voxelize 10 points: 2 devices, p2p",
                  "voxelize 10 points: 3 devices, p2p", "voxelize 10 points: 2 devices, collective",
                  "voxelize 10 points: 3 devices, collective", "voxelize 10 points: 3 devices, hetero",
                  "voxelize 20 points: rank 0 alone", "voxelize 20 points: rank 1 alone",
                  "voxelize 20 points: rank 2 alone", "voxelize 20 points: 2 devices, p2p",
                  "voxelize 20 points: 3 devices, p2p", "voxelize 20 points: 2 devices, collective",
                  "voxelize 20 points: 3 devices, collective", "voxelize 20 points: 3 devices, hetero"));
}

TEST(BenchPlan, OnlyWhatIsAskedForAndWhatItIsHeldAgainst) {
  BenchOptions options;
  options.workloads = {BenchWorkload::multimodal, BenchWorkload::mlp};
  options.batches = {8};
  options.modes = {BenchMode::hetero};
  EXPECT_THAT(described(plan_trials(options, 64, {Precision::fp32, Precision::bf16}, 2)),
              ElementsAre("multimodal batch 8: rank 0 alone", "multimodal batch 8: rank 1 alone",
                          "multimodal batch 8: 2 devices, hetero", "mlp batch 64 fp32: rank 0 alone",
                          "mlp batch 64 fp32: rank 1 alone", "mlp batch 64 fp32: 2 devices, hetero",
                          "mlp batch 64 bf16: rank 0 alone", "mlp batch 64 bf16: rank 1 alone",
                          "mlp batch 64 bf16: 2 devices, hetero"));
}

TEST(BenchPlan, TrainingAloneSharesABatch) {
  BenchOptions options;
  options.workloads = {BenchWorkload::voxelize, BenchWorkload::mlp};
  options.points = {10};
  options.modes = {BenchMode::strong};
  EXPECT_THAT(
      described(plan_trials(options, 3, {Precision::fp32}, 4)),
      ElementsAre("voxelize 10 points: rank 0 alone", "voxelize 10 points: rank 1 alone",
                  "voxelize 10 points: rank 2 alone", "voxelize 10 points: rank 3 alone",
                  "mlp batch 3: rank 0 alone", "mlp batch 3: rank 1 alone", "mlp batch 3: rank 2 alone",
                  "mlp batch 3: rank 3 alone", "mlp batch 3: 2 devices, strong"))
      << "3 samples are not enough for 4";
}

TEST(BenchPlan, CompressedGradientsAreMeasuredBesideWholeOnes) {
  BenchOptions options;
  options.workloads = {BenchWorkload::voxelize, BenchWorkload::mlp};
  options.points = {10};
  options.modes = {BenchMode::collective};
  options.compression.top_k_share = 0.01;
  options.compared_steps = 40;
  const std::vector<BenchTrial> plan = plan_trials(options, 64, {Precision::fp32}, 2);
  EXPECT_THAT(described(plan),
              ElementsAre("voxelize 10 points: rank 0 alone", "voxelize 10 points: rank 1 alone",
                          "voxelize 10 points: 2 devices, collective", "mlp batch 64: rank 0 alone",
                          "mlp batch 64: rank 1 alone", "mlp batch 64: 2 devices, collective",
                          "mlp batch 64: 2 devices, collective topk:1%"));
  std::vector<std::int64_t> steps;
  for (const BenchTrial& trial : plan) steps.push_back(trial.compared_steps);
  EXPECT_THAT(steps, ElementsAre(0, 0, 0, 0, 0, 40, 40));
}

TEST(BenchPlan, CompressionIsReadAsItIsTold) {
  for (const char* text : {"none", "bf16", "topk:1%", "topk:100%", "topk:0.25%"}) {
    const auto compression = parse_compression(text);
    ASSERT_TRUE(compression) << text;
    EXPECT_EQ(to_string(*compression), text);
    EXPECT_EQ(compression->is_on(), text != std::string("none"));
  }
  for (const char* text : {"", "fp16", "topk", "topk:", "topk:0%", "topk:101%", "topk:1", "topk:-1%",
                           "topk:nan%", "topk 1%", "TOPK:1%", "bf16 "})
    EXPECT_FALSE(parse_compression(text)) << text;
}

TEST(BenchPlan, DividesNetworksByEachDimensionAndByTwo) {
  BenchOptions options;
  options.workloads = {BenchWorkload::voxelize, BenchWorkload::mlp};
  options.parallel = Parallel::pipeline;
  const auto plan = plan_trials(options, 64, {Precision::fp32}, 4);
  EXPECT_THAT(
      described(plan),
      ElementsAre("mlp batch 64: rank 0 alone", "mlp batch 64: rank 1 alone", "mlp batch 64: rank 2 alone",
                  "mlp batch 64: rank 3 alone", "mlp batch 64: 2 devices, pipeline",
                  "mlp batch 64: 4 devices, pipeline", "mlp batch 64: 4 devices, pipeline 2 x data 2"))
      << "points have no layers";
  EXPECT_EQ(plan.back().plan, (ParallelPlan{.data = 2, .pipeline = 2}));
  EXPECT_EQ(plan.back().micro_batches, 2 * micro_batches_a_stage);
  options.micro_batches = 3;
  EXPECT_EQ(plan_trials(options, 64, {Precision::fp32}, 2).back().micro_batches, 3);
  options.parallel = Parallel::all;
  options.modes = {BenchMode::collective};
  options.workloads = {BenchWorkload::mlp};
  std::vector<std::string> modes;
  for (const BenchTrial& trial : plan_trials(options, 64, {Precision::fp32}, 4))
    if (trial.devices() == 4 && trial.mode != BenchMode::task) modes.push_back(mode_text(trial));
  EXPECT_THAT(modes, ElementsAre("collective", "tensor", "tensor 2 x data 2", "pipeline",
                                 "pipeline 2 x data 2", "pipeline 2 x tensor 2"));
  options.parallel = Parallel::data;
  for (const BenchTrial& trial : plan_trials(options, 64, {Precision::fp32}, 4))
    EXPECT_FALSE(trial.plan.is_split()) << "as before";
}

TEST(BenchPlan, FusionFeedsANetworkAsOnePipelineWhereBothAreAskedFor) {
  BenchOptions options;
  options.workloads = {BenchWorkload::mlp, BenchWorkload::multimodal};
  options.parallel = Parallel::pipeline;
  const auto plan = plan_trials(options, 64, {Precision::fp32}, 2);
  EXPECT_THAT(described(plan),
              ElementsAre("mlp batch 64: rank 0 alone", "mlp batch 64: rank 1 alone",
                          "mlp batch 64: 2 devices, pipeline", "multimodal to mlp batch 64: rank 0 alone",
                          "multimodal to mlp batch 64: rank 1 alone",
                          "multimodal to mlp batch 64: 2 devices, pipeline"));
  for (const BenchTrial& trial : plan) EXPECT_EQ(trial.fuses, trial.name.starts_with("multimodal to"));
  options.parallel = Parallel::tensor;
  for (const BenchTrial& trial : plan_trials(options, 64, {Precision::fp32}, 2)) EXPECT_FALSE(trial.fuses);
}

TEST(BenchPlan, OneRankIsAlone) {
  BenchOptions options;
  EXPECT_THAT(plan_trials(options, 64, {Precision::fp32}, 1), SizeIs(1 + 5 + 4));
  options.workloads = {BenchWorkload::mlp};
  EXPECT_THAT(described(plan_trials(options, 64, {Precision::fp32}, 1)),
              ElementsAre("mlp batch 64: rank 0 alone"));
}

TEST(BenchPlan, TheFirstRanksTakePart) {
  BenchTrial trial;
  trial.ranks = {0, 1};
  EXPECT_TRUE(trial.has(0) && trial.has(1));
  EXPECT_FALSE(trial.has(2));
  trial.ranks = {2};
  EXPECT_FALSE(trial.has(1));
}

TEST(BenchShares, FollowTheSpeeds) {
  EXPECT_THAT(share_load(300, {1, 1, 1}), ElementsAre(100, 100, 100));
  EXPECT_THAT(share_load(300, {2, 1}), ElementsAre(200, 100));
  EXPECT_THAT(share_load(10, {1, 1, 1}), ::testing::WhenSorted(ElementsAre(3, 3, 4)));
  EXPECT_THAT(share_load(4, {1e6, 1, 1, 1}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(share_load(5, {1e6, 1, 1}), ElementsAre(3, 1, 1));
  EXPECT_THAT(share_load(160, {2.2, 1}, 16), ElementsAre(112, 48));
  EXPECT_THAT(share_load(32, {1, 1, 1}, 16), ::testing::WhenSorted(ElementsAre(0, 16, 16)));
}

TEST(BenchShares, SumToTheWholeAndAreNear) {
  for (std::int64_t total : {7, 100, 4001, 1'000'000'007}) {
    const std::vector<double> speeds = {3.7, 1.1, 2.2, 0.9, 5.5};
    const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
    const auto shares = share_load(total, speeds);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), total);
    for (std::size_t i = 0; i < speeds.size(); ++i)
      EXPECT_NEAR(static_cast<double>(shares[i]), static_cast<double>(total) * speeds[i] / sum, 1.0) << total;
  }
}

TEST(BenchLoop, IsDividedIntoChunksOfTheTrialsTime) {
  const LoopPlan fast = plan_loop(0.01, 1, 1);  // 100,000 steps
  EXPECT_EQ(fast.per_chunk, 5000);
  EXPECT_EQ(fast.chunks, 20);
  EXPECT_EQ(fast.per_burst, 2) << "a tenth of a second between looks";
  const LoopPlan slow = plan_loop(300, 1, 1);
  EXPECT_EQ(slow.per_chunk, 1);
  EXPECT_EQ(slow.chunks, fewest_chunks);
  EXPECT_EQ(slow.per_burst, 1);
  const LoopPlan patient = plan_loop(0.01, 60, 1);
  EXPECT_EQ(patient.per_chunk, 10'000) << "as long as a burst";
  EXPECT_EQ(patient.chunks, 600);
  EXPECT_EQ(patient.per_burst, 1);
  EXPECT_EQ(plan_loop(0.01, 1, 16).per_chunk % 16, 0);
  EXPECT_EQ(plan_loop(1000, 1, 16).per_chunk, 16);
}

TEST(BenchLoop, SmallBatchesAreMovedTogether) {
  EXPECT_EQ(batches_per_delivery(10, 1000), 1);
  EXPECT_EQ(batches_per_delivery(0.2, 1000), 1);
  EXPECT_EQ(batches_per_delivery(0.05, 1000), 4);
  EXPECT_EQ(batches_per_delivery(0.001, 1000), max_batches_per_delivery);
  EXPECT_EQ(batches_per_delivery(0.001, 3 << 20), 2) << "some megabytes";
  EXPECT_EQ(batches_per_delivery(0.001, std::size_t{1} << 30), 1);
}

TEST(ScalingTimes, AreExact) {
  std::vector<double> ms;
  for (int i = 20; i >= 1; --i) ms.push_back(i);
  const ScalingTimes times = step_times(ms);
  EXPECT_THAT(times.min, DoubleEq(1));
  EXPECT_THAT(times.p50, DoubleEq(10.5));
  EXPECT_THAT(times.p95, DoubleEq(19));
  EXPECT_THAT(times.max, DoubleEq(20));
  EXPECT_THAT(times.spread_percent(), DoubleNear(100 * 19 / 10.5, 1e-9));
  const ScalingTimes one = step_times({2});
  EXPECT_THAT(one.p50, DoubleEq(2));
  EXPECT_THAT(one.p95, DoubleEq(2));
  EXPECT_THAT(one.spread_percent(), DoubleEq(0));
}

TEST(WarmUp, EndsWhenTwoFullRoundsAgree) {
  WarmUp warm_up(1, 1);
  EXPECT_EQ(warm_up.iterations(), 1);
  warm_up.add(2);  // the first one is slow
  EXPECT_FALSE(warm_up.is_over());
  EXPECT_EQ(warm_up.iterations(), 8);
  warm_up.add(1);
  EXPECT_FALSE(warm_up.is_over());
  EXPECT_EQ(warm_up.iterations(), 50);
  warm_up.add(1.1);
  EXPECT_FALSE(warm_up.is_over()) << "10 % apart";
  warm_up.add(1.11);
  EXPECT_TRUE(warm_up.is_over());
  EXPECT_THAT(warm_up.step_ms(), DoubleEq(1.11));
}

TEST(WarmUp, DoesNotTrustALuckyIteration) {
  WarmUp warm_up(1, 2);
  EXPECT_EQ(warm_up.iterations(), 2);
  warm_up.add(0.001);
  EXPECT_EQ(warm_up.iterations(), 16) << "not the 50,000 of a chunk";
  warm_up.add(1);
  EXPECT_EQ(warm_up.iterations(), 50);
}

TEST(WarmUp, TakesNotForEver) {
  WarmUp warm_up(1, 4);
  int rounds = 0;
  for (double ms = 100; !warm_up.is_over(); ms *= 1.5, ++rounds) {
    EXPECT_EQ(warm_up.iterations() % 4, 0);
    warm_up.add(ms);
  }
  EXPECT_EQ(rounds, WarmUp::fewest_rounds);
}

Answers answers(std::uint64_t value) {
  return {Digest{value, 1}, Digest{value, 2}};
}

TEST(BenchAnswers, ThoseWhoWereAloneAreWitnessesLater) {
  BenchAnswers book({0, 0, 0});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    std::vector<Answers> now(3);
    now[rank] = answers(rank == 1 ? 8 : 7);
    const auto dissents = book.judge("voxelize", {10, 10, 10}, now);
    if (rank < 1) {
      EXPECT_THAT(dissents, IsEmpty());
    }
    if (rank == 1) {
      ASSERT_THAT(dissents, SizeIs(1));
      EXPECT_EQ(dissents[0].rank, -1) << "two that differ";
      EXPECT_THAT(dissents[0].suspects, ElementsAre(0, 1));
    }
  }
  const auto all = book.judge("voxelize", {10, 10, 10}, {answers(7), answers(8), answers(7)});
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].rank, 1);
  EXPECT_EQ(all[0].blame, Blame::majority);
}

TEST(BenchAnswers, ARankThatLeavesItsPastIsCertain) {
  BenchAnswers book({0, 1});
  EXPECT_THAT(book.judge("mlp", {4, 4}, {answers(1), answers(2)}), IsEmpty()) << "models differ";
  const auto dissents = book.judge("mlp", {4, 4}, {answers(3), answers(2)});
  ASSERT_THAT(dissents, SizeIs(1));
  EXPECT_EQ(dissents[0].rank, 0);
  EXPECT_EQ(dissents[0].blame, Blame::certain);
  EXPECT_THAT(book.judge("mlp", {5, 4}, {answers(3), answers(2)}), IsEmpty()) << "another question";
}

}  // namespace
}  // namespace egt
