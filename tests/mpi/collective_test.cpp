// Known-answer collectives with faults in sent and received data.
#include "workload/collective/collective_workload.hpp"

#include "ranks_on_host.hpp"
#include "tests/support/changed_device.hpp"
#include "tests/support/corrupting_communicator.hpp"

namespace egt::test {
namespace {

using Hit = CorruptingCommunicator::Hit;
using Hits = std::vector<Hit>;
using Collective = CorruptingCommunicator::Collective;

constexpr std::uint64_t elements = 20011;
constexpr std::int64_t every = 2, lag = 2, steps = 8, rounds = steps / every;
/// Less than a slice of the data, but more than the gathered reports (for up to 5 ranks).
constexpr std::size_t data_bytes = 12000;
constexpr Collective all_collectives[] = {Collective::all_reduce, Collective::broadcast,
                                          Collective::reduce_scatter, Collective::all_gather};

std::uint32_t flip_bit_7(std::uint32_t word) {
  return word ^ 0x80u;
}
/// Sets the contribution of a rank's own field to 1, or to 2 if it was 1.
std::function<std::uint32_t(std::uint32_t)> other_contribution(int field) {
  return [field](std::uint32_t word) {
    const std::uint32_t one = float_bits(static_cast<float>(1u << 6 * field));
    return word == one ? float_bits(static_cast<float>(2u << 6 * field)) : one;
  };
}

/// `layer` 0: chosen automatically.
Injection injection_of(int rank, std::int64_t step, int layer) {
  Injection injection;
  injection.kind = InjectionKind::collective;
  injection.rank = rank;
  injection.step = step;
  if (layer > 0) injection.layer = layer;
  return injection;
}

class Collectives : public RanksOnHost {
 protected:
  std::uint64_t slice() const { return elements / static_cast<std::uint64_t>(size()) / 64 * 64; }

  Status drive(Workload& workload, std::int64_t number_of_steps) {
    EGT_TRY(workload.prepare());
    for (std::int64_t s = 0; s < number_of_steps + lag; ++s) {
      StepOutcome outcome;
      if (s < number_of_steps) EGT_TRY(workload.enqueue({.index = s}));
      if (s >= lag) EGT_TRY(workload.retire(s - lag, outcome));
    }
    return workload.finish(false);
  }

  /// Runs the workload with these faults and keeps this rank's reports.
  void run(const Hits& hits, const std::vector<Injection>& injections = {},
           std::int64_t number_of_steps = steps) {
    CorruptingCommunicator communicator(*real, hits);
    RecordQueue records(rank(), 4096, FaultLimit::none);
    Injector injector(injections, mpi_session().place(), records);
    ProgressBoard board;
    LoadControl load;
    Environment environment{*device,       communicator, records, mpi_session().place(), 5, injector,
                            "test device", board,        load};
    auto stream = std::move(device->create_stream(StreamPriority::normal).value());
    CollectiveWorkload workload(
        environment, {.every = every, .elements = elements}, [&]() -> Stream& { return *stream; },
        [] { return 0.0; }, [this] { return answers; });
    ASSERT_OK(drive(workload, number_of_steps));
    part = workload.report();
    faults.clear();
    struck.clear();
    for (const Record& record : records.drain()) {
      if (record.kind == RecordKind::fault) faults.push_back(record.body);
      if (record.kind == RecordKind::injection) struck.push_back(record.body);
    }
  }

  /// Rank 0 reported one fault, and no other rank reported any.
  void expect_one(Collective collective, const Json& blamed, const char* blame, std::uint64_t element) {
    ASSERT_EQ(faults.size(), rank() == 0 ? 1u : 0u);
    if (rank() != 0) return;
    const Json& fault = faults[0];
    EXPECT_EQ(fault.at("detector"),
              std::string("known-answer ") + to_string(static_cast<CollectiveKind>(collective)));
    EXPECT_EQ(fault.at("rank"), blamed) << fault.dump();
    EXPECT_EQ(fault.at("blame"), blame) << fault.dump();
    EXPECT_EQ(fault.at("offset"), element * 4) << fault.dump();
    EXPECT_EQ(fault.at("kind"), "collective");
    if (!blamed.is_null()) {
      EXPECT_EQ(fault.at("hostname"), mpi_session().place().hostname);
    }
  }

