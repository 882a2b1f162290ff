#include "workload/bench/task/task_trials.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace egt {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;

const std::vector<BenchTask> jobs = {{BenchWorkload::voxelize, 1000, "voxelize 1000 points"},
                                     {BenchWorkload::multimodal, 8, "multimodal batch 8"}};

ScalingTimes times(double ms) {
  return {.min = ms, .p50 = ms, .p95 = ms, .max = ms};
}

/// Milliseconds of each job, by rank.
std::vector<BenchEntry> alone(const std::vector<double>& voxelize, const std::vector<double>& multimodal) {
  std::vector<BenchEntry> entries;
  for (std::size_t job = 0; job < 2; ++job)
    for (std::size_t rank = 0; rank < voxelize.size(); ++rank) {
      BenchEntry& one = entries.emplace_back();
      one.trial.workload = jobs[job].workload;
      one.trial.size = jobs[job].size;
      one.trial.name = jobs[job].name;
      one.trial.ranks = {static_cast<int>(rank)};
      one.shares = {one.trial.size};
      one.step = times((job == 0 ? voxelize : multimodal)[rank]);
    }
  return entries;
}

BenchEntry entry_of(const BenchTrial& trial) {
  BenchEntry entry;
  entry.trial = trial;
  entry.shares.assign(trial.ranks.size(), 1);
  return entry;
}

TEST(TaskTrials, EachJobOnAllRanksThenAllJobsAtOnce) {
  const auto trials = plan_tasks(jobs, 3);
  ASSERT_THAT(trials, SizeIs(3));
  EXPECT_EQ(describe(trials[0]), "voxelize 1000 points: 3 devices, sequence");
  EXPECT_EQ(describe(trials[1]), "multimodal batch 8: 3 devices, sequence");
  EXPECT_EQ(describe(trials[2]), "voxelize 1000 points + multimodal batch 8: 3 devices, task");
  EXPECT_THAT(plan_tasks(jobs, 1), IsEmpty());
  EXPECT_THAT(plan_tasks({jobs[0]}, 3), IsEmpty());
}

TEST(TaskTrials, RanksAreDividedAndTheFasterMakesMore) {
  const auto entries = alone({4, 4, 4, 4}, {1, 1, 1, 1});
  BenchEntry both = entry_of(plan_tasks(jobs, 4).back());
  EXPECT_EQ(assign_tasks(both, entries, {0, 0, 0, 0}), "");
  EXPECT_THAT(both.trial.tasks[0].ranks, ElementsAre(0, 1));
  EXPECT_THAT(both.trial.tasks[1].ranks, ElementsAre(2, 3));
  EXPECT_THAT(both.shares, ElementsAre(4, 4, 16, 16)) << "so that all end together";
  BenchEntry one = entry_of(plan_tasks(jobs, 4).front());
  EXPECT_EQ(assign_tasks(one, alone({4, 4, 2, 4}, {1, 1, 1, 1}), {0, 0, 1, 0}), "");
  EXPECT_THAT(one.trial.tasks[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(one.shares, ElementsAre(4000, 4000, 8000, 4000));
}

TEST(TaskTrials, UnlikeDevicesDoWhatTheyAreBestAt) {
  BenchEntry both = entry_of(plan_tasks(jobs, 4).back());
  EXPECT_EQ(assign_tasks(both, alone({4, 4, 1, 1}, {2, 2, 1, 1}), {0, 0, 1, 1}), "");
  EXPECT_THAT(both.trial.tasks[0].ranks, ElementsAre(2, 3)) << "twice as good at the first beside the others";
  EXPECT_EQ(assign_tasks(both, alone({4.1, 4, 3.9, 4.2}, {2, 2.1, 2, 1.9}), {0, 0, 0, 0}), "");
  EXPECT_THAT(both.trial.tasks[0].ranks, ElementsAre(0, 1)) << "of one model chance does not decide";
  auto entries = alone({4, 4, 1, 1}, {2, 2, 1, 1});
  entries[2].step.reset();  // its memory is too small for the first job
  EXPECT_EQ(assign_tasks(both, entries, {0, 0, 1, 2}), "");
  EXPECT_THAT(both.trial.tasks[1].ranks, ElementsAre(1, 2));
  entries[6].step.reset();
  EXPECT_THAT(assign_tasks(both, entries, {0, 0, 1, 2}), HasSubstr("is not known"));
}

TEST(TaskTrials, AreHeldAgainstTheSameBatchesOneJobAfterTheOther) {
  std::vector<BenchEntry> entries = alone({4, 4}, {1, 1});
  const auto trials = plan_tasks(jobs, 2);
  for (const std::size_t job : {std::size_t{0}, std::size_t{1}}) {
    BenchEntry one = entry_of(trials[job]);
    ASSERT_EQ(assign_tasks(one, entries, {0, 0}), "");
    one.step = times(job == 0 ? 20 : 5);  // for 8 batches: a quarter longer than alone
    complete(one, entries);
    EXPECT_THAT(one.speedup, Optional(DoubleNear(1.6, 1e-9)));
    EXPECT_EQ(one.exposed_communication_ms, std::nullopt);
    entries.push_back(one);
  }
  BenchEntry both = entry_of(trials.back());
  ASSERT_EQ(assign_tasks(both, entries, {0, 0}), "");
  both.step = times(16);
  complete(both, entries);
  // 4 batches of 4 ms and 16 of 1 ms: 32 ms on one device; on both, a quarter longer than half of it.
  EXPECT_THAT(both.speedup, Optional(DoubleNear(2, 1e-9)));
  EXPECT_THAT(both.sequence_ms, Optional(DoubleNear(20, 1e-9)));
  EXPECT_THAT(both.sequence_speedup(), Optional(DoubleNear(1.25, 1e-9)));
  const Json figures = report_of(both).figures;
  EXPECT_EQ(figures.at("workload"), "task");
  EXPECT_EQ(figures.at("items"), "batches");
  EXPECT_EQ(figures.at("tasks")[1].at("ranks"), Json({1}));
  EXPECT_THAT(line_of(both), HasSubstr("speed-up 2.00, 1.25 over one job after the other"));
}

TEST(TaskTrials, PartsAreJobsOfTheirRanksAlone) {
  BenchEntry both = entry_of(plan_tasks(jobs, 2).back());
  ASSERT_EQ(assign_tasks(both, alone({4, 4}, {1, 1}), {0, 0}), "");
  const auto parts = parts_of(both);
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_EQ(parts[1].trial.workload, BenchWorkload::multimodal);
  EXPECT_EQ(parts[1].trial.mode, BenchMode::single);
  EXPECT_THAT(parts[1].trial.ranks, ElementsAre(1));
  EXPECT_THAT(parts[1].shares, ElementsAre(8));
}

}  // namespace
}  // namespace egt
