#include "workload/train/batch_balance.hpp"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/mlp_trainer.hpp"

namespace egt::test {
namespace {

using testing::Each;
using testing::ElementsAre;

using Samples = std::vector<std::int64_t>;
using Times = std::vector<double>;

TEST(BalancedSamples, GoWhereTheyAreDoneFirst) {
  EXPECT_THAT(balanced_samples(512, {1, 1}, 16, {1024, 1024}), ElementsAre(256, 256));
  EXPECT_THAT(balanced_samples(480, {1, 2}, 16, {1024, 1024}), ElementsAre(320, 160));
  EXPECT_THAT(balanced_samples(448, {1, 2, 4}, 16, {448, 448, 448}), ElementsAre(256, 128, 64));
}

TEST(BalancedSamples, AreAllAndNoRankHasNoneOrMoreThanItHasMemoryFor) {
  for (const Times& ms : {Times{1, 1e6, 3}, Times{1e-9, 1, 1}, Times{5, 5, 5}}) {
    for (const std::int64_t global : {3, 100, 1000, 1001}) {
      const std::int64_t grain = std::max<std::int64_t>(1, global / 64);
      const Samples most = {global / 2 + 1, global, global},
                    samples = balanced_samples(global, ms, grain, most);
      EXPECT_EQ(std::accumulate(samples.begin(), samples.end(), std::int64_t{0}), global);
      for (std::size_t rank = 0; rank < most.size(); ++rank) {
        EXPECT_GE(samples[rank], 1) << global;
        EXPECT_LE(samples[rank], most[rank]) << global;
      }
    }
  }
}

constexpr std::int64_t epoch = 30;

RankPlace place_of(int rank, int size) {
  RankPlace place;
  place.rank = rank;
  place.size = size;
  return place;
}

/// Ranks whose pass time depends on their samples.
class Ranks {
 public:
  explicit Ranks(Times ms_per_sample, std::int64_t global = 480, Samples most = {})
      : ms_(std::move(ms_per_sample)), global_(global) {
    const int size = static_cast<int>(ms_.size());
    if (most.empty()) most.assign(ms_.size(), global);
    for (int rank = 0; rank < size; ++rank)
      balances.emplace_back(share_batch(global, rank, size), place_of(rank, size), most);
  }

  /// Retires steps up to this one.
  void retire_to(std::int64_t last, Precision now = Precision::fp32, Precision next = Precision::fp32) {
    for (; retired_ <= last; ++retired_) {
      Times reported;  // as with equal shares
      for (std::size_t rank = 0; rank < ms_.size(); ++rank)
        reported.push_back(
            ms_[rank] *
            static_cast<double>(
                share_batch(global_, static_cast<int>(rank), static_cast<int>(ms_.size())).local));
      for (BatchBalance& balance : balances) {
        balance.add(retired_, now, reported);
        if ((retired_ + 1) % epoch == 0) balance.end_epoch(retired_, next);
      }
    }
  }
  void set(Times ms_per_sample) { ms_ = std::move(ms_per_sample); }
  void go_back_to(std::int64_t step) {
    retired_ = step;
    for (BatchBalance& balance : balances) balance.restart(step);
  }

  /// Shares of a step; fails if they do not form the whole batch in sequence.
  Samples samples(std::int64_t step) const {
    Samples samples;
    std::int64_t next = 0;
    for (const BatchBalance& balance : balances) {
      const BatchShare share = balance.share_of(step, static_cast<int>(samples.size()));
      EXPECT_EQ(share.first, next);
      EXPECT_EQ(share.global, global_);
      next += share.local;
      samples.push_back(share.local);
    }
    EXPECT_EQ(next, global_);
    return samples;
  }

  std::vector<BatchBalance> balances;