  PartReport part;
  std::vector<Json> faults, struck;
  std::vector<OperandAnswer> answers;  ///< of this rank's memory-resident GEMMs
};

TEST_F(Collectives, RanksCompareWhatTheirProductsOverMemoryGave) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const auto answer = [](std::uint64_t name, std::uint64_t digest) {
    return OperandAnswer{.name = name, .precision = 4, .rows = 64, .pairs = 2, .digest = {digest, 1}};
  };
  answers = {answer(1, 10), answer(2, 20), answer(3 + static_cast<std::uint64_t>(rank()), 30)};
  run({});
  EXPECT_TRUE(faults.empty());
  EXPECT_EQ(part.figures.at("operands_compared"), 2) << "each once, though every round brings it again";
  if (rank() == 1) answers[1].digest.a = 21;
  run({});
  EXPECT_EQ(faults.size(), rank() == (size() > 2 ? 1 : 0) ? 1u : 0u)
      << "told once, by the rank that is wrong";
  for (const Json& fault : faults) {
    EXPECT_EQ(fault.at("kind"), "gemm");
    EXPECT_EQ(fault.at("detector"), "operand digest");
    EXPECT_TRUE(fault.at("where").get<std::string>().starts_with("bf16 products of 64 x 64, operand 2"));
    EXPECT_EQ(fault.at("blame"), size() > 2 ? "majority" : "ambiguous");
    EXPECT_EQ(fault.at("rank"), size() > 2 ? Json(1) : Json(nullptr));
  }
}

TEST_F(Collectives, CleanRoundsAreCountedElementByElement) {
  run({});
  EXPECT_TRUE(faults.empty());
  EXPECT_TRUE(part.success);
  const std::uint64_t a_round = 2 * elements + slice() + slice() * static_cast<std::uint64_t>(size());
  EXPECT_EQ(part.work.collective_elements_checked, size() > 1 ? rounds * a_round : 0u);
  for (const char* figure : {"all_reduce_bus_gb_per_s", "broadcast_bus_gb_per_s",
                             "reduce_scatter_bus_gb_per_s", "all_gather_bus_gb_per_s"})
    EXPECT_EQ(part.figures.at(figure).is_null(), size() == 1) << figure;
}

TEST_F(Collectives, CleanRoundsGiveNoAlarm) {
  run({}, {}, (size() == 2 ? 1000 : 100) * every);
  EXPECT_TRUE(faults.empty());
  EXPECT_TRUE(part.success);
}

TEST_F(Collectives, AWrongReceiverIsBlamedOnceAndItsRoundsAreCounted) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  for (int victim = 0; victim < size(); ++victim)
    for (const Collective collective : all_collectives) {
      run({{.rank = victim,
            .collective = collective,
            .bytes_at_least = data_bytes,
            .word = 77,
            .change = flip_bit_7}});
      expect_one(collective, victim, "majority", 77);
      EXPECT_EQ(part.success, rank() != victim);
      EXPECT_EQ(part.figures.at("mismatches"), rank() == victim ? rounds : 0);
      EXPECT_EQ(part.figures.at("wrong_rounds"), rank() == victim ? rounds : 0);
    }
}

TEST_F(Collectives, AfterACleanRoundItIsANewIncident) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const Hit hit{.rank = 1, .bytes_at_least = data_bytes, .change = flip_bit_7, .last_call = 0};
  Hit again = hit;
  again.first_call = again.last_call = 2;
  run({hit, again});
  EXPECT_EQ(faults.size(), rank() == 0 ? 2u : 0u);
}

TEST_F(Collectives, AWrongSourceIsBlamed) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  for (int victim = 0; victim < size(); ++victim) {
    const CollectiveRound first{.number = 0, .size = size()};
    if (!first.contributes(victim)) continue;
    Hit hit{.rank = victim, .sent = true, .bytes_at_least = data_bytes, .word = 77, .last_call = 0};
    hit.change = other_contribution(first.field_of(victim));
    run({hit});
    expect_one(Collective::all_reduce, victim, "majority", 77);
    EXPECT_FALSE(part.success) << "all ranks received it";
    hit.collective = Collective::reduce_scatter;
    run({hit});
    expect_one(Collective::reduce_scatter, victim, "certain", 77);
    hit.collective = Collective::all_gather;
    run({hit});
    expect_one(Collective::all_gather, victim, "certain", static_cast<std::uint64_t>(victim) * slice() + 77);
  }
  run({{.rank = 0,
        .collective = Collective::broadcast,
        .sent = true,
        .bytes_at_least = data_bytes,
        .word = 77,
        .change = flip_bit_7,
        .last_call = 0}});
  expect_one(Collective::broadcast, 0, "certain", 77);
}

TEST_F(Collectives, WrongOnAllRanksInDifferentWaysIsAmbiguous) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    Hits hits;
    for (int one = 0; one < size(); ++one)
      hits.push_back({.rank = one,
                      .collective = collective,
                      .bytes_at_least = data_bytes,
                      .word = 10 + static_cast<std::size_t>(one),
                      .change = flip_bit_7});
    run(hits);
    expect_one(collective, nullptr, "ambiguous", 10);
    if (rank() == 0) {
      EXPECT_EQ(faults[0].at("suspects").size(), static_cast<std::size_t>(size()));
    }
  }
}

