#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "report/console/console.hpp"

namespace egt {

/// Shows a run that other processes execute, from the journals in its directory.
class RunWatch {
 public:
  /// `console` outlives the object.
  RunWatch(std::string directory, Console& console) : directory_(std::move(directory)), console_(console) {}

  /// Shows the records that were added since the last call. Returns the exit code if the run has ended, after
  /// its result or, if its processes left none, after a warning (`incomplete`); otherwise empty. unavailable:
  /// the directory has no journal.
  Result<std::optional<int>> update();

 private:
  struct Rank {
    std::int64_t read = 0;  ///< bytes of its journal
    Json start;             ///< body of its last start record
    bool has_ended = false;
  };

  Status read();
  void show(bool is_last = false);
  bool is_complete() const;
  bool is_alive() const;
  std::optional<Json> result() const;

  const std::string directory_;
  Console& console_;
  std::map<int, Rank> ranks_;
  std::vector<Record> pending_;  ///< not shown yet
  int updates_ = 0, updates_without_news_ = 0;
  bool has_begun_ = false;
};

}  // namespace egt
