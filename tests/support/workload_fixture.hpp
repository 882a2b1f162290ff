#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "device/host/host_device.hpp"
#include "device/injection/forwarding_device.hpp"
#include "egt/core/clock.hpp"
#include "egt/workload/workload.hpp"
#include "tests/support/single_rank_communicator.hpp"

namespace egt::test {

using egt::ForwardingDevice;

constexpr std::uint64_t test_memory_bytes = 256u << 20;

inline std::unique_ptr<Device> small_host_device() {
  auto device = open_host_device(
      {.local_rank = 0, .local_size = 1, .cores = 1, .memory_total_bytes = test_memory_bytes});
  return device.ok() ? std::move(device.value()) : nullptr;
}

/// Environment of a workload: one rank with a small host device.
struct World {
  /// `faults_on_purpose`: in the syntax of `--inject`; this rank is 3.
  explicit World(std::unique_ptr<Device> a_device = small_host_device(),
                 std::vector<Injection> faults_on_purpose = {})
      : injections(std::move(faults_on_purpose)), device(std::move(a_device)) {}

  std::vector<Injection> injections;

  std::unique_ptr<Device> device;
  SingleRankCommunicator communicator{*device};
  RecordQueue records{0};
  RankPlace place{.rank = 3, .size = 4, .local_rank = 0, .local_size = 1, .hostname = "node7"};
  Injector injector{injections, place, records};
  ProgressBoard board;
  LoadControl load;
  Environment environment{*device, communicator, records, place, 42, injector, "test device", board, load};

  /// All faults emitted since the last call; notices are kept in `notices`.
  std::vector<Json> faults() {
    std::vector<Json> found;
    for (const Record& record : records.drain()) {
      if (record.kind == RecordKind::fault) found.push_back(record.body);
      if (record.kind == RecordKind::notice) notices.push_back(record.body["text"].get<std::string>());
    }
    return found;
  }
  std::vector<std::string> notices;
};

/// Returns true once `condition` is true, or false after 20 s.
template <typename Condition>
bool eventually(const Condition& condition) {
  const Clock::time_point start = Clock::now();
  while (!condition()) {
    if (seconds_since(start) > 100) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace egt::test
