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
#include "report/html/page.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// Builds the texts that rank 0 serves about its running run. Records arrive on one thread; other threads
/// request texts. A text is rebuilt on request if a record arrived since the last build, but at most once per
/// second. All clients share it.
class LiveRun : public Sink {
 public:
  struct Settings {
    std::string directory;  ///< run directory
    int ranks = 1;
    std::vector<Record> earlier;            ///< evidence from earlier parts of the run
    TimeLines lines;                        ///< time series of those parts
    std::function<Activity()> main_thread;  ///< current activity; called on the record thread
    double patience_seconds = 30;           ///< max time without a report from the main thread
  };
  explicit LiveRun(Settings settings);

  Status write(const Record& record) override;
  Status flush() override;
  /// The run has this final `result`, and its files are written: all texts show it from now on. Any thread.
  void finish(Json result);
  /// Called before the main thread's objects end: main_thread is not called after it returns. Any thread.
  void end();

  using Text = std::shared_ptr<const std::string>;
  enum Kind { page, data, result, metrics };
  static constexpr std::size_t kinds = 4;

  /// Text about the run so far: the page, its data (live_data_text), result.json or metrics.prom.
  Text text(Kind kind);
  /// JSON of the chart data from point `from` on, or of all points if a point no longer spans `seconds`.
  Text lines(std::size_t from, double seconds);
  /// The records of a rank's journal from byte `from` on, at most 1 MiB or one record: {"rank", "from",
  /// "next", "records"}. If the file is shorter than `from`, from its start. invalid_argument: no record
  /// starts there; unavailable: this node has no such journal.
  Result<std::string> journal(int rank, std::int64_t from) const;
  /// Why the run is not healthy: a stuck main thread, a fault or a lost rank. Empty if it is healthy.
  std::string trouble();

 private:
  void refresh();
  struct Points;
  const Points& points(std::size_t from);

  std::mutex main_mutex_;  ///< protects the settings' main_thread
  Settings settings_;
  std::mutex mutex_;  ///< protects the members below and the settings' lines
  KeptRecords kept_;
  bool has_news_ = true, has_ended_ = false;
  std::optional<double> made_at_;  ///< time of the last update, in steady seconds
  Json result_;
  LiveState state_;
  std::array<Text, kinds> texts_;
  struct Points {
    double seconds = 0;  ///< per point
    Text text;
  };
  std::map<std::size_t, Points> points_;  ///< by first point
  Activity main_;
  double main_read_at_ = steady_seconds();
};

}  // namespace egt
