#include "workload/common/findings.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/units.hpp"

namespace egt {
namespace {

/// First and last position, and what the distances have in common.
Json spacing(const std::set<std::uint64_t>& positions, std::uint64_t least_period) {
  // Fewer positions, or positions at smaller distances, often have a common divisor by chance.
  constexpr std::size_t least_positions = 4;
  std::set<std::uint64_t> distances;
  std::uint64_t period = 0;
  for (auto next = positions.begin(), at = next++; next != positions.end(); at = next++) {
    distances.insert(*next - *at);
    period = std::gcd(period, *next - *at);
  }
  const bool is_even = distances.size() == 1 && positions.size() > 2;
  const bool is_periodic = is_even || (positions.size() >= least_positions && period >= least_period);
  return {{"first", *positions.begin()},
          {"last", *positions.rbegin()},
          {"stride", is_even ? Json(period) : Json()},
          {"period", is_periodic ? Json(period) : Json()}};
}

std::string value_text(double value, ElementType type) {
  return fmt::format("{:.{}g}", value, type == ElementType::f64 ? 17 : 9);
}

}  // namespace

std::uint64_t pattern_seed(const Environment& environment, PatternPurpose purpose, std::uint64_t place,
                           std::uint64_t generation) {
  return pattern_seed(environment.seed, environment.place.rank, purpose, place, generation);
}

std::uint64_t pattern_seed(std::uint64_t run_seed, int rank, PatternPurpose purpose, std::uint64_t place,
                           std::uint64_t generation) {
  std::uint64_t seed = run_seed;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(purpose), static_cast<std::uint64_t>(rank), place, generation})
    seed = mix64(seed + 0x9E3779B97F4A7C15ull) ^ part;
  return seed;
}

Fault fault_of(const Environment& environment, std::string kind, std::string detector, std::string phase,
               std::int64_t step) {
  Fault fault;
  fault.kind = std::move(kind);
  fault.detector = std::move(detector);
  fault.rank = environment.place.rank;
  fault.hostname = environment.place.hostname;
  fault.device_uuid = environment.device.info().uuid;
  fault.step = step;
  fault.part = fault.phase = std::move(phase);
  return fault;
}

std::string hex(std::uint32_t word) {
  return fmt::format("0x{:08x}", word);
}

std::string hex(const Digest& digest) {
  return fmt::format("0x{}", to_string(digest));
}

std::string numbers_text(std::span<const int> numbers) {
  const bool is_range = numbers.size() > 2 && numbers.back() - numbers.front() + 1 == std::ssize(numbers);
  return is_range ? fmt::format("{} to {}", numbers.front(), numbers.back())
                  : fmt::format("{}", fmt::join(numbers, ", "));
}

std::string multiprocessor_place(const DeviceInfo& info, std::span<const int> numbers,
                                 const std::string& details) {
  const bool is_host = info.backend == "host";
  std::string place = fmt::format("{} {}{}", is_host ? "CPU" : "SM", numbers_text(numbers), details);
  if (numbers.size() > 1) return place + " (no majority)";
  return is_host ? place : place + fmt::format(" (SM {} shares its TPC)", numbers.front() ^ 1);
}

bool is_plausible(const Mismatches& report) {
  if (report.count == 0)
    return report.first_index == ~std::uint64_t{0} && report.samples == 0 && report.xor_or == 0;
  return report.first_index != ~std::uint64_t{0} && report.samples > 0 && report.xor_or != 0;
}

std::span<const Mismatches::Sample> samples_of(const Mismatches& found) {
  return {found.sample, std::min<std::size_t>(found.samples, Mismatches::max_samples)};
}

Json error_map(const std::map<std::uint64_t, Mismatches::Sample>& words, std::uint64_t offset) {
  if (words.size() < 2) return {};
  constexpr std::uint64_t least_period = 64;
  std::set<std::uint64_t> offsets;
  std::set<std::uint32_t> readers;
  Json masks = Json::array();
  std::uint32_t any = 0, each = ~0u;
  for (const auto& [index, word] : words) {
    offsets.insert(offset + index * sizeof(std::uint32_t));
    if (word.reader != no_reader) readers.insert(word.reader);
    const std::uint32_t mask = word.expected ^ word.actual;
    any |= mask, each &= mask;
    masks.push_back(hex(mask));
  }
  Json map = spacing(offsets, least_period);
  map.update({{"xor_or", hex(any)},
              {"xor_and", hex(each)},
              {"readers", readers.empty() ? Json() : Json(readers.size())},
              {"offsets", offsets},
              {"xors", masks}});
  return map;
}

