#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "egt/core/record.hpp"

namespace egt {

/// Where producers put records and the main thread takes them; safe from any thread. Bounded: when full, a
/// notice or progress record is dropped and counted, but a fault, start or end record never is.
class RecordQueue {
 public:
  explicit RecordQueue(int rank, std::size_t capacity = 4096) : rank_(rank), capacity_(capacity) {}

  /// Stamps time and rank and puts the record in line.
  void emit(RecordKind kind, std::int64_t step, Json body);
  void emit(const Fault& fault) { emit(RecordKind::fault, fault.step, to_json(fault)); }
  void notice(std::string text) {
    emit(RecordKind::notice, -1, {{"level", "info"}, {"text", std::move(text)}});
  }
  void warning(std::string text) {
    emit(RecordKind::notice, -1, {{"level", "warning"}, {"text", std::move(text)}});
  }

  /// All that is in line, oldest first; never blocks.
  std::vector<Record> drain();
  std::size_t dropped() const;

 private:
  const int rank_;
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<Record> records_;
  std::size_t dropped_ = 0;
};

}  // namespace egt
