#pragma once

#include <span>
#include <string>
#include <vector>

#include "egt/core/extent.hpp"
#include "egt/core/histogram.hpp"
#include "egt/device/sensor.hpp"
#include "egt/workload/workload.hpp"
#include "workload/loadtest/load_test.hpp"

namespace egt {

/// What a rank measured of a test.
struct LoadRun {
  Histogram ms;        ///< of the iterations behind the warm-up
  double seconds = 0;  ///< that they took, without meetings and checks
  Extent gpu_utilization, gpu_memory_mb, cpu, host_memory;

  void add(const SensorReading& reading, const HostLoad& host);
};

/// A rank's figures as numbers, so that ranks can exchange them; NaN: not measured.
std::vector<double> rank_figures(const LoadRun& run, const LoadJobFigures& job);

/// A test of all ranks.
struct LoadEntry {
  LoadTest test;
  Json figures = Json::object();
  std::string failure;  ///< empty: it is a success
};

/// `all`: rank_figures of every rank, one behind the other; `run` and `job`: this rank's.
Json entry_figures(const LoadTest& test, const LoadTestParts& parts, std::span<const double> all, int ranks,
                   const LoadRun& run, const LoadJobFigures& job);
PartReport report_of(const LoadEntry& entry);
/// For the console.
std::string line_of(const LoadEntry& entry);

}  // namespace egt