 private:
  Times ms_;
  std::int64_t global_, retired_ = 0;
};

TEST(BatchBalance, ASlowDeviceGetsLessFromTheFirstStepOnThatNobodyHasEnqueued) {
  Ranks ranks({1, 2});
  ranks.retire_to(epoch - 2);
  EXPECT_THAT(ranks.samples(epoch + 50), ElementsAre(240, 240));
  ranks.retire_to(epoch - 1);
  const std::int64_t last_enqueued = epoch - 1 + MlpTrainer::depth;
  EXPECT_THAT(ranks.samples(last_enqueued), ElementsAre(240, 240));
  EXPECT_THAT(ranks.samples(last_enqueued + 1), ElementsAre(320, 160));
  ranks.retire_to(5 * epoch);
  EXPECT_THAT(ranks.samples(3), ElementsAre(240, 240)) << "a step that is repeated has its old samples";
  EXPECT_THAT(ranks.samples(5 * epoch), ElementsAre(320, 160));
  const Json figures = ranks.balances[1].figures();
  EXPECT_EQ(figures.at("batch"), 160);
  EXPECT_EQ(figures.at("batch_changes"), 1) << "the same figures again are no reason for another";
  constexpr double even_steps = 26, balanced_steps = 102;  // those directly after a change are excluded
  EXPECT_NEAR(figures.at("balance_gain").get<double>(),
              (even_steps + balanced_steps) * 480 / (even_steps * 480 + balanced_steps * 320), 1e-9);
}

TEST(BatchBalance, FollowsADeviceThatBecomesFastAgain) {
  Ranks ranks({1, 2});
  ranks.retire_to(2 * epoch);
  ranks.set({1, 1});
  ranks.retire_to(4 * epoch);
  EXPECT_THAT(ranks.samples(4 * epoch), ElementsAre(240, 240));
}

TEST(BatchBalance, DevicesOfAboutTheSameSpeedStayAsTheyAre) {
  Ranks ranks({1, 1.015});
  ranks.retire_to(3 * epoch);
  EXPECT_THAT(ranks.samples(3 * epoch), ElementsAre(240, 240));
  EXPECT_EQ(ranks.balances[0].figures().at("balance_gain"), 1);
}

TEST(BatchBalance, APrecisionHasItsOwnFigures) {
  Ranks ranks({1, 2});
  ranks.retire_to(epoch - 1, Precision::bf16, Precision::fp64);
  EXPECT_THAT(ranks.samples(epoch + 5), ElementsAre(320, 160)) << "of a new one the last is the best guess";
  ranks.set({2, 1});
  ranks.retire_to(2 * epoch - 1, Precision::fp64, Precision::bf16);
  EXPECT_THAT(ranks.samples(2 * epoch + 5), ElementsAre(320, 160)) << "what bf16 took in its last epoch";
  ranks.set({1, 2});
  ranks.retire_to(3 * epoch - 1, Precision::bf16, Precision::fp64);
  EXPECT_THAT(ranks.samples(3 * epoch + 5), ElementsAre(160, 320)) << "and fp64";
}

TEST(BatchBalance, WithoutMemoryForMoreSharesStay) {
  Ranks capped({1, 2}, 480, {240, 480});
  capped.retire_to(2 * epoch);
  EXPECT_THAT(capped.samples(2 * epoch), ElementsAre(240, 240));
  BatchBalance even(share_batch(480, 0, 2), place_of(0, 2), {});
  for (std::int64_t step = 0; step < epoch; ++step) even.add(step, Precision::fp32, {1, 2});
  even.end_epoch(epoch - 1, Precision::fp32);
  EXPECT_EQ(even.share_of(2 * epoch, 0).local, 240);
  EXPECT_EQ(even.max_samples(0), 240);
  EXPECT_TRUE(even.figures().at("balance_gain").is_null());
}

TEST(BatchBalance, AfterARestartSharesAreEvenFromTheStepOnThatAllHaveComeTo) {
  Ranks ranks({1, 2});
  ranks.retire_to(2 * epoch);
  ranks.go_back_to(epoch + 10);
  EXPECT_THAT(ranks.samples(epoch + 9), ElementsAre(320, 160)) << "was made so, and may be looked at again";
  EXPECT_THAT(ranks.samples(epoch + 10), ElementsAre(240, 240));
  ranks.retire_to(2 * epoch - 1);
  EXPECT_THAT(ranks.samples(2 * epoch + 5), ElementsAre(240, 240)) << "half an epoch is too short";
  ranks.retire_to(3 * epoch - 1);
  EXPECT_THAT(ranks.samples(3 * epoch + 5), ElementsAre(320, 160));
}

TEST(BatchBalance, FiguresThatAreNoneCountForNothing) {
  Ranks ranks({1, 1});
  for (const Times& reported : {Times{}, Times{1}, Times{1, 0}, Times{1, std::nan("")}, Times{1, HUGE_VAL}})
    for (BatchBalance& balance : ranks.balances)
      for (std::int64_t step = 0; step < epoch; ++step) balance.add(step, Precision::fp32, reported);
  for (BatchBalance& balance : ranks.balances) balance.end_epoch(epoch - 1, Precision::fp32);
  EXPECT_THAT(ranks.samples(2 * epoch), Each(240));
}

TEST(BatchBalance, SharesAreMultiplesOfWhatThePrecisionWants) {
  constexpr std::int64_t unit = 16, global = 160;
  const Samples most = {global - 5, global - 5};
  std::vector<BatchBalance> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back(share_batch(global, rank, 2), place_of(rank, 2), most, unit);
  for (std::int64_t step = 0; step < epoch; ++step)
    for (BatchBalance& rank : ranks) rank.add(step, Precision::fp8, {80 * 1.0, 80 * 2.5});
  for (BatchBalance& rank : ranks) rank.end_epoch(epoch - 1, Precision::fp8);
  const std::int64_t later = epoch + MlpTrainer::depth + 1;
  EXPECT_EQ(ranks[0].share_of(later, 0).local, 112);
  EXPECT_EQ(ranks[1].share_of(later, 1).local, 48);
}

}  // namespace
}  // namespace egt::test
