#include "workload/memory/memory_suite.hpp"

#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/memory_simulator.hpp"

namespace egt {
namespace {

using test::Bit;
using test::CellFault;
using test::Effect;
using test::SimulatedMemory;
using test::SimulatedRegion;
using test::Waves;
using test::wrong_words;

constexpr int instances = 400;
using Random = std::mt19937_64;
using MakeFault = std::function<std::unique_ptr<CellFault>(Random&, const SimulatedRegion&)>;

/// Relative location of the aggressor cell, seen from the victim.
enum class Aggressor { lower, higher, same_word, other_wave, same_wave, other_block };
constexpr std::size_t wave_words = 16;

std::size_t below(Random& random, std::size_t limit) {
  return static_cast<std::size_t>(random() % limit);
}

bool coin(Random& random) {
  return random() & 1;
}

Bit any_bit(Random& random, const SimulatedRegion& region) {
  return {below(random, region.words()), static_cast<unsigned>(random() % 32)};
}

struct Pair {
  Bit aggressor, victim;
};

bool fits(const Pair& pair, Aggressor where, const SimulatedRegion& region) {
  const std::size_t a = pair.aggressor.word, v = pair.victim.word;
  const bool one_block = a / region.block_words == v / region.block_words;
  switch (where) {
    case Aggressor::lower:
      return one_block && a < v;
    case Aggressor::higher:
      return one_block && a > v;
    case Aggressor::same_word:
      return a == v && pair.aggressor.bit != pair.victim.bit;
    case Aggressor::other_wave:
      return one_block && a / wave_words != v / wave_words;
    case Aggressor::same_wave:
      return a != v && a / wave_words == v / wave_words;
    case Aggressor::other_block:
      return !one_block;
  }
  return false;
}

Pair any_pair(Random& random, const SimulatedRegion& region, Aggressor where) {
  for (;;) {
    Pair pair{any_bit(random, region), any_bit(random, region)};
    if (where == Aggressor::same_word) pair.aggressor.word = pair.victim.word;
    if (fits(pair, where, region)) return pair;
  }
}

MakeFault stuck_at() {
  return [](Random& random, const SimulatedRegion& region) {
    return std::make_unique<test::StuckAt>(any_bit(random, region), coin(random));
  };
}

MakeFault transition() {
  return [](Random& random, const SimulatedRegion& region) {
    return std::make_unique<test::Transition>(any_bit(random, region), coin(random));
  };
}

MakeFault inversion(Aggressor where) {
  return [where](Random& random, const SimulatedRegion& region) {
    const Pair pair = any_pair(random, region, where);
    return std::make_unique<test::Coupling>(pair.aggressor, pair.victim, coin(random), Effect::inverts);
  };
}

MakeFault idempotent(Aggressor where) {
  return [where](Random& random, const SimulatedRegion& region) {
    const Pair pair = any_pair(random, region, where);
    const Effect effect = coin(random) ? Effect::forces_one : Effect::forces_zero;
    return std::make_unique<test::Coupling>(pair.aggressor, pair.victim, coin(random), effect);
  };
}

MakeFault state(Aggressor where) {
  return [where](Random& random, const SimulatedRegion& region) {
    const Pair pair = any_pair(random, region, where);
    return std::make_unique<test::StateCoupling>(pair.aggressor, pair.victim, coin(random), coin(random));
  };
}

MakeFault no_cell() {
  return [](Random& random, const SimulatedRegion& region) {
    return std::make_unique<test::NoCell>(below(random, region.words()), coin(random),
                                          static_cast<std::uint32_t>(random()));
  };
}

MakeFault alias(Aggressor where) {
  return [where](Random& random, const SimulatedRegion& region) {
    const Pair pair = any_pair(random, region, where);
    return std::make_unique<test::Alias>(pair.aggressor.word, pair.victim.word);
  };
}

MakeFault two_cells(Aggressor where) {
  return [where](Random& random, const SimulatedRegion& region) {
    const Pair pair = any_pair(random, region, where);
    return std::make_unique<test::TwoCells>(pair.aggressor.word, pair.victim.word, coin(random));
  };
}

/// A bit that retains one of its values for `from` to `to` reads and writes.
MakeFault retention(std::uint64_t from, std::uint64_t to) {
  return [from, to](Random& random, const SimulatedRegion& region) {
    return std::make_unique<test::Retention>(any_bit(random, region), coin(random),
                                             from + random() % (to - from));
  };
}

struct Setting {
  std::span<const MemoryTest> suite = memory_suite();
  SimulatedRegion region = {};
  std::uint64_t rounds = 1;
  std::size_t wave = 1;
  int count = instances;
};

/// The number of instances that no pass detected.
int missed(const MakeFault& make, const Setting& setting = {}) {
  int missed = 0;
  for (int i = 0; i < setting.count; ++i) {
    Random random(static_cast<std::uint64_t>(i) * 7919 + 1);
    const std::unique_ptr<CellFault> fault = make(random, setting.region);
    Random order(random());
    const Waves waves{setting.wave, setting.wave > 1 ? &order : nullptr};
    SimulatedMemory memory(setting.region, *fault, random(), waves);
    missed += wrong_words(memory, setting.region, setting.suite, setting.rounds, random()) == 0;
  }
  return missed;
}

const MemoryTest& named(std::string_view name) {
  for (const MemoryTest& test : memory_suite())
    if (test.name == name) return test;
  throw std::runtime_error("no such test of memory");
}

// A suite of one or two tests starts in the middle of its first round, so it gets more rounds.
constexpr SimulatedRegion one_block{.blocks = 1, .block_words = 64};
constexpr Aggressor in_block[] = {Aggressor::lower, Aggressor::higher, Aggressor::same_word};

TEST(MemorySuite, GivesNoAlarmOnGoodMemory) {
  CellFault nothing;
  const SimulatedRegion region{.blocks = 19, .block_words = 67};
  Random order(5);
  SimulatedMemory memory(region, nothing, 1, {.words = wave_words, .order = &order});
  EXPECT_EQ(wrong_words(memory, region, memory_suite(), 40, 2), 0u);
}

TEST(MemorySuite, FindsEveryStuckAndTransitionFaultInOneRound) {
  EXPECT_EQ(missed(stuck_at()), 0);
  EXPECT_EQ(missed(transition()), 0);
}

TEST(MemorySuite, FindsEveryCouplingFaultInOneRound) {
  for (const Aggressor where : in_block) {
    EXPECT_EQ(missed(inversion(where)), 0) << static_cast<int>(where);
    EXPECT_EQ(missed(idempotent(where)), 0) << static_cast<int>(where);
    EXPECT_EQ(missed(state(where)), 0) << static_cast<int>(where);
  }
}

TEST(MemorySuite, FindsEveryAddressFaultInOneRound) {
  EXPECT_EQ(missed(no_cell()), 0);
  for (const Aggressor where : {Aggressor::lower, Aggressor::higher, Aggressor::other_block}) {
    EXPECT_EQ(missed(alias(where)), 0) << static_cast<int>(where);
    EXPECT_EQ(missed(two_cells(where)), 0) << static_cast<int>(where);
  }
}

TEST(MemorySuite, FindsEveryBitThatDoesNotKeepAValueOverASweep) {
  const SimulatedRegion region;
  // The shortest sweep: all blocks except one are read, read and written.
  const std::uint64_t sweep = 3 * (region.words() - region.block_words);
  EXPECT_EQ(missed(retention(1, sweep)), 0);
}

/// Reads and writes of all blocks in one round.
std::uint64_t round_time(const SimulatedRegion& region) {
  CellFault nothing;
  SimulatedMemory memory(region, nothing, 1);
  wrong_words(memory, region, memory_suite(), 10, 1);
  return memory.now() / 10;
}

TEST(MemorySuite, FindsEveryBitThatDoesNotKeepAValueOverARound) {
  const SimulatedRegion region{.blocks = 20, .block_words = 8};
  const std::uint64_t round = round_time(region);
  Setting setting{.region = region, .rounds = 2 * blocks_a_hold + 1, .count = 24};
  const MakeFault fault = retention(round / 2, round * 8 / 10);
  EXPECT_EQ(missed(fault, setting), 0);
  // Only the retention test detects them.
  std::vector<MemoryTest> without(memory_suite().begin(), memory_suite().end());
  for (MemoryTest& test : without) test.hold = false;
  setting.suite = without;
  EXPECT_GT(missed(fault, setting), 18);
}

// The effect of one block's work on an idle one depends on random patterns: a few rounds cover all cases.
TEST(MemorySuite, FindsEveryCouplingBetweenBlocksInSomeRounds) {
  const Setting setting{.rounds = 12};
  EXPECT_EQ(missed(inversion(Aggressor::other_block), setting), 0);
  EXPECT_EQ(missed(idempotent(Aggressor::other_block), setting), 0);
  EXPECT_EQ(missed(state(Aggressor::other_block), setting), 0);
}

TEST(MemorySuite, FindsEveryCouplingBetweenTheWavesOfADeviceInOneRound) {
  const Setting setting{.wave = wave_words};
  EXPECT_EQ(missed(inversion(Aggressor::other_wave), setting), 0);
  EXPECT_EQ(missed(idempotent(Aggressor::other_wave), setting), 0);
  EXPECT_EQ(missed(state(Aggressor::other_wave), setting), 0);
}

// The order within a wave is undefined, so detection needs the random patterns of some rounds.
TEST(MemorySuite, FindsEveryCouplingWithinAWaveInSomeRounds) {
  const Setting setting{.rounds = 12, .wave = wave_words};
  EXPECT_EQ(missed(inversion(Aggressor::same_wave), setting), 0);
  EXPECT_EQ(missed(idempotent(Aggressor::same_wave), setting), 0);
  EXPECT_EQ(missed(state(Aggressor::same_wave), setting), 0);
}

TEST(MemorySuite, MarchCMinusAloneFindsWhatItIsKnownToFind) {
  const MemoryTest march[] = {named("March C-")};
  const Setting setting{.suite = march, .region = one_block, .rounds = 3};
  EXPECT_EQ(missed(stuck_at(), setting), 0);
  EXPECT_EQ(missed(transition(), setting), 0);
  for (const Aggressor where : {Aggressor::lower, Aggressor::higher}) {
    EXPECT_EQ(missed(inversion(where), setting), 0) << static_cast<int>(where);
    EXPECT_EQ(missed(idempotent(where), setting), 0) << static_cast<int>(where);
    EXPECT_EQ(missed(state(where), setting), 0) << static_cast<int>(where);
    EXPECT_EQ(missed(alias(where), setting), 0) << static_cast<int>(where);
  }
}

TEST(MemorySuite, AMarchWithoutItsDescendingElementsMissesFaults) {
  std::vector<MemoryPass> passes(named("March C-").passes.begin(), named("March C-").passes.end());
  for (MemoryPass& pass : passes) pass.direction = Direction::ascending;
  const MemoryTest march[] = {{.name = "ascending only", .passes = passes}};
  const Setting setting{.suite = march, .region = one_block, .rounds = 3};
  EXPECT_GT(missed(idempotent(Aggressor::lower), setting) + missed(idempotent(Aggressor::higher), setting),
            0);
}

TEST(MemorySuite, DataBackgroundsFindWhatMarchCMinusMissesWithinAWord) {
  const MemoryTest march[] = {named("March C-")};
  const MemoryTest both[] = {named("March C-"), named("data backgrounds")};
  Setting setting{.suite = march, .region = one_block, .rounds = 3};
  EXPECT_GT(missed(idempotent(Aggressor::same_word), setting), 0);
  setting.suite = both;
  EXPECT_EQ(missed(inversion(Aggressor::same_word), setting), 0);
  EXPECT_EQ(missed(idempotent(Aggressor::same_word), setting), 0);
  EXPECT_EQ(missed(state(Aggressor::same_word), setting), 0);
}

TEST(MemorySuite, HasEveryTestThatIsPromised) {
  std::set<PatternKind> kinds;
  for (const MemoryTest& test : memory_suite()) {
    EXPECT_FALSE(test.passes.empty()) << test.name;
    for (const MemoryPass& pass : test.passes) kinds.insert(pass.kind);
  }
  const std::set<PatternKind> promised = {
      PatternKind::random,         PatternKind::random_inverse, PatternKind::finite,
      PatternKind::finite_inverse, PatternKind::address,        PatternKind::address_inverse,
      PatternKind::walking_ones,   PatternKind::walking_zeros,  PatternKind::checkerboard,
      PatternKind::solid,          PatternKind::modulo_20};
  EXPECT_EQ(kinds, promised);
  for (const char* name : {"March C-", "data backgrounds", "moving inversions", "modulo-20", "hold"})
    EXPECT_STREQ(named(name).name, name);
}

/// Runs one block pass after the other, without memory.
void go_through_test(BlockCourse& course) {
  if (!course.held())
    for (const MemoryPass& pass : course.test().passes) course.wrote(pass);
  course.leave();
}

TEST(BlockCourse, TakesABlockThroughAllTestsInTurn) {
  BlockCourse course(memory_suite(), 1, 64, 5);
  EXPECT_EQ(course.pattern().kind, PatternKind::finite) << "an operand from the first visit on";
  EXPECT_EQ(course.generation(), 0u);
  for (std::size_t visit = 1; visit <= 2 * memory_suite().size(); ++visit) {
    EXPECT_EQ(course.test_index(), visit % memory_suite().size());
    EXPECT_EQ(course.round(), visit / memory_suite().size());
    go_through_test(course);
  }
}

TEST(BlockCourse, EveryPhaseOfAPatternComes) {
  BlockCourse course(memory_suite(), 1, 64, 5);
  std::set<std::uint32_t> walking, modulo;
  while (course.round() < 36) {
    if (!course.held())
      for (const MemoryPass& pass : course.test().passes) {
        course.wrote(pass);
        if (pass.kind == PatternKind::walking_ones) walking.insert(course.pattern().parameter);
        if (pass.kind == PatternKind::modulo_20) modulo.insert(course.pattern().parameter);
      }
    course.leave();
  }
  EXPECT_EQ(walking.size(), 32u);
  EXPECT_EQ(modulo.size(), 20u);
  EXPECT_EQ(*modulo.rbegin(), 19u);
}

TEST(BlockCourse, AnInverseIsTheInverseOfThePassBefore) {
  BlockCourse course(memory_suite(), 2, 64, 5);
  int inverses = 0;
  while (course.round() < 2) {
    for (const MemoryPass& pass : course.test().passes) {
      const PatternFunction before(course.pattern()), after(course.next(pass));
      if (pass.kind == PatternKind::finite_inverse || pass.kind == PatternKind::address_inverse ||
          pass.kind == PatternKind::walking_zeros || (pass.kind == PatternKind::random_inverse) ||
          pass.inverse_seed || (pass.kind == PatternKind::checkerboard && pass.parameter == 1)) {
        ++inverses;
        for (std::uint64_t i = 0; i < 100; ++i) ASSERT_EQ(before(i), ~after(i)) << course.test().name;
      }
      course.wrote(pass);
    }
    course.leave();
  }
  EXPECT_GE(inverses, 16);
}

TEST(BlockCourse, OneBlockInSixteenIsHeldForARoundOnceWithAPatternAndOnceWithItsInverse) {
  constexpr std::uint64_t blocks = 40;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    BlockCourse course(memory_suite(), block, blocks, 5 + block);
    std::vector<Pattern> held;
    std::size_t left_out = 0;
    while (course.round() < 2 * blocks_a_hold + 1) {
      if (course.held() && course.test_index() == 0) held.push_back(course.pattern());
      left_out += course.held();
      go_through_test(course);
    }
    ASSERT_EQ(held.size(), 2u) << block;
    EXPECT_EQ(left_out, 2 * (memory_suite().size() - 1)) << "all tests but the one that ends the hold";
    const PatternFunction first(held[0]), second(held[1]);
    for (std::uint64_t i = 0; i < 100; ++i) ASSERT_EQ(first(i), ~second(i));
  }
}

TEST(BlockCourse, ASingleBlockIsNeverHeld) {
  BlockCourse course(memory_suite(), 0, 1, 5);
  while (course.round() < 20) {
    ASSERT_FALSE(course.held());
    go_through_test(course);
  }
}

TEST(MemorySuite, PatternsHaveNames) {
  EXPECT_EQ(describe({.kind = PatternKind::solid, .parameter = 0x55555555u}), "solid 0x55555555");
  EXPECT_EQ(describe({.kind = PatternKind::modulo_20, .parameter = 7}), "modulo_20 7");
  EXPECT_EQ(describe({.kind = PatternKind::finite}), "finite");
}

}  // namespace
}  // namespace egt
