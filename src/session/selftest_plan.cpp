#include "egt/session/selftest_plan.hpp"

#include <algorithm>
#include <optional>

#include "egt/core/pattern.hpp"
#include "egt/workload/collective_judgement.hpp"

namespace egt {
namespace {

using enum InjectionKind;

constexpr int word_bits = 32;
constexpr std::int64_t first_period = 4;  ///< before it every check has seen what is right
constexpr std::uint64_t strides[] = {1, 3, 32, 129};

/// Differs for each pair; spreads over all bits.
std::uint64_t spread(std::uint64_t purpose, std::uint64_t number) {
  return mix64(mix64(purpose + 1) + number);
}

/// Two to nine bits.
std::uint32_t several_bits(std::uint64_t number) {
  std::uint32_t mask = 0;
  for (std::uint64_t i = 0; i < 2 + number % 8; ++i) mask |= 1u << (spread(number, i) % word_bits);
  return mask | 1u << (number % word_bits);
}

bool has_layers(InjectionKind kind) {
  return kind <= optimizer;
}

/// Of the files' kinds only file-bit is about bits; the others hit whole blocks.
bool flips_bits(InjectionKind kind) {
  return kind <= file_bit;
}

/// Words of a strided fault. Memory knows each wrong word of a block up to so many; of a block with more it
/// tells nothing again until it was right for a whole visit, which nobody can wait for here.
std::uint64_t words_of(InjectionKind kind, std::uint64_t number) {
  constexpr std::uint64_t most = 64;
  return 2 + spread(1, number) % ((kind == memory ? Mismatches::max_samples : most) - 1);
}

/// What a rank receives of each collective; with several bits, where all ranks put something into every sum:
/// what it puts in. There the mask is left open, for other bits than its own would be another's (see
/// collective.hpp).
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
  Injection injection;
  injection.kind = kind;
  injection.rank = number % scope.ranks;
  if (has_layers(kind))
    injection.layer = 1 + static_cast<int>(spread(0, n) % static_cast<std::uint64_t>(scope.layers));
  if (flips_bits(kind)) injection.mask = single || number % 3 == 1 ? 1u << (n % word_bits) : several_bits(n);
  if (flips_bits(kind) && !single && number % 3 != 0) {
    injection.count = words_of(kind, n);
    injection.stride = strides[spread(2, n) % std::size(strides)];
  }
  if (kind == collective) aim_at_collective(injection, number, scope.ranks);
  return injection;
}

std::optional<std::string> why_left_out(InjectionKind kind, const SelftestScope& scope) {
  const Detector detector = detector_of(kind);
  if (scope.ranks < 2 && detector == Detector::replica) return "one rank alone has no replica to compare";
  if (scope.ranks < 2 && detector == Detector::collective) return "one rank alone has no collectives";
  if (!scope.extreme && detector == Detector::extreme) return "--extreme-iterations 0";
  if (!scope.memory && detector == Detector::memory) return "--memory 0";
  if (!scope.files && detector == Detector::file) return "--no-io";
  return std::nullopt;
}

/// The `number`th of its detector, of those that look every period: replicas have the even periods to
/// themselves, at a step that varies.
std::int64_t step_of(Detector detector, int number, std::int64_t period) {
  const std::int64_t pair = (first_period + 2 * number) * period;
  return detector == Detector::replica ? pair + number % (period - 1) : pair + period;
}

/// All kinds of one detector in turn.
void add_detector(Detector detector, const std::vector<InjectionKind>& kinds, const SelftestScope& scope,
                  SelftestPlan& plan) {
  const int of_each = injections_of_a_kind(scope.ranks);
  const int all = of_each * static_cast<int>(kinds.size());
  for (int i = 0; i < all; ++i) {
    const auto kind = static_cast<std::size_t>(i) % kinds.size();
    Injection injection = injection_of(kinds[kind], i / static_cast<int>(kinds.size()), scope);
    injection.step = looks_every_period(detector) ? step_of(detector, i, scope.period) : i;
    plan.injections.push_back(injection);
  }
}

}  // namespace

Detector detector_of(InjectionKind kind) {
  switch (kind) {
    case weight:
    case optimizer:
      return Detector::replica;
    case gradient:
    case activation:
    case gemm:
      return Detector::replay;
    case extreme:
      return Detector::extreme;
    case collective:
      return Detector::collective;
    case memory:
      return Detector::memory;
    default:
      return Detector::file;
  }
}

bool looks_every_period(Detector detector) {
  return detector < Detector::memory;
}

int injections_of_a_kind(int ranks) {
  return 24 + 8 * ranks;
}

SelftestPlan plan_selftest(const SelftestScope& scope) {
  SelftestPlan plan{.injections = {}, .left_out = {}, .period = scope.period};
  for (int detector = 0; detector <= static_cast<int>(Detector::file); ++detector) {
    std::vector<InjectionKind> kinds;
    for (int kind = 0; changes_data(static_cast<InjectionKind>(kind)); ++kind) {
      const auto one = static_cast<InjectionKind>(kind);
      if (detector_of(one) != static_cast<Detector>(detector)) continue;
      if (const auto why = why_left_out(one, scope))
        plan.left_out.push_back({one, *why});
      else
        kinds.push_back(one);
    }
    add_detector(static_cast<Detector>(detector), kinds, scope, plan);
  }
  const auto earlier = [](const Injection& a, const Injection& b) { return a.step < b.step; };
  std::stable_sort(plan.injections.begin(), plan.injections.end(), earlier);
  const auto before = [](const LeftOut& a, const LeftOut& b) { return a.kind < b.kind; };
  std::sort(plan.left_out.begin(), plan.left_out.end(), before);
  return plan;
}

}  // namespace egt
