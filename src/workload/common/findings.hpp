#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "egt/core/digest.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/record.hpp"
#include "egt/workload/workload.hpp"

/// Shared by the checking workloads: pattern seeds and the description of faults.
namespace egt {

/// Use of a pattern; each use has its own patterns.
enum class PatternPurpose : std::uint64_t {
  memory = 1,
  file = 2,
  cleanup = 3,
  host_copy = 4,
  peer_copy = 5,
  vote = 6
};

/// Seed of one pattern. It differs by rank, place (block, chunk) and generation (rewrite number), so that
/// stale and misplaced data are detected.
std::uint64_t pattern_seed(const Environment& environment, PatternPurpose purpose, std::uint64_t place,
                           std::uint64_t generation);
/// The same for any rank.
std::uint64_t pattern_seed(std::uint64_t run_seed, int rank, PatternPurpose purpose, std::uint64_t place,
                           std::uint64_t generation);

/// A fault of this rank's device. The caller adds location and values, and the part if it differs from
/// `phase`.
Fault fault_of(const Environment& environment, std::string kind, std::string detector, std::string phase,
               std::int64_t step);

/// As "0x0123abcd".
std::string hex(std::uint32_t word);
std::string hex(const Digest& digest);

/// "3", "1, 3" or "0 to 3".
std::string numbers_text(std::span<const int> numbers);
/// "SM 37, sub-partition 2: fp32 (SM 36 shares its TPC)" or "CPU 0, 1: fp32 (no majority)". `details`: the
/// text after the numbers.
std::string multiprocessor_place(const DeviceInfo& info, std::span<const int> numbers,
                                 const std::string& details);

/// The samples that were not dropped.
std::span<const Mismatches::Sample> samples_of(const Mismatches& found);

/// For a position that was not read by a multiprocessor.
constexpr std::uint32_t no_reader = ~0u;
/// `Fault::map`: offsets in bytes from `offset` on, XOR masks, and what they have in common. Null for less
/// than two positions. `words`: wrong words, by index.
Json error_map(const std::map<std::uint64_t, Mismatches::Sample>& words, std::uint64_t offset);
/// Rows, columns and values of the recorded elements, what they have in common, and the tile of all wrong
/// ones. `first_row`: of the verified rows. `type`: of the elements.
Json error_map(const GemmMismatches& found, std::int64_t first_row, ElementType type);

/// The sample with the lowest index, or zeros if there is none.
Mismatches::Sample lowest_sample(const Mismatches& found);

/// True if a device could have written this report. All zeros, for example, are implausible, so an exchange
/// that transferred nothing is detected.
bool is_plausible(const Mismatches& report);

/// Writes into a fault the count, offset and values of the lowest mismatch and the map of all samples, or
/// that words were not compared. `found.count` is above 0. `offset`: of the verified words, in bytes.
void show_mismatches(Fault& fault, const Mismatches& found, std::uint64_t offset = 0);
/// The same of a GEMM with at least one wrong element; its row and column are added to `where`.
void show_mismatches(Fault& fault, const GemmMismatches& found, std::int64_t first_row, ElementType type);

/// Writes expected value, actual value and their XOR into a fault. Equal values leave these fields empty.
void show_difference(Fault& fault, std::uint32_t expected, std::uint32_t actual);
void show_difference(Fault& fault, const Digest& expected, const Digest& actual);

/// Sets the outcome of a part. `wrong`: what failed, `undone`: planned work that was not done; one line each
/// or empty. `wrong` becomes the failure, else `undone`, which is also a metric.
void put_outcome(PartReport& report, const std::string& wrong, const std::string& undone);

/// Appends to the metric `not_run` of a part: a check that was skipped, and why. The result collects them as
/// `checks_not_run`.
void note_not_run(PartReport& report, const std::string& check, const std::string& reason);

/// amount / per, or null if `per` was not measured.
Json ratio_or_null(double amount, double per);

}  // namespace egt
