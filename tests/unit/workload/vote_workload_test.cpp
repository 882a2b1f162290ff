#include "workload/vote/vote_workload.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "egt/core/injection.hpp"
#include "tests/support/changed_device.hpp"
#include "tests/support/memory_fixture.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt {
namespace {

using test::changed;
using test::Enqueue;
using test::eventually;
using test::figure;
using test::injections_of;
using test::small_host_device;
using test::World;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// `voters` whose sub-partitions all give the same answers.
std::vector<VoterAnswers> agreeing(int voters) {
  VoterAnswers one{.claims = 1, .parts = (1u << sub_partitions) - 1, .digest = {}};
  for (auto& part : one.digest)
    for (int unit = 0; unit < compute_units; ++unit) part[unit] = 1000u + static_cast<unsigned>(unit);
  return std::vector<VoterAnswers>(static_cast<std::size_t>(voters), one);
}

TEST(Dissents, AreNamedWithUnitAndSubPartition) {
  std::vector<VoterAnswers> answers = agreeing(132);
  EXPECT_THAT(dissents_of(answers), IsEmpty());
  answers[37].digest[2][3] ^= 4;
  answers[90].digest[0][8] = 0;
  for (int part = 0; part < sub_partitions; ++part) answers[90].digest[part][5] = 7;
  const std::vector<Dissent> found = dissents_of(answers);
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_THAT(found[0].voters, ElementsAre(37));
  EXPECT_THAT(found[0].units, ElementsAre(3));
  EXPECT_THAT(found[0].parts, ElementsAre(2));
  EXPECT_EQ(found[0].answers, 1u);
  EXPECT_EQ(found[0].expected ^ found[0].actual, 4u);
  EXPECT_THAT(found[1].voters, ElementsAre(90));
  EXPECT_THAT(found[1].units, ElementsAre(5, 8));
  EXPECT_THAT(found[1].parts, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(found[1].answers, 5u);
}

TEST(Dissents, ThreeVotersHaveAMajorityAndTwoHaveNone) {
  std::vector<VoterAnswers> answers = agreeing(3);
  for (VoterAnswers& one : answers) one.parts = 1;
  answers[1].digest[0][0] = 5;
  ASSERT_THAT(dissents_of(answers), SizeIs(1));
  EXPECT_THAT(dissents_of(answers)[0].voters, ElementsAre(1));
  answers[2].parts = 0;  // has not answered
  answers[1].digest[0][4] = 6;
  const std::vector<Dissent> both = dissents_of(answers);
  ASSERT_THAT(both, SizeIs(1));
  EXPECT_THAT(both[0].voters, ElementsAre(0, 1));
  EXPECT_THAT(both[0].units, ElementsAre(0, 4));
  EXPECT_EQ(both[0].answers, 2u);
  EXPECT_NE(both[0].expected, both[0].actual);
  answers[0].parts = answers[1].parts = 0;
  EXPECT_THAT(dissents_of(answers), IsEmpty());
}

/// On this host device, CPU 0 and seven more that give its answers; `change` may change a word of CPU 5's.
std::unique_ptr<Device> eight_voters(const std::function<std::optional<std::uint64_t>()>& changed_word) {
  return changed<UnitVote>(small_host_device(), [changed_word](const UnitVote& call, const Enqueue& enqueue) {
    EGT_TRY(enqueue(call));
    for (int voter = 1; voter < 8; ++voter)
      EGT_TRY(enqueue(Copy{call.answers + voter, call.answers, sizeof *call.answers}));
    if (const auto word = changed_word())
      return enqueue(FlipWords{{reinterpret_cast<std::uint32_t*>(call.answers + 5), sizeof *call.answers / 4},
                               {.first = *word, .mask = 8}});
    return Status();
  });
}

TEST(Vote, RoundsWithoutAFaultAreCounted) {
  World world(eight_voters([] { return std::nullopt; }));
  VoteWorkload vote(world.environment);
  ASSERT_TRUE(vote.prepare().ok());
  ASSERT_TRUE(vote.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(vote, "rounds") >= 2; }));
  ASSERT_TRUE(vote.finish(false).ok());
  EXPECT_THAT(world.faults(), IsEmpty());
  const PartReport report = vote.report();
  EXPECT_TRUE(report.success) << report.failure;
  EXPECT_GE(figure(vote, "voters"), 8u);
  EXPECT_EQ(figure(vote, "fewest_voters"), figure(vote, "voters"));
  EXPECT_EQ(figure(vote, "answers_compared"),
            figure(vote, "rounds") * figure(vote, "voters") * std::uint64_t{host_units});
  EXPECT_EQ(figure(vote, "answers_wrong"), 0u);
  EXPECT_LT(report.figures["time_share"].get<double>(), 0.05);
}

