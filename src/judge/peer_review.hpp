#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "judge/peer_comparison.hpp"

namespace egt {

/// Compares every rank with the others of its device model, from all ranks' records (start, progress and end;
/// others change nothing). Pure: the same records in the same order give the same findings, in a run and out
/// of its journals.
///
/// Judged is only what costs performance, and only in that direction:
/// - the compute time of a step, for a sample: of a rank's own pass, without waits for its peers, which make
///   the time from step to step the same for all. Beyond 5 %, or beyond six median absolute deviations and
///   3 %: devices of one model differ that much between themselves when their power is capped. Passes of
///   less than 2 ms are not compared.
/// - bandwidths of memory and files: below half of the median. They are measured beside all the other work,
///   in the time that it leaves, and ranks of a node share its disk and its cores: smaller differences are no
///   rank's own, larger ones that last for two minutes are.
/// - power, by the energy counter: 10 % below the median of the devices of one model and power limit, where
///   that median is at least 80 % of the limit: a broken regulator, cable or power supply. Not while heat or
///   the guard holds one down. Below 80 % devices of one model differ by themselves.
/// - new corrected memory errors (ECC): at least 100, and ten times the median of its peers.
/// Temperature and clocks are in the table alone: a cooler device is no fault, and one that heat slows down
/// shows in its compute time. A slow link between ranks holds all of them up alike: `links` finds it.
class PeerReview {
 public:
  /// What is new with this record.
  std::vector<Finding> add(const Record& record);

  /// A table as in result.json's `telemetry`: {rank: {figure: {"value", "median", "ratio"}}} with the figures
  /// compute_ms, compute_tflops, memory_gb_per_s, write_gb_per_s, read_gb_per_s, power_w, temperature_c,
  /// sm_clock_mhz, each over the whole run; null: not measured. `median`: of the ranks of its device model;
  /// `ratio`: value over median, null where it has no peers.
  Json to_json() const;

 private:
  static constexpr std::size_t judged = 5;

  /// Work done so far, and the time it took.
  struct Done {
    double work = 0;
    double ms = 0;
  };
  struct Peer {
    std::string model, hostname, device_uuid;
    std::optional<double> power_limit_w;
    double samples = 1;                              ///< a step
    Json body;                                       ///< of the last progress or end
    std::array<std::optional<Done>, judged> before;  ///< at the end of the window before
    double heat_before = 0;                          ///< seconds under heat by then
    bool corrects_more = false;                      ///< it was reported that it corrects more errors
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
  std::vector<PeerComparison> comparisons_;  ///< a judged figure each, once all ranks have told who they are
};

}  // namespace egt
