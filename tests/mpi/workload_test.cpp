// The detectors of the main job that need several ranks, each with a fault put into the real data.
#include <algorithm>
#include <optional>

#include "corrupting_communicator.hpp"
#include "egt/device/host/host_device.hpp"
#include "egt/ranks/mpi_communicator.hpp"
#include "egt/workload/train.hpp"
#include "mpi_test.hpp"

namespace egt::test {
namespace {

constexpr double timeout_s = 30;

class Workloads : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_host_device({});
    ASSERT_TRUE(opened.ok());
    device = std::move(opened.value());
    auto real_opened = open_mpi_communicator(mpi_session(), timeout_s);
    ASSERT_TRUE(real_opened.ok());
    real = std::move(real_opened.value());
  }

  int size() const { return mpi_session().place().size; }
  int rank() const { return mpi_session().place().rank; }

  /// Runs the workload for `steps` steps, and returns the faults that this rank told.
  std::vector<Json> run(Workload& workload, RecordQueue& records, std::int64_t steps) {
    EXPECT_TRUE(workload.prepare().ok());
    EXPECT_TRUE(workload.start().ok());
    for (std::int64_t s = 0; s < steps + MlpTrainer::depth; ++s) {
      StepOutcome outcome;
      const Status enqueued = s < steps ? workload.enqueue({.index = s}) : Status();
      EXPECT_TRUE(enqueued.ok()) << enqueued.what();
      const Status retired =
          s >= MlpTrainer::depth ? workload.retire(s - MlpTrainer::depth, outcome) : Status();
      EXPECT_TRUE(retired.ok()) << retired.what();
    }
    EXPECT_TRUE(workload.finish(false).ok());
    std::vector<Json> faults;
    for (const Record& record : records.drain())
      if (record.kind == RecordKind::fault) faults.push_back(record.body);
    return faults;
  }

  std::vector<Json> train(const CorruptingCommunicator::Hit& hit, std::optional<double> rate = {}) {
    CorruptingCommunicator communicator(*real, hit);
    RecordQueue records(rank());
    Injector injector({}, mpi_session().place(), records);
    Environment environment{*device, communicator, records,      mpi_session().place(),
                            5,       injector,     "test device"};
    TrainOptions options;
    options.layers = {16, 24, 8};
    options.precisions = {Precision::fp32};
    options.extreme_iterations = 0;
    options.check_every = 4;
    options.epoch_steps = 10;
    options.learning_rate = rate;
    GoldenBook golden;
    TrainWorkload workload(environment, options, share_batch(8 * size(), rank(), size()), golden);
    std::vector<Json> faults = run(workload, records, 12);
    part = workload.report();
    return faults;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> real;
  PartReport part;
};

/// Large enough to reach the weights, even from a gradient of zero.
std::uint32_t flip_bit_29(std::uint32_t word) {
  return word ^ 0x20000000u;
}
std::uint32_t make_nan(std::uint32_t) {
  return 0x7FC00000u;
}

TEST_F(Workloads, CleanTrainingTellsNoFaultAndProvesItsReplicas) {
  EXPECT_TRUE(train({}).empty());
  EXPECT_TRUE(part.success) << part.failure;
  EXPECT_EQ(part.work.replica_checks > 0, size() > 1);
  EXPECT_GT(part.work.replays, 0u);
  EXPECT_GT(part.work.gemm_flops, 0);
}

TEST_F(Workloads, ADivergedReplicaIsNamedByTheMajority) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const int victim = 1;
  // The gradient's sum, not the two-word tail with loss and votes.
  const std::vector<Json> faults = train({.rank = victim, .bytes_at_least = 64, .change = flip_bit_29});
  EXPECT_FALSE(part.success);
  if (rank() != 0) return;
  ASSERT_EQ(faults.size(), 1u) << "told once, not at every check";
  EXPECT_EQ(faults[0].at("kind"), "replica");
  if (size() == 2) {
    EXPECT_TRUE(faults[0].at("rank").is_null());
    EXPECT_EQ(faults[0].at("blame"), "ambiguous");
  } else {
    EXPECT_EQ(faults[0].at("rank"), victim);
    EXPECT_EQ(faults[0].at("blame"), "majority");
  }
}

TEST_F(Workloads, ALossThatIsNotFiniteIsAFaultAtOurRateAndADivergenceAtTheUsers) {
  const std::vector<Json> faults = train({.rank = 0, .bytes_at_least = 64, .change = make_nan});
  EXPECT_FALSE(part.success);
  const auto nonfinite = [](const Json& fault) { return fault.at("kind") == "nonfinite"; };
  EXPECT_EQ(std::count_if(faults.begin(), faults.end(), nonfinite), rank() == 0 ? 1 : 0);
  EXPECT_TRUE(train({}, 1e30).empty());
  EXPECT_FALSE(part.success);
  EXPECT_NE(part.failure.find("--learning-rate"), std::string::npos);
}

}  // namespace
}  // namespace egt::test