/// After some working calls, one collective becomes a no-op.
class IdleCommunicator : public CorruptingCommunicator {
 public:
  IdleCommunicator(Communicator& real, Collective idle) : CorruptingCommunicator(real, Hits{}), idle_(idle) {}
  Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) override {
    if (is_idle(Collective::all_reduce)) return {};
    return CorruptingCommunicator::all_reduce(data, count, type, stream);
  }
  Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) override {
    if (is_idle(Collective::broadcast)) return {};
    return CorruptingCommunicator::broadcast(data, bytes, root, stream);
  }
  Status reduce_scatter(const void* send, void* recv, std::size_t count, ElementType type,
                        Stream& stream) override {
    if (is_idle(Collective::reduce_scatter)) return {};
    return CorruptingCommunicator::reduce_scatter(send, recv, count, type, stream);
  }
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override {
    if (is_idle(Collective::all_gather)) return {};
    return CorruptingCommunicator::all_gather(send, recv, bytes, stream);
  }

 private:
  bool is_idle(Collective collective) { return collective == idle_ && calls_++ >= working_calls; }

  static constexpr int working_calls = 2;
  const Collective idle_;
  int calls_ = 0;
};

TEST_F(Collectives, ACollectiveThatDoesNothingIsSeen) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  for (const Collective collective : all_collectives) {
    IdleCommunicator communicator(*real, collective);
    RecordQueue records(rank(), 4096, FaultLimit::none);
    Injector injector({}, mpi_session().place(), records);
    ProgressBoard board;
    LoadControl load;
    Environment environment{*device,       communicator, records, mpi_session().place(), 5, injector,
                            "test device", board,        load};
    auto stream = std::move(device->create_stream(StreamPriority::normal).value());
    CollectiveWorkload workload(
        environment, {.every = every, .elements = elements}, [&]() -> Stream& { return *stream; },
        [] { return 0.0; }, [] { return std::vector<OperandAnswer>(); });
    ASSERT_OK(drive(workload, steps));
    std::size_t reported = 0;
    for (const Record& record : records.drain()) reported += record.kind == RecordKind::fault;
    EXPECT_EQ(reported > 0, rank() == 0 || collective == Collective::all_gather)  // of the reports, too
        << to_string(static_cast<CollectiveKind>(collective));
  }
}

TEST_F(Collectives, ALostCopyOfTheReportsIsReportedByItsRank) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  constexpr int of_second_round = 4;  // each round copies its introduction and its reports
  const int skipped = rank() == size() - 1 ? of_second_round : 0;
  device = skips_a_copy(std::move(device), skipped);
  run({});
  ASSERT_EQ(faults.size(), rank() == size() - 1 ? 1u : 0u);
  EXPECT_EQ(part.success, faults.empty());
  if (faults.empty()) return;
  EXPECT_EQ(faults[0].at("blame"), "ambiguous");
  EXPECT_EQ(faults[0].at("step"), 3);
}

TEST_F(Collectives, AnInjectionIsFoundInItsRoundAndBlamedOnItsRank) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  for (int victim = 0; victim < size(); ++victim)
    for (int layer = 0; layer <= 5; ++layer) {
      run({}, {injection_of(victim, 4, layer)});
      ASSERT_EQ(struck.size(), rank() == victim ? 1u : 0u);
      ASSERT_EQ(faults.size(), rank() == 0 ? 1u : 0u);
      if (rank() == victim) {
        EXPECT_GE(struck[0].at("struck_step"), 4);
      }
      if (rank() != 0) continue;
      EXPECT_EQ(faults[0].at("rank"), victim) << faults[0].dump();
      if (layer != 5) {
        EXPECT_EQ(faults[0].at("step"), 5);
      }
      if (victim == 0) {
        EXPECT_EQ(faults[0].at("step"), struck[0].value("struck_step", 0));
        EXPECT_EQ(faults[0].at("offset"), struck[0].at("first_word").get<std::uint64_t>() * 4);
      }
    }
}

TEST_F(Collectives, InjectionsOfManyWordsAreBlamedToo) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  for (int layer = 1; layer <= 5; ++layer) {
    Injection injection = injection_of(1, 0, layer);
    injection.count = 20;
    injection.stride = 13;
    run({}, {injection});
    ASSERT_EQ(faults.size(), rank() == 0 ? 1u : 0u);
    if (rank() != 0) continue;
    EXPECT_EQ(faults[0].at("rank"), 1) << faults[0].dump();
    EXPECT_NE(faults[0].at("blame"), "ambiguous") << faults[0].dump();
    if (layer < 5) {
      EXPECT_EQ(faults[0].at("count"), 20);
    }
  }
}

TEST_F(Collectives, WhatIsDueAtTheEndStillStrikes) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  // The last round of the steps is at step 7; that of finish is at the last step, 8.
  run({}, {injection_of(1, 8, 5), injection_of(0, 1000, 5)}, 9);
  EXPECT_EQ(struck.size(), rank() == 1 ? 1u : 0u) << "what is due later does not";
  EXPECT_EQ(faults.size(), rank() == 0 ? 1u : 0u);
  EXPECT_GE(part.figures.at("rounds"), rounds + 1);
}

}  // namespace
}  // namespace egt::test
