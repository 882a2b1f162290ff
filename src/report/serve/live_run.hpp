#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/progress_board.hpp"
#include "egt/report/sink.hpp"
#include "judge/kept_records.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// A run while it goes on, as rank 0 knows it, in the texts that are served. Records come on one thread,
/// texts are asked for on others. A text is at most as old as the last record, and made once a second at
/// most, whoever asks; those who ask share it.
class LiveRun : public Sink {
 public:
  struct Settings {
    std::string directory;  ///< of the run
    int ranks = 1;
    std::vector<Record> earlier;            ///< the evidence of the run's parts before this one
    TimeLines lines;                        ///< theirs
    std::function<Activity()> main_thread;  ///< what it does now; called on the thread of the records
    double patience_seconds = 30;           ///< how long that may take where it does not say
  };
  explicit LiveRun(Settings settings) : settings_(std::move(settings)) {}

  Status write(const Record& record) override;
  Status flush() override;
  /// The main thread's surroundings go: it is asked for no more, once this returns. Any thread.
  void end();

  using Text = std::shared_ptr<const std::string>;
  enum Kind { page, parts, result, metrics };
  static constexpr std::size_t kinds = 4;

  /// Of the run so far: the page, what of it changes (live_parts_text), result.json and metrics.prom.
  Text text(Kind kind);
  /// What the charts show from point `from` on, or, where a point is not `seconds` any more, all of it: JSON.
  Text lines(std::size_t from, double seconds);
  /// The records of a rank's journal from byte `from` on, 1 MiB or one record at most: {"rank", "from",
  /// "next", "records"}. Where the file was begun anew meanwhile, from its begin. invalid_argument: no record
  /// begins there; unavailable: this host has no such journal.
  Result<std::string> journal(int rank, std::int64_t from) const;
  /// Why nobody should rely on the run: the main thread is stuck, a fault, a lost rank. Empty: it is well.
  std::string trouble();

 private:
  void refresh();
  struct Points;
  const Points& points(std::size_t from);

  std::mutex main_mutex_;  ///< of the settings' main_thread
  Settings settings_;
  std::mutex mutex_;  ///< of what follows, and of the settings' lines
  KeptRecords kept_;
  bool has_news_ = true;
  std::optional<double> made_at_;  ///< steady seconds
  Json result_;
  std::array<Text, kinds> texts_;
  struct Points {
    double seconds = 0;  ///< of each
    Text text;
  };
  std::map<std::size_t, Points> points_;  ///< by the first
  Activity main_;
  double main_read_at_ = steady_seconds();
};

}  // namespace egt