Json error_map(const GemmMismatches& found, std::int64_t first_row, ElementType type) {
  constexpr std::uint64_t least_period = 8;  // of a tensor core's fragments
  constexpr std::uint64_t max_tile = 256;    // rows or columns of a GEMM kernel's tile
  const std::vector<GemmMismatches::Sample> samples = found.samples();
  if (samples.size() < 2) return {};
  Json map{{"wrong", found.wrong}};
  std::set<std::uint64_t> rows, columns;
  for (const GemmMismatches::Sample& one : samples) {
    const std::uint64_t row = static_cast<std::uint64_t>(first_row) + one.row;
    rows.insert(row), columns.insert(one.column);
    map["rows"].push_back(row), map["columns"].push_back(one.column);
    map["expected"].push_back(value_text(one.expected, type));
    map["actual"].push_back(value_text(one.actual, type));
  }
  Json tile;
  bool is_tile = true;
  for (const auto& [name, known, all, first] :
       {std::tuple("row", &rows, &found.rows, static_cast<std::uint64_t>(first_row)),
        {"column", &columns, &found.columns, std::uint64_t{0}}}) {
    const std::uint64_t begin = first + all->first(), last = first + all->last,
                        size = std::bit_ceil((begin ^ last) + 1);
    map[name] = spacing(*known, least_period);
    map[name].update({{"first", begin}, {"last", last}});
    tile[name] = begin & ~(size - 1);
    tile[name + std::string("s")] = size;
    is_tile = is_tile && size <= max_tile;
  }
  map["tile"] = is_tile ? tile : Json();
  return map;
}

Mismatches::Sample lowest_sample(const Mismatches& found) {
  const std::size_t taken = samples_of(found).size();
  return *std::min_element(found.sample, found.sample + std::max<std::size_t>(taken, 1),
                           [](const auto& a, const auto& b) { return a.index < b.index; });
}

void show_mismatches(Fault& fault, const Mismatches& found, std::uint64_t offset) {
  fault.count = found.count;
  if (found.samples == 0) {
    fault.where += fault.where.empty() ? "" : ": ";
    fault.where += fmt::format("{} not compared", counted(found.count, "word"));
    return;
  }
  const Mismatches::Sample sample = lowest_sample(found);
  fault.offset = offset + sample.index * sizeof(std::uint32_t);
  show_difference(fault, sample.expected, sample.actual);
  std::map<std::uint64_t, Mismatches::Sample> words;
  for (const Mismatches::Sample& one : samples_of(found)) words[one.index] = one;
  fault.map = error_map(words, offset);
}

void show_mismatches(Fault& fault, const GemmMismatches& found, std::int64_t first_row, ElementType type) {
  const GemmMismatches::Sample lowest = found.samples().front();
  fault.where += fmt::format(", row {}, column {}", first_row + lowest.row, lowest.column);
  fault.count = found.wrong;
  fault.expected = value_text(lowest.expected, type);
  fault.actual = value_text(lowest.actual, type);
  fault.map = error_map(found, first_row, type);
}

void show_difference(Fault& fault, std::uint32_t expected, std::uint32_t actual) {
  if (expected == actual) return;
  fault.expected = hex(expected);
  fault.actual = hex(actual);
  fault.xor_mask = hex(expected ^ actual);
}

void show_difference(Fault& fault, const Digest& expected, const Digest& actual) {
  if (expected == actual) return;
  fault.expected = "digest " + hex(expected);
  fault.actual = "digest " + hex(actual);
}

void put_outcome(PartReport& report, const std::string& wrong, const std::string& undone) {
  report.failure = wrong.empty() ? undone : wrong;
  report.success = report.failure.empty();
  report.figures["undone"] = undone.empty() ? Json() : Json(undone);
}

void note_not_run(PartReport& report, const std::string& check, const std::string& reason) {
  report.figures["not_run"].push_back({{"check", check}, {"reason", reason}});
}

Json ratio_or_null(double amount, double per) {
  return per > 0 ? Json(amount / per) : Json();
}

}  // namespace egt
