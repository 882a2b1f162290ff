#pragma once

#include <cstddef>
#include <cstdint>
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

/// When and amid what the counters were read.
struct LedgerMoment {
  double seconds = 0;      ///< on a steady clock; never falls
  std::int64_t step = -1;  ///< of training; -1: outside the steps
  std::string phase;       ///< what the rank is doing
  std::optional<double> utilization_percent;
};

/// What is to be reported now.
struct CounterNews {
  std::vector<Fault> faults;  ///< all of them of certain blame
  std::vector<Finding> findings;
  std::vector<std::string> notices;
};

/// Keeps a device's error counters: before, after, and in which phase each moved; and judges them, as a pure
/// function of what it is shown. Each thing is reported once.
///
/// Faults: new uncorrectable memory errors ("ecc"); a row remap newly pending or failed ("remap"); an Xid of
/// the hardware kinds ("xid"); an NVLink that went down or had to recover ("nvlink"; where the device reports
/// failed recoveries apart, only those); a device that is lost, or answers nothing for silent_seconds
/// ("gpu-lost").
/// Findings: what of this was so before the run; new corrected memory errors above the limit ("ecc"); other
/// Xids but those of other programs ("xid"); NVLink recoveries that did well, and a PCIe link below its
/// generation or width for narrow_seconds under load ("link"); a driver that keeps a look for stalled_seconds
/// ("sensor"). Notices: new corrected memory errors with their rate, every corrected_seconds at most; Xids of
/// other programs; NVLink errors that the link put right itself. PCIe replays are kept only.
///
/// For one thread at a time.
class ErrorCounterMonitor {
 public:
  static constexpr double silent_seconds = 10;
  static constexpr double stalled_seconds = 15;
  static constexpr double narrow_seconds = 30;
  static constexpr double corrected_seconds = 60;
  static constexpr double load_percent = 50;  ///< of utilization: from here on it is under load

  /// `corrected_limit`: new corrected memory errors that are no finding; none: any number.
  ErrorCounterMonitor(MonitoredDevice device, std::optional<CorrectedLimit> corrected_limit);

  /// A look at the counters, about every 1 to 5 s, and once at the end.
  CounterNews look(const LedgerMoment& moment, const Result<SensorCounters>& counters);
  /// No look has come for too long? To be asked by a thread that does not wait for the driver. `seconds` is
  /// of the same clock.
  CounterNews overdue(double seconds);
  /// After the last look: what is still to be reported.
  CounterNews finish();

  /// {name: {before, after, moved}}: null what was not answered; `moved`, where it did: {phase: by how much}.
  /// Further `xid`: [{xid, time, step, phase, detail}], null where nobody reports Xids; `nvlinks`: [{link,
  /// up, crc, replay, recovery, recovery_failed}], each {before, after, moved}; `pcie_generation` and
  /// `pcie_width`: {before, after, max, under_load}, the latter as last seen under load.
  Json counters() const;

 private:
  /// A figure before and after, and what it grew by in which phase.
  struct Counter {
    std::optional<std::uint64_t> before, after;  ///< none: the device does not report it, or no longer
    std::map<std::string, std::uint64_t> moved;
    std::uint64_t last = 0, peak = 0;  ///< values seen
    bool was_missing = false;          ///< it was looked at and not there

    /// By how much it grew. One that falls was reset and counts on from there; if the next value is the peak
    /// or more, the fall was a wrong reading. `from_zero`: one that was missing at first grew from 0.
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
  /// A property of the PCIe link.
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

  void look_at_memory(const SensorCounters& now, CounterNews& news);
  void look_at_corrected(CounterNews& news);
  void report_corrected(CounterNews& news);
  bool is_of_this_process(const XidEvent& event) const;
  void look_at_remaps(const SensorCounters& now, CounterNews& news);
  void look_at_xids(const SensorCounters& now, CounterNews& news);
  void tell_xid(const XidEvent& event, CounterNews& news);
  void look_at_links(const SensorCounters& now, CounterNews& news);
  void look_at_link(const LinkCounters& now, CounterNews& news);
  void look_at_pcie(Lane& lane, const char* name, std::optional<unsigned> now, std::optional<unsigned> max,
                    CounterNews& news);
  void look_at_silence(const Status& status, CounterNews& news);
  void tell_answer(CounterNews& news);
  void tell_lost(const std::string& why, CounterNews& news);

  Fault fault(const char* kind, std::string where, std::string expected, std::string actual,
              std::uint64_t count = 1) const;
  /// The first time that this is asked of it.
  bool first(const std::string& what) { return told_.insert(what).second; }

  const MonitoredDevice device_;
  const std::optional<CorrectedLimit> corrected_limit_;
  LedgerMoment moment_;  ///< of the newest look
  std::set<std::string> told_;

  Counter ecc_corrected_, ecc_uncorrected_, remapped_rows_, remapped_rows_uncorrected_, pcie_replay_;
  Counter nvlink_crc_, nvlink_replay_, nvlink_recovery_;
  struct Reported {
    double seconds = 0;       ///< up to when
    std::uint64_t count = 0;  ///< of the new corrected errors by then
  };
  Reported corrected_reported_;                  ///< in notices
  std::optional<double> corrected_reported_at_;  ///< when the newest notice came
  Reported corrected_hour_;                      ///< at the beginning of the current hour of the run
  Flag remap_pending_, remap_failure_;
  Lane generation_, width_;
  std::map<unsigned, Link> links_;
  bool xids_told_ = false;
  std::map<std::pair<unsigned, std::size_t>, SeenXid> xids_;  ///< by number, and which of that number

  std::optional<double> looked_, answered_;  ///< seconds of the newest look, and of the newest answer
  std::optional<double> asked_;              ///< seconds of the newest call of overdue
  bool missed_ = false;                      ///< it was reported that no answer comes
};

}  // namespace egt
