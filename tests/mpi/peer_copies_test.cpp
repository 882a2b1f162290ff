#include "workload/copies/peer_copies_workload.hpp"

#include <atomic>

#include <gmock/gmock.h>

#include "ranks_on_host.hpp"
#include "tests/support/changed_device.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

/// Cannot open memory shared by other ranks.
class LonelyDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Result<Buffer> open_shared(const std::string&) override {
    return Status(StatusCode::unsupported, "nothing joins them");
  }
};

class PeerCopiesOfRanks : public RanksOnHost {
 protected:
  /// Runs until this rank has made some copies; calls `meanwhile` at the start.
  void run(
      std::vector<Injection> injections = {}, const std::function<void()>& meanwhile = [] {}) {
    RecordQueue records(rank(), 4096, FaultLimit::none);
    Injector injector(std::move(injections), mpi_session().place(), records);
    ProgressBoard board;
    LoadControl load;
    Environment environment{*device,       *real, records, mpi_session().place(), 5, injector,
                            "test device", board, load};
    {
      PeerCopiesWorkload workload(environment);
      ASSERT_OK(workload.prepare());
      meanwhile();
      ASSERT_OK(workload.start());
      ASSERT_OK(workload.enqueue({.index = 20}));
      const bool is_planned = workload.report().figures["planned"].get<bool>();
      EXPECT_TRUE(
          eventually([&] { return !is_planned || workload.report().figures["copies"].get<int>() >= 8; }));
      ASSERT_OK(workload.finish(false));
      report = workload.report();
    }
    for (const Record& record : records.drain())
      if (record.kind == RecordKind::fault) faults.push_back(record.body);
  }
  int before() const { return (rank() + size() - 1) % size(); }

  PartReport report;
  std::vector<Json> faults;
};

TEST_F(PeerCopiesOfRanks, EachCopiesFromTheOneBeforeIt) {
  run();
  EXPECT_TRUE(faults.empty());
  EXPECT_TRUE(report.success) << report.failure;
  EXPECT_EQ(report.figures["planned"], size() > 1);
  if (size() < 2) {
    EXPECT_EQ(report.figures["not_possible"], "there is no other rank on this host");
    EXPECT_FALSE(report.load.peer_copies.has_value());
    return;
  }
  EXPECT_EQ(report.figures["from"], before());
  EXPECT_EQ(report.work.bytes_exchanged_verified, report.figures["copies"].get<std::uint64_t>() *
                                                      report.figures["chunk_bytes"].get<std::uint64_t>());
  EXPECT_GT(report.load.peer_copies.value(), 0);
}

TEST_F(PeerCopiesOfRanks, CopiesThatMoveNothingAreFaultsOfThePair) {
  if (size() < 2) GTEST_SKIP() << "one rank has no neighbours";
  std::atomic<bool> loses = false;  // copies of whole chunks
  device = changed<Copy>(std::move(device), [&](const Copy& call, const Enqueue& enqueue) {
    constexpr std::size_t smallest_chunk = 1 << 16;
    return loses && call.bytes >= smallest_chunk ? Status() : enqueue(call);
  });
  run({}, [&] { loses = rank() == 1; });
  ASSERT_EQ(faults.empty(), rank() != 1);
  EXPECT_EQ(report.success, rank() != 1);
  if (rank() != 1) return;
  EXPECT_EQ(faults.size(), report.figures["copies"].get<std::size_t>()) << "each of them, from the first on";
  EXPECT_EQ(faults[0]["kind"], "link");
  EXPECT_EQ(faults[0]["part"], "peer-copies");
  EXPECT_EQ(faults[0]["blame"], "ambiguous");
  EXPECT_EQ(faults[0]["suspects"], Json({0, 1}));
  EXPECT_EQ(report.work.bytes_exchanged_verified, 0u);
}

TEST_F(PeerCopiesOfRanks, AFaultOnPurposeIsToldOnce) {
  if (size() < 2) GTEST_SKIP() << "one rank has no neighbours";
  run({parse_injection("collective:rank=1,step=20,peer=0,bit=5").value(),
       parse_injection("collective:rank=0,step=20,bit=5").value()});
  ASSERT_EQ(faults.size(), rank() == 1 ? 1u : 0u) << "the other one is of the collectives";
  for (const Json& fault : faults) EXPECT_EQ(fault["xor"], "0x00000020");
}

TEST_F(PeerCopiesOfRanks, WhoCannotReachAnothersMemorySaysSoAndHoldsNobodyUp) {
  if (size() < 2) GTEST_SKIP() << "one rank has no neighbours";
  if (rank() == 0) device = std::make_unique<LonelyDevice>(std::move(device));
  run();
  EXPECT_TRUE(faults.empty());
  EXPECT_TRUE(report.success);
  EXPECT_EQ(report.figures["planned"], rank() != 0);
  if (rank() != 0) return;
  EXPECT_THAT(report.figures["not_possible"].get<std::string>(), testing::HasSubstr("nothing joins them"));
}

}  // namespace
}  // namespace egt::test
