#pragma once

#include <functional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "session/selftest/selftest_plan.hpp"

/// Synthetic records of selftests.
namespace egt::fixtures {

inline Injection injection_of(InjectionKind kind, int rank, std::int64_t step = 0) {
  Injection injection;
  injection.kind = kind;
  injection.rank = rank;
  injection.step = step;
  return injection;
}

inline Record struck(const Injection& injection, std::int64_t step) {
  Json body = to_json(injection);
  body["struck_step"] = step;
  return {.kind = RecordKind::injection, .time = 1010, .rank = injection.rank, .step = step, .body = body};
}

/// The fault kind that reports this injection.
inline std::string fault_kind(InjectionKind kind) {
  if (kind == InjectionKind::memory_gemm) return "gemm";
  switch (detector_of(kind)) {
    case Detector::replica:
      return "replica";
    case Detector::replay:
      return kind == InjectionKind::all_reduce ? to_string(kind) : "replay";
    case Detector::host_copy:
      return "link";
    default:
      return to_string(kind);
  }
}

/// Reported by `reporter`: rank 0, or for memory and files the rank itself.
inline Record fault_of(const Injection& injection, std::int64_t step, int rank,
                       Blame blame = Blame::certain) {
  Fault fault;
  fault.kind = fault_kind(injection.kind);
  fault.detector = injection.kind == InjectionKind::host_copy ? "host copies" : fault.kind + " check";
  fault.part = row_of(detector_of(injection.kind)).part;
  fault.rank = rank;
  fault.step = step;
  fault.where = "somewhere";
  fault.blame = blame;
  const bool local = !looks_every_period(detector_of(injection.kind));
  return {.kind = RecordKind::fault,
          .time = 1011,
          .rank = local ? injection.rank : 0,
          .step = step,
          .body = to_json(fault)};
}

/// Every injection occurred at its step and was detected one step later, except those rejected by `is_found`.
inline std::vector<Record> records_of(
    const SelftestPlan& plan,
    const std::function<bool(const Injection&)>& is_found = [](const Injection&) { return true; }) {
  std::vector<Record> records;
  for (const Injection& injection : plan.injections) {
    records.push_back(struck(injection, injection.step));
    if (is_found(injection)) records.push_back(fault_of(injection, injection.step + 1, injection.rank));
  }
  return records;
}

}  // namespace egt::fixtures
