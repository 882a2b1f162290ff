#include "workload/ceilings/ceiling_job.hpp"

#include <filesystem>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

/// Its memory does not change, if enabled: fills and copies from the host have no effect.
class ForgettingDevice : public ForwardingDevice {
 public:
  ForgettingDevice() : ForwardingDevice(small_host_device()) {}
  bool forgets = false;

 protected:
  Status enqueue_checked(const Operation& operation, Stream& stream) override {
    const auto* const copy = std::get_if<Copy>(&operation);
    if (forgets && (std::holds_alternative<Fill>(operation) || (copy && copy->bytes > sizeof(Mismatches))))
      return {};
    if (const auto* refill = std::get_if<VerifyAndFill>(&operation); refill && forgets)
      return verify(refill->words, refill->expected, refill->report, stream);
    return ForwardingDevice::enqueue_checked(operation, stream);
  }
};

class CeilingJobs : public ::testing::Test {
 protected:
  CeilingJobs() {
    train.layers = {64, 48, 32};
    train.batch = 16;
    train.extreme_iterations = 2;
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    file.directory = folder;
    file.size = 3 << 20;
  }
  ~CeilingJobs() override { std::filesystem::remove_all(folder); }

  std::unique_ptr<CeilingJob> open(CeilingKind kind, std::size_t product = 0) {
    auto made = make_ceiling(ceilings, {.kind = kind,
                                        .precision = Precision::fp32,
                                        .product = product,
                                        .bytes = 4096,
                                        .rows = {{"a row", "a group", CeilingUnit::gb_per_s, "a_limit"}}});
    EXPECT_TRUE(made.ok()) << made.status().what();
    return made.ok() ? std::move(made.value()) : nullptr;
  }

  World world{std::make_unique<ForgettingDevice>()};
  TrainOptions train;
  std::string folder = (std::filesystem::temp_directory_path() / "egt_ceilings_XXXXXX").string();
  FileOptions file;
  std::function<bool()> stopping = [] { return false; };
  FaultReporter reporter{world.environment};
  CeilingWorld ceilings{world.environment, reporter, train, file, stopping, &world.communicator};
};

TEST_F(CeilingJobs, BothSidesTellARateAndTheResultsAreRight) {
  using enum CeilingKind;
  for (const CeilingKind kind : {product, step, checked_product, fill, digest, verify, refill, patrol, update,
                                 extreme, host_copies, files}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto job = open(kind, 3);
    ASSERT_NE(job, nullptr);
    for (int round = 0; round < 2; ++round)
      for (const bool of_limit : {false, true}) {
        const auto burst = of_limit ? job->limit(3) : job->ours(3);
        ASSERT_TRUE(burst.ok()) << burst.status().what();
        EXPECT_GT(burst.value().ms, 0);
        EXPECT_EQ(burst.value().rates.size(), kind == files ? 2u : 1u);
        for (const double rate : burst.value().rates) EXPECT_GT(rate, 1e3);
      }
    const auto report = job->check();
    ASSERT_TRUE(report.ok()) << report.status().what();
    EXPECT_EQ(report.value().failure, "");
  }
  EXPECT_TRUE(world.faults().empty());
}

TEST_F(CeilingJobs, WhatIsWrongIsAFault) {
  using enum CeilingKind;
  for (const auto& [kind, fault] : {std::pair{refill, "memory"}, std::pair{host_copies, "link"}}) {
    const auto job = open(kind);
    ASSERT_NE(job, nullptr);
    ASSERT_TRUE(job->ours(1).ok());
    static_cast<ForgettingDevice&>(*world.device).forgets = true;
    ASSERT_TRUE(job->ours(1).ok());
    static_cast<ForgettingDevice&>(*world.device).forgets = false;
    const auto report = job->check();
    ASSERT_TRUE(report.ok());
    EXPECT_NE(report.value().failure, "");
    const auto faults = world.faults();
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_EQ(faults[0].at("kind"), fault);
  }
}

TEST_F(CeilingJobs, FilesAreThereWhileTheyAreMeasured) {
  auto job = open(CeilingKind::files);
  ASSERT_NE(job, nullptr);
  ASSERT_TRUE(job->ours(1).ok());
  ASSERT_TRUE(job->limit(1).ok());
  EXPECT_FALSE(std::filesystem::is_empty(file.directory));
  job.reset();
  EXPECT_TRUE(std::filesystem::is_empty(file.directory));
  file.directory += "/none";
  const auto made = make_file_ceiling(ceilings);
  EXPECT_EQ(made.status().code(), StatusCode::unavailable);
}

}  // namespace
}  // namespace egt::test
