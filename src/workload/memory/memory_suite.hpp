#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "egt/core/pattern.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// One pass over a block, at the cost of one read and one write: what the pass before put there is verified,
/// word by word in `direction`, and becomes this pass's pattern. Written (r old, w new) in the notation of
/// March tests.
struct MemoryPass {
  /// Where a random pattern's seed comes from.
  enum class Seed {
    fresh,  ///< a new one: nothing stale can look right
    same,   ///< that of the pass before: this is its inverse, or it again
    given,  ///< that of BlockCourse::give_seed
    hold,   ///< one for both visits that hold the block: the second holds the inverse of the first
  };

  PatternKind kind = PatternKind::random;
  Direction direction = Direction::ascending;
  std::uint32_t parameter = 0;  ///< of the pattern, in the first round
  std::uint32_t advance = 0;    ///< added to it with every round that the block is not held ..
  std::uint32_t period = 1;     ///< .. modulo this, where `advance` is not 0
  Seed seed = Seed::same;
  bool inverse_seed = false;  ///< the complement of the seed: the inverse of modulo_20
};

/// What is done to a block in one visit. The pattern of the last pass rests there until the next visit, at
/// least one whole sweep over all other blocks later, and is then verified before anything else.
struct MemoryTest {
  const char* name = "";
  std::span<const MemoryPass> passes;
  bool hold = false;  ///< where the block's turn has come, it then rests for a whole round
};

/// All tests, in the order in which every block goes through them. A round finds every stuck-at, transition,
/// coupling and address fault, between words and within one, as well as bits that do not keep either value
/// over a sweep; two holds later, over a round.
std::span<const MemoryTest> memory_suite();

/// One block out of so many is held in each round.
constexpr std::uint64_t blocks_a_hold = 16;

/// Where one block is in the suite, and so what it holds. Its first pattern is that of the first test's last
/// pass, which is put there by a plain fill. A pure function of its arguments and the calls made; for one
/// thread at a time.
class BlockCourse {
 public:
  /// `seed`: another for every block, rank and run. `suite` outlives it and has at least one test.
  BlockCourse(std::span<const MemoryTest> suite, std::uint64_t block, std::uint64_t blocks,
              std::uint64_t seed);

  /// What the block holds once all that was enqueued is done.
  const Pattern& pattern() const { return pattern_; }
  /// How often it was rewritten since the first fill.
  std::uint64_t generation() const { return generation_; }
  /// How often it went through the whole suite.
  std::uint64_t round() const { return round_; }
  std::size_t test_index() const { return test_; }
  /// Name of the test whose pass wrote the pattern.
  const char* written_by() const { return written_by_; }
  const MemoryTest& test() const { return suite_[test_]; }
  /// Is it to be left alone in this visit?
  bool held() const { return held_ && !test().hold; }

  void give_seed(std::uint64_t seed) { given_seed_ = seed; }
  /// The pattern that `pass` of this visit's test writes.
  Pattern next(const MemoryPass& pass) const;
  /// It was enqueued.
  void wrote(const MemoryPass& pass);
  /// The visit is over, or was left out because the block is held.
  void leave();

 private:
  std::uint64_t seed_of(MemoryPass::Seed seed) const;

  std::span<const MemoryTest> suite_;
  std::uint64_t block_;
  std::uint64_t blocks_;
  std::uint64_t base_seed_, given_seed_ = 0;
  std::uint64_t draws_ = 0;  ///< fresh seeds so far
  std::uint64_t generation_ = 0;
  std::uint64_t round_ = 0;
  std::uint64_t phase_ = 0;  ///< rounds in which it was not held: so every phase of a pattern comes
  std::size_t test_ = 0;
  bool held_ = false;
  Pattern pattern_;
  const char* written_by_;
};

/// As "solid 0x55555555", "modulo_20 7", "finite".
std::string describe(const Pattern& pattern);

}  // namespace egt
