#include <gmock/gmock.h>

#include "ranks/mpi/mpi_control.hpp"
#include "tests/mpi/ranks_on_host.hpp"
#include "tests/support/changed_device.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/bench/parallel/split_job.hpp"

/// A split network as measured and checked by `bench`.
namespace egt::test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t rows_of_the_comparison = 2;  // per micro-batch

/// Changes one value in every GEMM with this number of rows, always the same.
std::unique_ptr<Device> with_wrong_products(std::unique_ptr<Device> real) {
  return changed<Gemm>(std::move(real), [](const Gemm& call, const Enqueue& enqueue) -> Status {
    EGT_TRY(enqueue(call));
    if (call.d.rows != rows_of_the_comparison) return {};
    return enqueue(FlipWords{{static_cast<std::uint32_t*>(call.d.data), 1}, {.mask = 1u << 30}});
  });
}

class SplitJobs : public RanksOnHost {
 protected:
  void SetUp() override {
    RanksOnHost::SetUp();
    if (size() < 2) GTEST_SKIP() << "one rank has nobody to share with";
    control = std::move(open_mpi_control(mpi_session(), timeout_s).value());
  }

  /// A pipeline over all ranks, or one part on each rank, measured and checked; `used`: this rank's device.
  JobReport report_of(Device& used, bool fuses, bool alone = false) {
    const RankPlace place = mpi_session().place();
    const std::vector<Injection> injections;
    Injector injector{injections, place, records};
    ProgressBoard board;
    LoadControl load;
    Environment environment{used, *real, records, place, 42, injector, "test device", board, load};
    environment.peer_timeout_seconds = timeout_s;
    const ParallelPlan plan{.pipeline = alone ? 1 : size()};
    auto groups = BenchGroups::open(environment, *control, {.counts = {size()}, .plans = {plan}});
    EXPECT_TRUE(groups.ok()) << groups.status().what();
    FaultReporter reporter(environment);
    SplitJobConfig config;
    config.fuses = fuses;
    config.split.plan = plan;
    config.split.rank = alone ? 0 : rank();
    config.split.micro_batches = 2;
    config.split.network.neurons = {12, 16, 10, 14, 8};
    config.split.network.batch.global = 24;
    config.split.network.precisions = {Precision::fp32};
    config.split.network.learning_rate =
        default_learning_rate(config.split.network.neurons, Optimizer::sgd, 24);
    const std::vector<double> ms(4, 1);
    config.split.stages = cut_stages(plan, ms, std::vector<std::uint64_t>(4, 1), {}).value();
    auto job = make_split_job(environment, *groups.value(), config, reporter);
    EXPECT_TRUE(job.ok()) << job.status().what();
    EXPECT_TRUE(job.value()->answers().ok());
    EXPECT_TRUE(job.value()->burst(4, 4).ok());
    auto report = job.value()->check();
    EXPECT_TRUE(report.ok()) << report.status().what();
    return std::move(report.value());
  }

  std::vector<Json> faults() {
    std::vector<Json> found;
    for (const Record& record : records.drain())
      if (record.kind == RecordKind::fault) found.push_back(record.body);
    return found;
  }

  std::unique_ptr<Control> control;
  RecordQueue records{mpi_session().place().rank};
};

TEST_F(SplitJobs, FindNothingInWhatIsRight) {
  for (const bool fuses : {false, true}) {
    const JobReport report = report_of(*device, fuses);
    EXPECT_EQ(report.failure, "");
    EXPECT_EQ(report.figures.compared, 1);
    EXPECT_TRUE(faults().empty());
  }
}

TEST_F(SplitJobs, GradientsThatAreWrongInTheSameWayEachTimeAreAFaultOfTheRanksThatHaveThem) {
  const bool is_wrong = rank() + 1 == size();
  std::unique_ptr<Device> used = std::move(device);
  if (is_wrong) used = with_wrong_products(std::move(used));
  const JobReport report = report_of(*used, false);
  EXPECT_THAT(report.failure, HasSubstr("of their norm from one device's")) << "all ranks know it";
  const std::vector<Json> reported = faults();
  ASSERT_EQ(reported.size(), rank() == 0 ? 1u : 0u);
  if (rank() > 0) return;
  EXPECT_EQ(reported[0]["kind"], "output");
  EXPECT_EQ(reported[0]["detector"], "gradients of one device");
  EXPECT_THAT(reported[0]["where"].get<std::string>(), HasSubstr("gradients, pipeline: "));
  EXPECT_EQ(reported[0]["blame"], "ambiguous");
  EXPECT_THAT(reported[0]["suspects"].get<std::vector<int>>(), ::testing::Contains(size() - 1));
}

TEST_F(SplitJobs, OfOneRankAloneThatRankTellsIt) {
  const bool is_wrong = rank() + 1 == size();
  std::unique_ptr<Device> used = std::move(device);
  if (is_wrong) used = with_wrong_products(std::move(used));
  const JobReport report = report_of(*used, true, true);
  EXPECT_EQ(report.failure.empty(), !is_wrong) << report.failure;
  const std::vector<Json> reported = faults();
  ASSERT_EQ(reported.size(), is_wrong ? 1u : 0u);
  if (!is_wrong) return;
  EXPECT_EQ(reported[0]["kind"], "output");
  EXPECT_EQ(reported[0]["rank"], rank());
  EXPECT_EQ(reported[0]["blame"], "certain");
}

TEST_F(SplitJobs, FusionThatGivesOtherBitsIsAFaultOfItsRank) {
  std::unique_ptr<Device> used = std::move(device);
  if (rank() == 0)
    used = changed<StreamFusion>(
        std::move(used), [calls = 0](const StreamFusion& call, const Enqueue& enqueue) mutable -> Status {
          EGT_TRY(enqueue(call));
          if (calls++ == 0) return {};
          return enqueue(FlipWords{{reinterpret_cast<std::uint32_t*>(call.fused), 1}, {.mask = 1u << 20}});
        });
  report_of(*used, true);
  const std::vector<Json> reported = faults();
  ASSERT_EQ(reported.size(), rank() == 0 ? 1u : 0u);
  if (rank() > 0) return;
  EXPECT_EQ(reported[0]["kind"], "replay");
  EXPECT_EQ(reported[0]["blame"], "certain");
  EXPECT_THAT(reported[0]["where"].get<std::string>(), HasSubstr("the network's input"));
}

}  // namespace
}  // namespace egt::test