/// On the CPUs of this machine. `EGT_ROUNDS` sets the count.
TEST(Vote, CleanRoundsGiveNoAlarm) {
  const char* const asked = std::getenv("EGT_ROUNDS");
  const int rounds = asked ? std::atoi(asked) : 200;
  World world;
  VoteWorkload vote(world.environment);
  ASSERT_TRUE(vote.prepare().ok());
  if (figure(vote, "voters") < 2) GTEST_SKIP() << "one CPU";
  for (int round = 0; round < rounds; ++round) ASSERT_TRUE(vote.finish(false).ok());
  EXPECT_EQ(figure(vote, "rounds"), static_cast<std::uint64_t>(3 + rounds)) << "three in prepare";
  EXPECT_EQ(figure(vote, "incomplete_rounds"), 0u);
  EXPECT_EQ(figure(vote, "answers_wrong"), 0u);
  EXPECT_THAT(world.faults(), IsEmpty());
}

/// The device reaches all voters with the third call, or with none.
TEST(Vote, CallsAgainUntilAllHaveAnswered) {
  int left_out = 2, calls = 0;
  World world(changed<UnitVote>(small_host_device(), [&](const UnitVote& call, const Enqueue& enqueue) {
    EGT_TRY(enqueue(call));
    EGT_TRY(enqueue(Copy{call.answers + 1, call.answers, sizeof *call.answers}));
    return ++calls <= left_out ? enqueue(SetZero{call.answers + 1, sizeof *call.answers}) : Status();
  }));
  VoteWorkload vote(world.environment);
  left_out = 0;
  ASSERT_TRUE(vote.prepare().ok());
  left_out = 1'000'000;
  ASSERT_TRUE(vote.finish(false).ok());
  EXPECT_EQ(figure(vote, "incomplete_rounds"), 1u);
  EXPECT_EQ(figure(vote, "fewest_voters") + 1, figure(vote, "voters"));
  EXPECT_EQ(vote.report().failure, "no round has reached every multiprocessor");
  calls = 0, left_out = 2;
  ASSERT_TRUE(vote.finish(false).ok());
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(figure(vote, "rounds"), 4u);
  // Three rounds in prepare, of 16, 16 and all iterations. One of the other two has an answer less.
  EXPECT_EQ(figure(vote, "min_rounds"), 4u);
  // A single answer is not a vote.
  const std::uint64_t voters = figure(vote, "voters"), of_a_round = 32 * figure(vote, "iterations"),
                      of_one = 32 * (16 + 16) + 2 * of_a_round,
                      of_all = voters * of_one + (voters > 2 ? voters - 1 : 0) * of_a_round;
  const PartReport report = vote.report();
  EXPECT_EQ(report.figures["unit_operations"].size(), std::size_t{host_units});
  EXPECT_EQ(report.figures["unit_operations"]["special"], of_all);
  ASSERT_THAT(report.shares, SizeIs(2 * host_units));
  for (const WorkShare& one : report.shares)
    EXPECT_EQ(one.verified, static_cast<double>(one.kind == WorkKind::vote ? of_all : of_one))
        << one.precision;
  EXPECT_TRUE(vote.report().success);
  EXPECT_THAT(world.faults(), IsEmpty());
}

/// FLOP of an `mma.sync` in kernels/vote.cu, by its shape.
TEST(Vote, OperationsOfATensorCoreAreFlop) {
  const auto per_lane = [](int m, int n, int k) { return 2 * m * n * k / math::vote_lanes; };
  using enum ComputeUnit;
  EXPECT_EQ(vote_operations(tensor_bf16), per_lane(16, 8, 16));
  EXPECT_EQ(vote_operations(tensor_fp16), per_lane(16, 8, 16));
  EXPECT_EQ(vote_operations(tensor_tf32), per_lane(16, 8, 8));
  EXPECT_EQ(vote_operations(tensor_fp64), per_lane(8, 8, 4));
  EXPECT_EQ(vote_operations(tensor_int8), per_lane(16, 8, 32));
  EXPECT_EQ(vote_operations(tensor_fp8), per_lane(16, 8, 32));
  EXPECT_EQ(vote_operations(fp32), 1);
}

TEST(Vote, AFaultBeforeTheStartIsReported) {
  int asked = 0;
  World world(eight_voters([&] { return ++asked == 1 ? std::optional<std::uint64_t>(2) : std::nullopt; }));
  VoteWorkload vote(world.environment);
  ASSERT_TRUE(vote.prepare().ok());
  EXPECT_THAT(world.faults(), SizeIs(1));
}

