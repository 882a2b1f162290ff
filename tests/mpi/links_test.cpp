// Links between ranks, with faults in the transferred data.
#include "workload/links/links_workload.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "device/injection/forwarding_device.hpp"
#include "ranks_on_host.hpp"
#include "tests/support/corrupting_communicator.hpp"

namespace egt::test {
namespace {

using Hit = CorruptingCommunicator::Hit;
using Collective = CorruptingCommunicator::Collective;

constexpr std::uint64_t size_bytes = 100'000;
constexpr std::size_t large = 50'000;  ///< message size in bytes: only transfers of the max size

/// A large exchange that moves no data and reports no error.
class IdleCommunicator final : public CorruptingCommunicator {
 public:
  explicit IdleCommunicator(Communicator& real) : CorruptingCommunicator(real, std::vector<Hit>{}) {}
  Status exchange(std::span<const Message> sends, std::span<const Message> receives,
                  Stream& stream) override {
    const auto is_large = [](const Message& message) { return message.bytes >= large; };
    if (std::any_of(sends.begin(), sends.end(), is_large)) return {};
    if (std::any_of(receives.begin(), receives.end(), is_large)) return {};
    return CorruptingCommunicator::exchange(sends, receives, stream);
  }
};

/// In the first all-to-all, rank 0 receives a wrong first word from the last rank.
class WrongBlockCommunicator final : public CorruptingCommunicator {
 public:
  explicit WrongBlockCommunicator(Communicator& real) : CorruptingCommunicator(real, std::vector<Hit>{}) {}
  Status exchange(std::span<const Message> sends, std::span<const Message> receives,
                  Stream& stream) override {
    EGT_TRY(CorruptingCommunicator::exchange(sends, receives, stream));
    if (rank() != 0 || receives.size() != static_cast<std::size_t>(size()) || std::exchange(struck_, true))
      return {};
    as_host_stream(stream).enqueue([word = static_cast<std::uint32_t*>(receives.back().data)] {
      *word ^= 1u;
      return Status();
    });
    return {};
  }

 private:
  bool struck_ = false;
};

/// Works asynchronously like a GPU; the host is slow to enqueue small copies.
class LateHostDevice final : public ForwardingDevice {
 public:
  LateHostDevice(std::unique_ptr<Device> device, std::chrono::microseconds late)
      : ForwardingDevice(std::move(device)), info_(ForwardingDevice::info()), late_(late) {
    info_.backend = "a GPU's";
  }
  const DeviceInfo& info() const override { return info_; }

 protected:
  Status enqueue_checked(const Operation& operation, Stream& stream) override {
    if (const auto* copy = std::get_if<Copy>(&operation); copy && copy->bytes == 8)
      std::this_thread::sleep_for(late_);
    return ForwardingDevice::enqueue_checked(operation, stream);
  }

 private:
  DeviceInfo info_;
  const std::chrono::microseconds late_;
};

class LinksOfRanks : public RanksOnHost {
 protected:
  std::vector<LinkEndpoint> ends() const {
    std::vector<LinkEndpoint> all(static_cast<std::size_t>(size()));
    for (int r = 0; r < size(); ++r) {
      all[static_cast<std::size_t>(r)].rank = r;
      all[static_cast<std::size_t>(r)].hostname = all[static_cast<std::size_t>(r)].host_id = "node1";
    }
    return all;
  }

  Status drive(Workload& workload, std::int64_t trials) {
    EGT_TRY(workload.prepare());
    for (std::int64_t step = 0; step < trials; ++step) {
      StepOutcome outcome;
      EGT_TRY(workload.enqueue({.index = step}));
      EGT_TRY(workload.retire(step, outcome));
    }
    return workload.finish(false);
  }

  /// Runs all trials and keeps this rank's records and reports.
  void run(Communicator& communicator) {
    RecordQueue records(rank(), 4096, FaultLimit::none);
    Injector injector({}, mpi_session().place(), records);
    ProgressBoard board;
    LoadControl load;
    Environment environment{*device,       communicator, records, mpi_session().place(), 5, injector,
                            "test device", board,        load};
    LinksWorkload workload(environment, {.size = size_bytes, .repeats = 2, .warn_below = 0}, ends(),
                           timeout_s, [this] { return stopping(); });
    ASSERT_OK(drive(workload, workload.trials()));
    parts = workload.reports();
    for (const Record& record : records.drain())
      if (record.kind == RecordKind::fault) faults.push_back(record.body);
  }

  /// Latency of copies between the first two ranks, as known to rank 0.
  Json latency_of_copies() const {
    for (const PartReport& part : parts)
      if (part.name == "pair 0-1 by peer copies") return part.figures.at("latency_us");
    return "no such part";
  }

  const PartReport& own() const { return parts.front(); }
  bool stopping() { return asked_++ >= stop_after; }

  int stop_after = std::numeric_limits<int>::max();  ///< number of stop polls before the rank stops

  std::vector<PartReport> parts;
  std::vector<Json> faults;

