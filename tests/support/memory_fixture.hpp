#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/workload_fixture.hpp"
#include "workload/memory/memory_workload.hpp"

namespace egt::test {

inline MemoryOptions fill_of(std::uint64_t bytes, int buffer_iterations = 3) {
  return {.fill = {.share = 0, .bytes = bytes, .is_share = false}, .buffer_iterations = buffer_iterations};
}

inline std::uint64_t figure(const Workload& workload, const char* name) {
  return workload.report().figures.at(name).get<std::uint64_t>();
}

inline std::vector<Injection> injections_of(const std::vector<std::string>& texts) {
  std::vector<Injection> injections;
  for (const std::string& text : texts) injections.push_back(parse_injection(text).value());
  return injections;
}

/// The bodies of all records of one kind; those of other kinds are lost.
inline std::vector<Json> bodies(World& world, RecordKind kind) {
  std::vector<Json> found;
  for (const Record& record : world.records.drain())
    if (record.kind == kind) found.push_back(record.body);
  return found;
}

}  // namespace egt::test