TEST(Vote, AWrongAnswerNamesTheVoterAndTheUnit) {
  int asked = 0;
  World world(eight_voters([&]() -> std::optional<std::uint64_t> {
    constexpr std::uint64_t word_of_fp32 = 2 + 2 * static_cast<std::uint64_t>(ComputeUnit::fp32);
    return ++asked > 3 ? std::optional(word_of_fp32) : std::nullopt;
  }));
  VoteWorkload vote(world.environment);
  ASSERT_TRUE(vote.prepare().ok());
  ASSERT_TRUE(vote.enqueue({.index = 12}).ok());
  ASSERT_TRUE(vote.finish(false).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_EQ(faults[0]["kind"], "multiprocessor");
  EXPECT_EQ(faults[0]["part"], "multiprocessors");
  EXPECT_EQ(faults[0]["where"], "CPU 5: fp32");
  EXPECT_EQ(faults[0]["blame"], "certain");
  EXPECT_EQ(faults[0]["rank"], 3);
  EXPECT_EQ(faults[0]["step"], 12);
  EXPECT_THAT(faults[0]["expected"].get<std::string>(), testing::StartsWith("digest 0x"));
  EXPECT_EQ(faults[0]["xor"], "") << "digests that differ say nothing about the wrong bits";
  EXPECT_THAT(vote.report().failure, HasSubstr("1 wrong answer in the multiprocessor vote"));
}

/// The work of this machine's CPUs; two of them have no majority.
TEST(Vote, AnInjectedFaultOfAnyUnitIsFoundInItsRound) {
  for (int unit = 0; unit < host_units; ++unit) {
    World world(
        small_host_device(),
        injections_of({fmt::format("multiprocessor:rank=3,step=2,layer={},bit={}", unit + 1, 5 * unit)}));
    VoteWorkload vote(world.environment);
    ASSERT_TRUE(vote.prepare().ok());
    const std::uint64_t voters = figure(vote, "voters");
    if (voters < 2) GTEST_SKIP() << "one CPU";
    ASSERT_TRUE(vote.enqueue({.index = 2}).ok());
    ASSERT_TRUE(vote.finish(false).ok());
    std::vector<Json> faults, injected;
    for (const Record& record : world.records.drain())
      (record.kind == RecordKind::fault ? faults : injected).push_back(record.body);
    ASSERT_THAT(injected, SizeIs(1));
    const auto place = injected[0]["where"].get<std::string>();
    EXPECT_THAT(place, HasSubstr(compute_unit_names[unit]));
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0]["where"],
              voters == 2 ? fmt::format("CPU 0, 1: {} (no majority)", compute_unit_names[unit]) : place);
  }
}

TEST(Vote, AFaultLastsForOneRoundOrForever) {
  for (const auto& [lasting, expected] : {std::pair{"once", 1}, {"check", 1}, {"always", 3}}) {
    World world(
        small_host_device(),
        injections_of({fmt::format("multiprocessor:rank=3,step=0,layer=3,bit=9,lasting={}", lasting)}));
    VoteWorkload vote(world.environment);
    ASSERT_TRUE(vote.prepare().ok());
    const std::uint64_t voters = figure(vote, "voters");
    if (voters < 2) GTEST_SKIP() << "one CPU";
    ASSERT_TRUE(vote.enqueue({.index = 0}).ok());
    for (int round = 0; round < 3; ++round) ASSERT_TRUE(vote.finish(false).ok());
    EXPECT_EQ(figure(vote, "answers_wrong"), static_cast<std::uint64_t>(expected));
  }
}

TEST(Vote, ARoundThatAStopInterruptsIsJudged) {
  World world(small_host_device(), injections_of({"multiprocessor:rank=3,step=0,layer=2,bit=3"}));
  VoteWorkload vote(world.environment);
  ASSERT_TRUE(vote.prepare().ok());
  if (figure(vote, "voters") < 2) GTEST_SKIP() << "one CPU";
  world.device->hold(true);
  ASSERT_TRUE(vote.enqueue({.index = 0}).ok());
  ASSERT_TRUE(vote.start().ok());
  ASSERT_TRUE(eventually([&] { return !world.injector.waits(InjectionKind::multiprocessor, 0); }));
  vote.stop_background();
  world.device->hold(false);
  ASSERT_TRUE(vote.finish(false).ok());
  EXPECT_EQ(figure(vote, "answers_wrong"), 1u);
  EXPECT_EQ(figure(vote, "rounds"), 5u) << "three in prepare, the interrupted one, and the last";
}

TEST(Vote, DoesNotRunAloneOrWithoutAnswers) {
  World silent(
      changed<UnitVote>(small_host_device(), [](const UnitVote&, const Enqueue&) { return Status(); }));
  VoteWorkload unanswered(silent.environment);
  EXPECT_THAT(unanswered.prepare().what(), HasSubstr("no answer of any multiprocessor"));
  World single(changed<UnitVote>(small_host_device(), [](const UnitVote& call, const Enqueue& enqueue) {
    EGT_TRY(enqueue(call));
    return enqueue(SetZero{call.answers + 1, (max_unit_voters - 1) * sizeof *call.answers});
  }));
  VoteWorkload alone(single.environment);
  ASSERT_TRUE(alone.prepare().ok());
  ASSERT_TRUE(alone.start().ok());
  ASSERT_TRUE(alone.finish(false).ok());
  EXPECT_TRUE(alone.report().success);
  EXPECT_EQ(alone.report().figures["unit_operations"]["fp32"], 0);
  EXPECT_EQ(alone.report().figures["not_run"][0]["reason"], "a single CPU has nothing to be compared with");
}

}  // namespace
}  // namespace egt
