#include "egt/workload/findings.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace egt {

std::uint64_t pattern_seed(const Environment& environment, PatternPurpose purpose, std::uint64_t place,
                           std::uint64_t generation) {
  std::uint64_t seed = environment.seed;
  for (const std::uint64_t part : {static_cast<std::uint64_t>(purpose),
                                   static_cast<std::uint64_t>(environment.place.rank), place, generation})
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
  fault.phase = std::move(phase);
  return fault;
}

std::string hex(std::uint32_t word) {
  return fmt::format("0x{:08x}", word);
}

Mismatches::Sample lowest_sample(const Mismatches& found) {
  const auto taken = std::min<std::uint64_t>(found.samples, Mismatches::max_samples);
  return *std::min_element(found.sample, found.sample + std::max<std::uint64_t>(taken, 1),
                           [](const auto& a, const auto& b) { return a.index < b.index; });
}

void describe_mismatch(Fault& fault, const Mismatches& found, const Mismatches::Sample& sample) {
  fault.expected = hex(sample.expected);
  fault.actual = hex(sample.actual);
  fault.xor_mask = hex(sample.expected ^ sample.actual);
  fault.count = found.count;
}

void describe_digests(Fault& fault, const Dissent& dissent) {
  const Digest difference{dissent.expected.a ^ dissent.actual.a, dissent.expected.b ^ dissent.actual.b};
  fault.expected = "0x" + to_string(dissent.expected);
  fault.actual = "0x" + to_string(dissent.actual);
  fault.xor_mask = "0x" + to_string(difference);
}

Json ratio_or_null(double amount, double per) {
  return per > 0 ? Json(amount / per) : Json();
}

}  // namespace egt
