#include "session/selftest/selftest_plan.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "egt/core/math/unit_vote.hpp"
#include "egt/core/pattern.hpp"
#include "workload/collective/collective_judgement.hpp"

namespace egt {
namespace {

using enum InjectionKind;

constexpr int word_bits = 32;
constexpr std::int64_t first_period = 4;  ///< by then, every check has passed on correct data
constexpr std::uint64_t strides[] = {1, 3, 32, 129};

/// A hash of the pair, evenly distributed over all bits.
std::uint64_t spread(std::uint64_t purpose, std::uint64_t number) {
  return mix64(mix64(purpose + 1) + number);
}

/// A mask with several random bits, at most ten.
std::uint32_t several_bits(std::uint64_t number) {
  std::uint32_t mask = 0;
  for (std::uint64_t i = 0; i < 2 + number % 8; ++i) mask |= 1u << (spread(number, i) % word_bits);
  return mask | 1u << (number % word_bits);
}

/// Number of words of a strided fault. The memory test records the wrong words of a block up to a limit,
/// which it must not exceed: such a block is only reported again after a full pass without errors.
std::uint64_t words_of(InjectionKind kind, std::uint64_t number) {
  constexpr std::uint64_t most = 64;
  return 2 + spread(1, number) % ((kind == memory ? Mismatches::max_samples : most) - 1);
}

/// Targets the data that a rank receives from each collective. Some injections of several bits target its
/// contribution instead, if all ranks contribute to every reduction. Their mask stays unset, since a rank may
/// flip only its own bits; the others belong to other ranks (see collective.hpp).
void aim_at_collective(Injection& injection, int number, int ranks) {
  injection.layer = 1 + static_cast<int>(spread(0, static_cast<std::uint64_t>(number)) % collective_kinds);
  if (number < word_bits || number % 3 != 0 || ranks > static_cast<int>(contribution_fields)) return;
  injection.layer = collective_kinds + 1;
  injection.mask.reset();
}

/// The `number`th of its kind: first each bit alone, then several bits, strided words, and both.
Injection injection_of(InjectionKind kind, int number, const SelftestScope& scope) {
  const auto n = static_cast<std::uint64_t>(number);
  const bool single = number < word_bits;
  const bool flips_bits = row_of(kind).accepts(key_bit);  // the other file kinds corrupt whole blocks
  Injection injection;
  injection.kind = kind;
  injection.rank = number % scope.ranks;
  if (row_of(kind).accepts(key_layer))
    injection.layer = 1 + static_cast<int>(spread(0, n) % static_cast<std::uint64_t>(scope.layers));
  if (flips_bits) injection.mask = single || number % 3 == 1 ? 1u << (n % word_bits) : several_bits(n);
  if (flips_bits && !single && number % 3 != 0) {
    injection.count = words_of(kind, n);
    injection.stride = strides[spread(2, n) % std::size(strides)];
  }
  // This bit corrupts the contribution. The sum is then equally wrong on all ranks, so no rank can be blamed.
  constexpr std::uint32_t puts_in = 1u << 30;
  if (kind == all_reduce && (*injection.mask &= ~puts_in) == 0) injection.mask = puts_in >> 1;
  if (kind == collective) aim_at_collective(injection, number, scope.ranks);
  if (kind == host_copy) injection.layer = 1 + number / scope.ranks % host_copy_to_host;
  if (kind == multiprocessor)
    injection.layer = 1 + number % (scope.memory ? layer_of_pattern : compute_units);
  return injection;
}

/// The `number`th persistent one of its kind: single bits from bit 16 on, then several bits and strides.
Injection persistent_injection_of(InjectionKind kind, int number, const SelftestScope& scope) {
  Injection injection = injection_of(kind, word_bits / 2 + number, scope);
  injection.lasting = Lasting::check;
  return injection;
}

/// Needs that the run does not meet, as a bit mask of InjectionNeed.
unsigned missing_needs(const SelftestScope& scope) {
  unsigned missing = 0;
  if (scope.ranks < 2) missing |= needs_peers;
  if (scope.ranks < 2 && !scope.covers_all) missing |= needs_states;
  if (!scope.covers_all) missing |= needs_coverage;
  if (!scope.extreme) missing |= needs_extreme;
  if (!scope.memory) missing |= needs_memory;
  if (!scope.files) missing |= needs_files;
  return missing;
}

/// Step within its period at which an injection takes effect. Optimizer moments decay with every step, so a
/// flip of the lowest bits may be rounded away and be no fault any more. Such a flip occurs right before the
/// check.
std::int64_t step_of_period(const Injection& injection, std::int64_t turn, std::int64_t period) {
  constexpr int fading_bits = 8;
  const bool fades = injection.kind == optimizer && std::countr_zero(*injection.mask) < fading_bits;
  if (fades) return period - 1;
  return static_cast<std::int64_t>(spread(3, static_cast<std::uint64_t>(turn)) %
                                   static_cast<std::uint64_t>(period));
}

/// Adds the injections for all detectors of this one's part of the run, with their kinds in turn. Periods
/// with and without an injection alternate. The step within the period varies.
void add_in_turn(const DetectorRow& detector, const SelftestScope& scope, SelftestPlan& plan) {
  std::vector<InjectionKind> kinds;
  for (const InjectionRow& row : injection_rows)
    if (row.changes_data() && std::string_view(row_of(*row.detector).part) == detector.part &&
        !unmet_need(row.kind, missing_needs(scope)))
      kinds.push_back(row.kind);
  std::int64_t turn = 0;
  const auto add = [&](Injection injection) {
    injection.step = turn;
    if (detector.looks_every_period)
      injection.step =
          (first_period + 2 * turn) * scope.period + step_of_period(injection, turn, scope.period);
    plan.injections.push_back(injection);
    ++turn;
  };
  const int once = injections_of_a_kind(scope.ranks);
  for (int number = 0; number < std::max(once, persistent_injections_of_a_kind); ++number)
    for (const InjectionKind kind : kinds) {
      if (number < once) add(injection_of(kind, number, scope));
      // With sampled coverage, all pass faults are persistent by default, so none are added.
      if (number < persistent_injections_of_a_kind && scope.covers_all && detector.looks_every_period &&
          row_of(kind).accepts(key_lasting))
        add(persistent_injection_of(kind, number, scope));
    }
}

}  // namespace

bool is_persistent(const Injection& injection) {
  return injection.lasting && injection.lasting != Lasting::once;
}

int injections_of_a_kind(int ranks) {
  return 24 + 8 * ranks;
}

SelftestPlan plan_selftest(const SelftestScope& scope) {
  SelftestPlan plan{.injections = {}, .left_out = {}, .period = scope.period};
  // If one replay detects two faults, it reports only the one in the first tensor. So detectors of one part
  // alternate.
  const char* part = "";
  for (const DetectorRow& detector : detector_rows)
    if (std::string_view(detector.part) != std::exchange(part, detector.part))
      add_in_turn(detector, scope, plan);
  for (const InjectionRow& row : injection_rows)
    if (const InjectionNeedRow* const unmet = unmet_need(row.kind, missing_needs(scope));
        unmet && row.changes_data())
      plan.left_out.push_back({row.kind, unmet->left_out});
  const auto earlier = [](const Injection& a, const Injection& b) { return a.step < b.step; };
  std::stable_sort(plan.injections.begin(), plan.injections.end(), earlier);
  return plan;
}

}  // namespace egt
