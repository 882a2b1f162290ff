#pragma once

#include <cstdint>
#include <string>

#include "egt/core/pattern.hpp"
#include "egt/core/record.hpp"
#include "egt/workload/digest_vote.hpp"
#include "egt/workload/workload.hpp"

/// What workloads that check say in common: whose pattern it is, and what was found.
namespace egt {

/// What a pattern is for: no two purposes share one.
enum class PatternPurpose : std::uint64_t { memory = 1, file = 2, cleanup = 3 };

/// The seed of one pattern: another for every rank, place (block, chunk) and generation (how often it was
/// rewritten), so that stale and misplaced data show.
std::uint64_t pattern_seed(const Environment& environment, PatternPurpose purpose, std::uint64_t place,
                           std::uint64_t generation);

/// A fault of this rank's device; where it was and what it held is the caller's to add.
Fault fault_of(const Environment& environment, std::string kind, std::string detector, std::string phase,
               std::int64_t step);

/// As "0x0123abcd".
std::string hex(std::uint32_t word);

/// The sample with the lowest index; `found.count` is above 0.
Mismatches::Sample lowest_sample(const Mismatches& found);

/// Puts the words and the count of a mismatch into a fault; `sample` is the one shown.
void describe_mismatch(Fault& fault, const Mismatches& found, const Mismatches::Sample& sample);

/// Puts the digests of a rank that answered wrongly into a fault.
void describe_digests(Fault& fault, const Dissent& dissent);

/// amount / per, or null where `per` was not measured.
Json ratio_or_null(double amount, double per);

}  // namespace egt
