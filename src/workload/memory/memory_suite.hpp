#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "egt/core/pattern.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// One pass over a block, at the cost of one read and one write. Word by word in `direction`, it verifies the
/// previous pass's pattern and writes its own: (r old, w new) in March test notation.
struct MemoryPass {
  /// Source of a random pattern's seed.
  enum class Seed {
    fresh,  ///< a new seed, so that stale data never matches
    same,   ///< seed of the previous pass: the inverse or the same pattern
    given,  ///< seed of BlockCourse::give_seed
    hold,   ///< one seed for both tests that hold the block; the second one writes the inverse
  };

  PatternKind kind = PatternKind::random;
  Direction direction = Direction::ascending;
  std::uint32_t parameter = 0;  ///< of the pattern, in the first round
  std::uint32_t advance = 0;    ///< added to it per round in which the block is not held ..
  std::uint32_t period = 1;     ///< .. modulo this, if `advance` is not 0
  Seed seed = Seed::same;
  bool inverse_seed = false;  ///< complements the seed: the inverse of modulo_20
};

/// The consecutive passes over a block. The last pattern stays until the block's next test, one or more
/// complete sweeps over all other blocks later. It is verified there first (retention test).
struct MemoryTest {
  const char* name = "";
  std::span<const MemoryPass> passes;
  bool hold = false;  ///< after this test, one of blocks_a_hold blocks stays untested for one round
};

/// All tests, in the order applied to every block. A round detects every stuck-at, transition, coupling and
/// address fault, between and within words, and bits that lose either value within a sweep. Two holds later,
/// it also detects bits that lose a value within a round.
std::span<const MemoryTest> memory_suite();

/// One block out of this many is held in each round.
constexpr std::uint64_t blocks_a_hold = 16;

/// Position of one block in the suite, which determines its content. The first pattern is that of the first
/// test's last pass, written by a plain fill. Deterministic in its arguments and calls; one thread at a time.
class BlockCourse {
 public:
  /// `seed`: different for every block, rank and run. `suite` must outlive it and have at least one test.
  BlockCourse(std::span<const MemoryTest> suite, std::uint64_t block, std::uint64_t blocks,
              std::uint64_t seed);

  /// Content of the block once all enqueued work is done.
  const Pattern& pattern() const { return pattern_; }
  /// Number of rewrites since the first fill.
  std::uint64_t generation() const { return generation_; }
  /// Number of complete runs of the suite.
  std::uint64_t round() const { return round_; }
  std::size_t test_index() const { return test_; }
  /// Name of the test that wrote the pattern.
  const char* written_by() const { return written_by_; }
  const MemoryTest& test() const { return suite_[test_]; }
  /// True if the current sweep must skip the block.
  bool held() const { return held_ && !test().hold; }

  void give_seed(std::uint64_t seed) { given_seed_ = seed; }
  /// The pattern that `pass` of the current test writes.
  Pattern next(const MemoryPass& pass) const;
  /// Call when the pass is enqueued.
  void wrote(const MemoryPass& pass);
  /// Call when the test is done, or was skipped because the block is held.
  void leave();

 private:
  std::uint64_t seed_of(MemoryPass::Seed seed) const;

  std::span<const MemoryTest> suite_;
  std::uint64_t block_;
  std::uint64_t blocks_;
  std::uint64_t base_seed_, given_seed_ = 0;
  std::uint64_t draws_ = 0;  ///< number of fresh seeds so far
  std::uint64_t generation_ = 0;
  std::uint64_t round_ = 0;
  std::uint64_t phase_ = 0;  ///< rounds without a hold, so that every phase of a pattern is used
  std::size_t test_ = 0;
  bool held_ = false;
  Pattern pattern_;
  const char* written_by_;
};

/// For example "solid 0x55555555", "modulo_20 7", "finite".
std::string describe(const Pattern& pattern);

}  // namespace egt
