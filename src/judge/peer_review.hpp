#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "judge/peer_comparison.hpp"

namespace egt {

/// Shorter passes are dominated by launch overhead, and on the host by other processes' cache use. With 0.2
/// ms passes, two equal ranks differed by 8 % for a minute while a compiler ran.
constexpr double shortest_pass_ms = 2;

/// What the error counter `name` gained during the run; std::nullopt if the device does not report it.
/// `counters`: of one rank, as in result.json.
std::optional<double> new_errors(const Json& counters, const char* name);

/// Compares every rank with the others of its device model, from the start, progress and end records of all
/// ranks. Pure: the same records in the same order give the same findings, live or from journals.
///
/// Only deviations that cost performance are judged:
/// - Compute time per sample of the rank's own pass. Step times include waits for peers, which equalize them.
///   Limit: 5 %, or 2.5 % if that also exceeds six median absolute deviations. Power-capped devices of one
///   model differ that much. Passes shorter than 2 ms are not compared.
/// - Memory and file bandwidth below half of the median. They run concurrently with all other work, and ranks
///   of a node share its disk and cores. So only large differences that last two minutes count.
/// - Power from the energy counter, 10 % below the median of the same model and power limit: a regulator,
///   cable or power supply may be broken. Devices throttled by heat or by the limiter are excluded. The
///   median must be at least 80 % of the limit; below that, devices of one model differ anyway.
/// - New corrected memory errors (ECC): at least 100, and ten times the median of the peers.
/// Temperature and clocks appear only in the table. Heat that slows a device down shows in its compute time.
/// A slow link delays all ranks alike; `links` detects it.
class PeerReview {
 public:
  /// Returns the findings that this record adds.
  std::vector<Finding> add(const Record& record);

  /// A table as in result.json's `telemetry`: {rank: {metric: {"value", "median", "ratio"}}}. Metrics:
  /// compute_ms, compute_tflops, memory_gb_per_s, write_gb_per_s, read_gb_per_s, power_w, temperature_c,
  /// sm_clock_mhz. All cover the whole run; null: not measured. `median`: over the ranks of the same device
  /// model. `ratio`: value over median, null without peers.
  Json to_json() const;

 private:
  static constexpr std::size_t judged = 5;

  /// Accumulated work, and the time it took.
  struct Done {
    double work = 0;
    double ms = 0;
  };
  struct Peer {
    std::string model, hostname, device_uuid;
    std::optional<double> power_limit_w;
    double samples = 1;                              ///< per step
    Json body;                                       ///< of the last progress or end record
    std::array<std::optional<Done>, judged> before;  ///< at the end of the previous window
    double heat_before = 0;  ///< accumulated seconds of throttling at the end of that window
    std::set<std::string> corrects_more = {};  ///< counters of corrected errors whose excess was reported
  };

  void start(const Record& record);
  void begin();
  std::vector<Finding> close_window(double time);
  std::vector<Finding> compare_corrected();
  std::optional<Done> done(std::size_t figure, int rank) const;
  void leave_out_held_down(std::vector<double>& times);
  Finding finding(std::size_t figure, const PeerStanding& standing) const;
  std::optional<double> value(std::size_t column, int rank) const;

  std::map<int, Peer> peers_;
  int size_ = 0;
  std::vector<PeerComparison>
      comparisons_;  ///< one per judged metric, once all ranks sent their start records
};

}  // namespace egt
