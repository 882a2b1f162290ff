#include "workload/memory/memory_suite.hpp"

#include <fmt/format.h>

namespace egt {
namespace {

using enum PatternKind;
using enum Direction;
using Seed = MemoryPass::Seed;

constexpr MemoryPass fresh(PatternKind kind, Direction direction) {
  return {.kind = kind, .direction = direction, .seed = Seed::fresh};
}

constexpr MemoryPass same(PatternKind kind, Direction direction) {
  return {.kind = kind, .direction = direction, .seed = Seed::same};
}

constexpr MemoryPass write(std::uint32_t word, Direction direction) {
  return {.kind = solid, .direction = direction, .parameter = word};
}

constexpr MemoryPass walking(PatternKind kind, Direction direction) {
  return {.kind = kind, .direction = direction, .advance = 1, .period = 32};
}

constexpr MemoryPass modulo(std::uint32_t phase, Direction direction, Seed seed, bool inverse) {
  return {.kind = modulo_20,
          .direction = direction,
          .parameter = phase,
          .advance = 2,
          .period = 20,
          .seed = seed,
          .inverse_seed = inverse};
}

// Two patterns that every bit retains, once as 1 and once as 0. The finite one is used as an operand.
constexpr MemoryPass finite_passes[] = {fresh(finite, ascending)};
constexpr MemoryPass finite_inverse_passes[] = {same(finite_inverse, descending)};

constexpr MemoryPass address_passes[] = {same(address, ascending), same(address_inverse, descending)};

constexpr MemoryPass walking_passes[] = {walking(walking_ones, ascending), walking(walking_zeros, descending),
                                         fresh(finite, ascending)};

constexpr MemoryPass random_passes[] = {fresh(random, ascending), same(random_inverse, descending)};

constexpr MemoryPass checkerboard_passes[] = {
    {.kind = checkerboard, .direction = ascending, .parameter = 0},
    {.kind = checkerboard, .direction = descending, .parameter = 1},
};

// March C- (Marinescu 1982; van de Goor, "Testing Semiconductor Memories", 1991): (w0); up(r0,w1); up(r1,w0);
// down(r0,w1); down(r1,w0); (r0). The retention verification is the last element.
constexpr MemoryPass march_passes[] = {write(0, ascending), write(~0u, ascending), write(0, ascending),
                                       write(~0u, descending), write(0, descending)};

// March C- writes equal bits to a word. For any two bits of a word, one of these backgrounds has a 0 in one
// and a 1 in the other. Both bits then change in both directions simultaneously.
constexpr MemoryPass background_passes[] = {
    write(0x55555555u, ascending), write(~0x55555555u, descending), write(0x55555555u, ascending),
    write(0x33333333u, ascending), write(~0x33333333u, descending), write(0x33333333u, ascending),
    write(0x0F0F0F0Fu, ascending), write(~0x0F0F0F0Fu, descending), write(0x0F0F0F0Fu, ascending),
    write(0x00FF00FFu, ascending), write(~0x00FF00FFu, descending), write(0x00FF00FFu, ascending),
    write(0x0000FFFFu, ascending), write(~0x0000FFFFu, descending), write(0x0000FFFFu, ascending),
    fresh(finite, ascending)};

constexpr MemoryPass inversions_passes[] = {fresh(random, ascending), same(random_inverse, ascending),
                                            same(random, descending)};

// Two of the 20 phases per round.
constexpr MemoryPass modulo_passes[] = {
    modulo(0, ascending, Seed::fresh, false), modulo(0, descending, Seed::same, true),
    modulo(1, ascending, Seed::fresh, false), modulo(1, descending, Seed::same, true)};

constexpr MemoryPass hold_passes[] = {{.kind = random, .direction = ascending, .seed = Seed::hold}};

constexpr MemoryTest suite[] = {
    {.name = "finite", .passes = finite_passes},
    {.name = "finite inverse", .passes = finite_inverse_passes},
    {.name = "address", .passes = address_passes},
    {.name = "walking ones and zeros", .passes = walking_passes},
    {.name = "random", .passes = random_passes},
    {.name = "checkerboard", .passes = checkerboard_passes},
    {.name = "March C-", .passes = march_passes},
    {.name = "data backgrounds", .passes = background_passes},
    {.name = "moving inversions", .passes = inversions_passes},
    {.name = "modulo-20", .passes = modulo_passes},
    {.name = "hold", .passes = hold_passes, .hold = true},
};

constexpr std::uint64_t hold_salt = 0x686F6C64;

}  // namespace

std::span<const MemoryTest> memory_suite() {
  return suite;
}

BlockCourse::BlockCourse(std::span<const MemoryTest> suite, std::uint64_t block, std::uint64_t blocks,
                         std::uint64_t seed)
    : suite_(suite), block_(block), blocks_(blocks), base_seed_(seed) {
  const MemoryPass& first = test().passes.back();
  pattern_ = next(first);
  written_by_ = test().name;
  draws_ = 1;
  leave();
}

std::uint64_t BlockCourse::seed_of(MemoryPass::Seed seed) const {
  if (seed == Seed::same) return pattern_.seed;
  if (seed == Seed::given) return given_seed_;
  const std::uint64_t stream = seed == Seed::hold ? mix64(base_seed_ ^ hold_salt) : base_seed_;
  const std::uint64_t number = seed == Seed::hold ? round_ / (2 * blocks_a_hold) : draws_;
  return mix64(stream + number * 0x9E3779B97F4A7C15ull);
}

Pattern BlockCourse::next(const MemoryPass& pass) const {
  Pattern pattern{.kind = pass.kind, .parameter = pass.parameter, .seed = seed_of(pass.seed)};
  if (pass.advance)
    pattern.parameter =
        static_cast<std::uint32_t>((pass.parameter + phase_ % pass.period * pass.advance) % pass.period);
  if (pass.inverse_seed) pattern.seed = ~pattern.seed;
  if (pass.seed == Seed::hold && round_ / blocks_a_hold % 2) pattern.kind = PatternKind::random_inverse;
  return pattern;
}

void BlockCourse::wrote(const MemoryPass& pass) {
  pattern_ = next(pass);
  written_by_ = test().name;
  if (pass.seed == Seed::fresh) ++draws_;
  ++generation_;
}

/// A hold begins after the hold test of one round and ends with that of the next. A single block is not held,
/// because then no block would be tested.
void BlockCourse::leave() {
  if (test().hold) {
    if (!held_) ++phase_;
    held_ = blocks_ > 1 && (block_ + round_) % blocks_a_hold == 0;
  }
  if (++test_ < suite_.size()) return;
  test_ = 0;
  ++round_;
}

std::string describe(const Pattern& pattern) {
  const std::string_view name = to_string(pattern.kind);
  switch (pattern.kind) {
    case solid:
      return fmt::format("{} 0x{:08x}", name, pattern.parameter);
    case walking_ones:
    case walking_zeros:
    case checkerboard:
    case modulo_20:
      return fmt::format("{} {}", name, pattern.parameter);
    default:
      return std::string(name);
  }
}

}  // namespace egt
