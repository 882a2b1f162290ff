#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "egt/device/sensor.hpp"
#include "session/health/monitored_device.hpp"
#include "session/options.hpp"

namespace egt {

/// Time and context of a counter reading.
struct LedgerMoment {
  double seconds = 0;      ///< on a monotonic clock
  std::int64_t step = -1;  ///< training step; -1: outside the steps
  std::string phase;       ///< current phase of the rank
  std::optional<double> utilization_percent;
  bool after_link_fault = false;  ///< a link fault was reported since the last reading
};

/// Events to report now.
struct CounterNews {
  std::vector<Fault> faults;  ///< blame is certain in all of them
  std::vector<Finding> findings;
  std::vector<std::string> notices;
};

/// Tracks a device's error counters (before, after, changes per phase) and judges them. It is a pure function
/// of its input and reports each event once. One thread at a time.
/// - Fault "ecc": new uncorrectable memory errors.
/// - Fault "remap": a row remap newly pending or failed.
/// - Fault "xid": an Xid of the hardware kinds.
/// - Fault "nvlink": an NVLink that went down or had to recover. If the device counts failed recoveries
///   separately, only those are faults.
/// - Fault "gpu-lost": the device is lost, or does not answer for silent_seconds.
/// - Finding of the same kind instead of a fault: the condition existed before the run.
/// - Finding "remap" also: a memory bank has no spare rows, before or since the start of the run.
/// - Fault "pcie": new fatal errors of the PCIe link (AER).
/// - Finding of `corrected_counters`' kind: new corrected errors above the limit.
/// - Finding "host-memory" also: new uncorrectable errors of the memory of a GPU's node. Its GPUs are not to
///   blame, but their data may be wrong.
/// - Finding "nvswitch": a fatal SXid. Finding "driver": a message of the driver without an Xid.
/// - Finding "xid": other Xids, except those of other programs.
/// - Finding "link": successful NVLink recoveries, new uncorrected PCIe errors that are not fatal, or a PCIe
///   link below its generation or width for narrow_seconds under load.
/// - Finding "sensor": the driver blocks a reading for stalled_seconds.
/// - Notices: new corrected errors that are rare, with their rate (each counter once per corrected_seconds),
///   Xids of other programs, and messages of the kernel log about corrected errors.
class ErrorCounterMonitor {
 public:
  static constexpr double silent_seconds = 10;
  static constexpr double stalled_seconds = 15;
  /// If `overdue` is not called for so long, this process was stopped, and the time does not count as a
  /// blocked driver. A shorter pause plus the interval of the readings stays below stalled_seconds.
  static constexpr double paused_seconds = 8;
  static constexpr double narrow_seconds = 30;
  static constexpr double corrected_seconds = 60;
  static constexpr double load_percent = 50;  ///< min utilization that counts as load

  /// `corrected_limit`: accepted number of new errors of each of `corrected_counters`; unset: any number.
  ErrorCounterMonitor(MonitoredDevice device, std::optional<CorrectedLimit> corrected_limit);

  /// Processes one reading, about every 1 to 5 s and once at the end.
  CounterNews look(const LedgerMoment& moment, const Result<SensorCounters>& counters);
  /// Checks whether a reading is overdue. Call it from a thread that does not wait for the driver. `seconds`:
  /// on the clock of LedgerMoment.
  CounterNews overdue(double seconds);
  /// Returns pending reports after the last reading.
  CounterNews finish();

  /// Returns {name: {before, after, moved}}, with null for unanswered values; `moved` is {phase: increase},
  /// if it moved. `xid`: [{xid, time, step, phase, detail}], null if Xids are not reported. `nvlinks`:
  /// [{link, up, crc, replay, recovery, recovery_failed}], each {before, after, moved}. `pcie_generation` and
  /// `pcie_width`: {before, after, max, under_load}, the last as seen under load. Memory errors also by
  /// place, as far as the device counts them: `ecc_uncorrected_sram`, .. Memory banks by their spare rows:
  /// `remap_availability_max`, ..
  Json counters() const;

