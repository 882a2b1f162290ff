#pragma once

#include <span>
#include <string>
#include <vector>

#include "egt/core/extent.hpp"
#include "egt/core/histogram.hpp"
#include "egt/device/sensor.hpp"
#include "egt/workload/workload.hpp"
#include "loadtest/load_test.hpp"

namespace egt {

/// Measurements of a rank in a test.
struct LoadRun {
  Histogram ms;        ///< of the iterations after the warm-up
  double seconds = 0;  ///< their total time, without meetings and checks
  Extent gpu_utilization, gpu_memory_mb, cpu, host_memory;

  void add(const SensorReading& reading, const HostLoad& host);
};

/// A rank's values as numbers for the exchange between ranks; NaN: not measured.
std::vector<double> rank_figures(const LoadRun& run, const LoadJobFigures& job);

/// A test's result over all ranks.
struct LoadEntry {
  LoadTest test;
  Json figures = Json::object();
  std::string failure;  ///< empty: success
};

/// `all`: rank_figures of every rank, in rank order; `run` and `job`: this rank's.
Json entry_figures(const LoadTest& test, const LoadTestParts& parts, std::span<const double> all, int ranks,
                   const LoadRun& run, const LoadJobFigures& job);
PartReport report_of(const LoadEntry& entry);
/// One line for the console.
std::string line_of(const LoadEntry& entry);

}  // namespace egt
