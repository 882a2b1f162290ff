#include "workload/verify/allocation_check.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"

namespace egt {
namespace {

constexpr std::uint64_t quantum = 512;        // allocation granularity of the device in bytes
constexpr std::uint64_t min_bytes = 1 << 20;  // a smaller test proves nothing
constexpr std::uint64_t part_of_free = 4;     // leaves memory for the other parts
constexpr std::uint64_t tolerated_part = 16;  // used meanwhile by libraries and other processes
constexpr std::uint32_t planted_bit = 1u << 13;

/// Position of the word that is flipped for the self-test.
std::uint64_t planted_place(const Buffer& memory) {
  return memory.words().count / 3;
}

}  // namespace

Status AllocationCheck::prepare() {
  EGT_TRY_ASSIGN(reports_, device_.allocate(2 * sizeof(Mismatches)));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(2 * sizeof(Mismatches)));
  return {};
}

Status AllocationCheck::use(const Pattern& pattern, Stream& stream, double timeout_seconds) {
  const WordsView words = memory_.words();
  auto* const report = reports_.as<Mismatches>();
  EGT_TRY(device_.fill(words, pattern, stream));
  EGT_TRY(device_.reset(report, stream));
  EGT_TRY(device_.verify(words, pattern, report, stream));
  EGT_TRY(device_.flip(words, {.first = planted_place(memory_), .mask = planted_bit}, stream));
  EGT_TRY(device_.reset(report + 1, stream));
  EGT_TRY(device_.verify(words, pattern, report + 1, stream));
  EGT_TRY(device_.copy(pinned_.data(), report, 2 * sizeof(Mismatches), stream));
  return device_.synchronize(stream, timeout_seconds);
}

/// Proves that a verification without mismatches has read the memory.
bool AllocationCheck::sees_what_was_planted() const {
  const Mismatches& planted = pinned_.as<Mismatches>()[1];
  return planted.count == 1 && planted.sample[0].index == planted_place(memory_);
}

Result<AllocationOutcome> AllocationCheck::run(double share, const Pattern& pattern, Stream& stream,
                                               double timeout_seconds) {
  AllocationOutcome outcome;
  EGT_TRY_ASSIGN(const MemoryInfo before, device_.memory());
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(before.total_bytes));
  outcome.bytes = std::min(std::max(wanted, min_bytes), before.free_bytes / part_of_free) / quantum * quantum;
  outcome.tolerance_bytes = outcome.bytes / tolerated_part;
  if (outcome.bytes < min_bytes) {
    outcome.failure = fmt::format("only {} of memory are free: too little to take and give back",
                                  format_bytes(before.free_bytes));
    return outcome;
  }
  for (const bool again : {false, true}) {
    Result<Buffer> taken = device_.allocate(outcome.bytes);
    if (taken.status().code() == StatusCode::out_of_memory) {
      outcome.failure = fmt::format("{} of memory could not be taken{}: {}", format_bytes(outcome.bytes),
                                    again ? " again" : "", taken.status().what());
      return outcome;
    }
    EGT_TRY(taken.status());
    if (again) break;
    memory_ = std::move(taken.value());
    EGT_TRY(use(pattern, stream, timeout_seconds));
    outcome.found = pinned_.as<Mismatches>()[0];
    outcome.is_blind = !sees_what_was_planted();
    memory_ = Buffer();
    EGT_TRY_ASSIGN(const MemoryInfo after, device_.memory());
    outcome.missing_bytes = after.used_bytes() - std::min(before.used_bytes(), after.used_bytes());
  }
  if (!outcome.is_wrong() && outcome.missing_bytes > outcome.tolerance_bytes)
    outcome.failure = fmt::format("{} of memory were given back, and {} less are free than before",
                                  format_bytes(outcome.bytes), format_bytes(outcome.missing_bytes));
  return outcome;
}

}  // namespace egt