 private:
  /// A counter before and after the run, and its increase per phase.
  struct Counter {
    std::optional<std::uint64_t> before, after;  ///< std::nullopt: not reported, or no longer
    std::map<std::string, std::uint64_t> moved;
    std::uint64_t last = 0, peak = 0;  ///< values read
    bool was_missing = false;          ///< some reading lacked it

    /// Returns the increase. A counter that falls was reset and counts on from the lower value. If the next
    /// value reaches the peak, the lower one was a wrong reading. `from_zero`: a counter missing at first
    /// started at 0.
    std::uint64_t look(std::optional<std::uint64_t> now, const std::string& phase, bool from_zero = false);
    std::uint64_t grown() const;
    Json json() const;
  };
  struct Flag {
    std::optional<bool> before, after;

    enum class Change { none, set_before, newly_set };
    Change look(std::optional<bool> now);
    Json json() const;
  };
  struct Link {
    Counter crc, replay, recovery, recovery_failed;
    Flag down;
    Json json(unsigned link) const;
  };
  /// Generation or width of the PCIe link.
  struct Lane {
    std::optional<unsigned> before, after, max, under_load;
    std::optional<double> narrow_since;
    Json json() const;
  };
  struct SeenXid {
    XidEvent event;
    std::int64_t step = -1;
    std::string phase;
  };

  void report_moved_links(CounterNews& news);
  void look_at_memory(const SensorCounters& now, CounterNews& news);
  void look_at_corrected(const SensorCounters& now, CounterNews& news);
  void report_corrected(std::size_t row, CounterNews& news);
  void look_at_node(const SensorCounters& now, CounterNews& news);
  void look_at_log(const SensorCounters& now, CounterNews& news);
  bool is_of_this_process(const XidEvent& event) const;
  void look_at_remaps(const SensorCounters& now, CounterNews& news);
  void look_at_xids(const SensorCounters& now, CounterNews& news);
  void report_xid(const XidEvent& event, CounterNews& news);
  void look_at_links(const SensorCounters& now, CounterNews& news);
  void look_at_link(const LinkCounters& now, CounterNews& news);
  void look_at_pcie(Lane& lane, const char* name, std::optional<unsigned> now, std::optional<unsigned> max,
                    CounterNews& news);
  void look_at_silence(const Status& status, CounterNews& news);
  void report_answer(CounterNews& news);
  void report_lost(const std::string& why, CounterNews& news);

  Fault fault(const char* kind, std::string where, std::string expected, std::string actual,
              std::uint64_t count = 1) const;
  /// Returns whether this is the first call for `what`.
  bool first(const std::string& what) { return reported_.insert(what).second; }

  const MonitoredDevice device_;
  const std::optional<CorrectedLimit> corrected_limit_;
  LedgerMoment moment_;  ///< of the newest reading
  std::set<std::string> reported_;

  Counter ecc_uncorrected_, remapped_rows_, remapped_rows_uncorrected_, nvlink_recovery_;
  Counter pcie_nonfatal_, pcie_fatal_, host_ecc_uncorrected_;
  struct EccCounters {
    Counter corrected, uncorrected;
  };
  EccCounters ecc_at_[std::size(ecc_places)];
  Counter remap_availability_[std::size(remap_availabilities)];
  std::vector<std::string> moved_links_;  ///< since the previous reading, one text per counter
  struct Reported {
    double seconds = 0;       ///< end of the reported interval
    std::uint64_t count = 0;  ///< new corrected errors by then
  };
  struct Corrected {
    Counter counter;
    Reported reported;                  ///< up to the newest notice
    std::optional<double> reported_at;  ///< time of the newest notice
    Reported hour;                      ///< at the start of the current hour of the run
  };
  Corrected corrected_[std::size(corrected_counters)];
  Flag remap_pending_, remap_failure_;
  Lane generation_, width_;
  std::map<unsigned, Link> links_;
  bool xids_told_ = false;
  std::map<std::pair<unsigned, std::size_t>, SeenXid> xids_;  ///< by Xid number, and index of that number

  std::optional<double> looked_, answered_;  ///< times of the newest reading and of the newest answer
  std::optional<double> asked_;              ///< time of the newest call of overdue
  bool missed_ = false;                      ///< the missing answer was reported
};

}  // namespace egt
