#pragma once

#include <cstdint>
#include <string>

#include "egt/core/digest.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/record.hpp"
#include "egt/workload/workload.hpp"

/// What workloads that check say in common: whose pattern it is, and what was found.
namespace egt {

/// What a pattern is for: no two purposes share one.
enum class PatternPurpose : std::uint64_t { memory = 1, file = 2, cleanup = 3, host_copy = 4, peer_copy = 5 };

/// The seed of one pattern: another for every rank, place (block, chunk) and generation (how often it was
/// rewritten), so that stale and misplaced data show.
std::uint64_t pattern_seed(const Environment& environment, PatternPurpose purpose, std::uint64_t place,
                           std::uint64_t generation);
/// The same of any rank.
std::uint64_t pattern_seed(std::uint64_t run_seed, int rank, PatternPurpose purpose, std::uint64_t place,
                           std::uint64_t generation);

/// A fault of this rank's device; where it was and what it held is the caller's to add, and its part of the
/// run where `phase` is not that one's name.
Fault fault_of(const Environment& environment, std::string kind, std::string detector, std::string phase,
               std::int64_t step);

/// As "0x0123abcd".
std::string hex(std::uint32_t word);
std::string hex(const Digest& digest);

/// The sample with the lowest index; `found.count` is above 0.
Mismatches::Sample lowest_sample(const Mismatches& found);

/// Is it a report that a device could have written? All zeros, say, are none: so an exchange of reports that
/// did nothing is seen.
bool is_plausible(const Mismatches& report);

/// Puts what should have been, what was, and in which bits they differ into a fault: words, or digests. Equal
/// digests show nothing, and leave the fault's values empty.
void show_difference(Fault& fault, std::uint32_t expected, std::uint32_t actual);
void show_difference(Fault& fault, const Digest& expected, const Digest& actual);

/// The outcome of a part that found something `wrong`, or left of what was planned something `undone`, one
/// line each, empty: nothing. What is wrong is its failure, else what is undone; that is a figure too.
void put_outcome(PartReport& report, const std::string& wrong, const std::string& undone);

/// Adds to the figure `not_run` of a part: a check that belongs to the run and was not made, and why. The
/// result gathers them as `checks_not_run`.
void note_not_run(PartReport& report, const std::string& check, const std::string& reason);

/// amount / per, or null where `per` was not measured.
Json ratio_or_null(double amount, double per);

}  // namespace egt
