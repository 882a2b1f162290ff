#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "egt/core/record.hpp"

namespace egt {

/// Whether a queue suppresses a flood of faults.
enum class FaultLimit { flood, none };

/// True for informative records and for kinds whose next record replaces the last one. Never for evidence.
inline bool may_be_dropped(RecordKind kind) {
  return kind == RecordKind::notice || kind == RecordKind::progress || kind == RecordKind::epoch;
}

/// Queue of records from the producers to the main thread; thread-safe. Bounded: when full, a notice,
/// progress or epoch record is dropped and counted, but a fault, start or end record never is.
///
/// One cause may produce faults without end. With FaultLimit::flood, faults of one kind, detector and rank
/// are recorded once per place (`where`, `offset`), for up to `max_places` places; further ones are counted.
/// Provisional faults, and those that settle one, are always recorded; their emitter must keep them few.
class RecordQueue {
 public:
  static constexpr std::size_t max_places = 16;

  explicit RecordQueue(int rank, std::size_t capacity = 4096, FaultLimit limit = FaultLimit::flood)
      : rank_(rank), capacity_(capacity), limit_(limit) {}

  /// Stamps time and rank and enqueues the record.
  void emit(RecordKind kind, std::int64_t step, Json body);
  void emit(const Fault& fault);
  void emit(const Finding& finding, std::int64_t step = -1) {
    emit(RecordKind::finding, step, to_json(finding));
  }
  void notice(std::string text) {
    emit(RecordKind::notice, -1, {{"level", "info"}, {"text", std::move(text)}});
  }
  void warning(std::string text) {
    emit(RecordKind::notice, -1, {{"level", "warning"}, {"text", std::move(text)}});
  }

  /// Removes and returns all records, oldest first; never blocks.
  std::vector<Record> drain();
  std::size_t dropped() const;
  /// True once a fault was emitted.
  bool has_fault() const;
  /// Number of faults of kind `link` so far.
  std::uint64_t link_faults() const;
  /// Suppressed faults: [{"kind","detector","part","rank","count","last_time"}], with the time of the newest
  /// in seconds since 1970.
  Json repeats() const;

 private:
  bool holds_back(const Fault& fault);
  void put(RecordKind kind, std::int64_t step, Json body);

  const int rank_;
  const std::size_t capacity_;
  const FaultLimit limit_;
  mutable std::mutex mutex_;
  std::deque<Record> records_;
  std::size_t dropped_ = 0;
  bool has_fault_ = false;
  std::uint64_t link_faults_ = 0;

  struct Incidents {
    std::set<std::pair<std::string, std::uint64_t>> places;  ///< `where` and `offset` of recorded faults
    std::uint64_t held_back = 0;
    double last_time = 0;  ///< of the newest suppressed fault
    std::string part = {};
  };
  std::map<std::tuple<std::string, std::string, int>, Incidents> incidents_;  ///< by kind, detector and rank
};

}  // namespace egt