 private:
  int asked_ = 0;
};

TEST_F(LinksOfRanks, AllOfThemAreMeasuredAndVerified) {
  run(*real);
  EXPECT_TRUE(faults.empty());
  EXPECT_TRUE(own().success);
  EXPECT_GT(own().work.bytes_exchanged_verified, 10 * size_bytes);
  const auto pairs = std::count_if(parts.begin(), parts.end(),
                                   [](const PartReport& part) { return part.name.starts_with("pair "); });
  EXPECT_EQ(pairs, 2 * (size() - 1 - rank()))
      << "of those in which this rank is the lower one, by two methods";
  for (const PartReport& part : parts) EXPECT_TRUE(part.success) << part.name << ": " << part.failure;
}

TEST_F(LinksOfRanks, TheHostsTimeIsNoLatency) {
  if (size() != 2) GTEST_SKIP() << "for two ranks";
  device = std::make_unique<LateHostDevice>(std::move(device), std::chrono::microseconds(100));
  std::optional<double> latency;  // min over several runs, each of which may be disturbed
  for (int attempt = 0; attempt < 4; ++attempt) {
    run(*real);
    if (rank() != 0 || !latency_of_copies().is_number()) continue;
    latency = std::min(latency.value_or(1e9), latency_of_copies().get<double>());
  }
  if (rank() != 0) return;
  ASSERT_TRUE(latency.has_value());
  EXPECT_LT(*latency, 70) << "microseconds; the host takes 150 for each copy";
}

TEST_F(LinksOfRanks, WhereTheHostIsTooLateThereIsNoLatency) {
  if (size() != 2) GTEST_SKIP() << "for two ranks";
  device = std::make_unique<LateHostDevice>(std::move(device), std::chrono::microseconds(1500));
  run(*real);
  EXPECT_TRUE(rank() != 0 || latency_of_copies().is_null()) << latency_of_copies();
}

TEST_F(LinksOfRanks, AStopOfOneRankEndsATrialOnAllOfThem) {
  stop_after = rank() == size() - 1 ? 30 : stop_after;
  run(*real);  // all trials end: no rank waits for the stopped one
  EXPECT_TRUE(faults.empty());
  const bool any_failed = std::any_of(parts.begin(), parts.end(), [](auto& part) { return !part.success; });
  EXPECT_FALSE(any_failed) << "what was not made is no failure";
  for (const PartReport& part : parts)
    EXPECT_NE(part.name, "all-reduce") << "all of them were stopped by then";
}

TEST_F(LinksOfRanks, TransfersThatMoveNothingAreSeen) {
  if (size() < 2) GTEST_SKIP() << "one rank has no pairs";
  IdleCommunicator communicator(*real);
  run(communicator);
  EXPECT_FALSE(own().success);
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults[0]["kind"], "link");
  EXPECT_EQ(faults[0]["part"], "links");
  EXPECT_EQ(faults[0]["offset"], 0);
  EXPECT_GE(faults[0]["count"], size_bytes / 4);
  EXPECT_EQ(own().figures["wrong_words"].get<std::uint64_t>() * 4,
            own().figures["bytes_verified"].get<std::uint64_t>() - own().work.bytes_exchanged_verified);
}

TEST_F(LinksOfRanks, OneWrongWordIsFoundWhereItIs) {
  if (size() < 2) GTEST_SKIP() << "one rank has no pairs";
  constexpr std::size_t word = 777;
  CorruptingCommunicator communicator(*real, Hit{.rank = size() - 1,
                                                 .collective = Collective::exchange,
                                                 .bytes_at_least = large,
                                                 .word = word,
                                                 .change = [](std::uint32_t w) { return w ^ 0x80u; },
                                                 .last_call = 0});
  run(communicator);
  ASSERT_EQ(faults.size(), rank() == size() - 1 ? 1u : 0u);
  if (rank() != size() - 1) return;
  const Json& fault = faults[0];
  EXPECT_EQ(fault["offset"], word * 4);
  EXPECT_EQ(fault["xor"], "0x00000080");
  EXPECT_EQ(fault["count"], 1);
  EXPECT_EQ(fault["rank"], rank());
  EXPECT_EQ(fault["blame"], "ambiguous");
  EXPECT_EQ(fault["suspects"], (std::vector<int>{0, rank()}));
}

TEST_F(LinksOfRanks, AWrongSumIsBlamedOnItsReceiver) {
  if (size() < 3) GTEST_SKIP() << "two ranks are no majority";
  CorruptingCommunicator communicator(*real, Hit{.rank = 1,
                                                 .collective = Collective::all_reduce,
                                                 .bytes_at_least = large,
                                                 .word = 9,
                                                 .change = [](std::uint32_t w) { return w ^ 0x80u; },
                                                 .first_call = 2,  // after the calls of the first probe
                                                 .last_call = 2});
  run(communicator);
  ASSERT_EQ(faults.size(), rank() == 0 ? 1u : 0u);
  if (rank() != 0) return;
  EXPECT_EQ(faults[0]["kind"], "collective");
  EXPECT_EQ(faults[0]["rank"], 1);
  EXPECT_EQ(faults[0]["blame"], "majority");
  EXPECT_EQ(faults[0]["detector"], "links: known-answer all-reduce");
}

TEST_F(LinksOfRanks, ABlockOfAnAllToAllNamesItsTwoRanks) {
  if (size() < 2) GTEST_SKIP() << "one rank has no peers";
  WrongBlockCommunicator communicator(*real);
  run(communicator);
  ASSERT_EQ(faults.size(), rank() == 0 ? 1u : 0u);
  if (rank() != 0) return;
  EXPECT_EQ(faults[0]["kind"], "collective");
  EXPECT_EQ(faults[0]["detector"], "links: known-answer all-to-all");
  EXPECT_EQ(faults[0]["blame"], "ambiguous");
  EXPECT_EQ(faults[0]["suspects"], (std::vector<int>{0, size() - 1}));
}

}  // namespace
}  // namespace egt::test
