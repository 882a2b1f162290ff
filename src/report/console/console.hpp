#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/report/sink.hpp"
#include "judge/verdict.hpp"
#include "report/console/console_text.hpp"

namespace egt {

/// The console output of a run, on rank 0 only. Results go to one stream, messages (faults, notices) and
/// progress to another, which may be the same. Used by one thread at a time. A stream may block that thread
/// forever.
class Console : public Sink {
 public:
  /// `seconds`: a monotonic clock. The streams must outlive the console.
  Console(ConsoleStyle style, std::ostream& results, std::ostream& messages, std::function<double()> seconds);

  /// The banner, devices and network. `bodies`: start record bodies of all ranks, in rank order; null:
  /// unknown.
  void on_start(const std::vector<Json>& bodies);
  /// Used bytes of the rank's device after the memory part allocated its share.
  void on_memory_filled(int rank, std::uint64_t used_bytes, std::uint64_t total_bytes);
  /// Shows faults, injections and notices at once, and the progress as the style defines.
  /// Ignores other records.
  Status write(const Record& record) override;
  /// Redraws the bar or prints a line of progress, if it is due.
  Status flush() override;
  /// Shows a warning that no record contains.
  void on_warning(const std::string& text);
  /// Shows the URL of the live page in every style, since its port may not be known.
  void on_live_page(const std::string& url);
  /// Lines of the command, printed before the verdict.
  void on_summary(const std::string& lines);
  /// Prints the verdict. `result` comes from build_result. `directory` contains the files, including
  /// result.json if `has_result`.
  void on_verdict(const Verdict& verdict, const Json& result, const std::string& directory,
                  bool has_result = true);

 private:
  void show_fault(const Record& record);
  void show_notice(const Record& record);
  void show_event(const Record& record, Colour colour);
  void show_line(std::optional<Colour> colour, const std::string& text);
  void show_epoch(const Record& record);
  void note_progress(const Record& record);
  const ConsoleStyle& style_with_columns();
  void print(std::ostream& stream, const std::string& text);
  void erase_bar();
  void draw_bar();
  void print_status();
  bool has_bar() const { return style_.progress == ProgressStyle::bar; }
  bool has_lines() const {
    return style_.progress == ProgressStyle::lines && style_.messages <= LogLevel::info;
  }
  std::string line(const Record& record) const;
  std::string label(int rank) const;
  Json start_of(int rank) const;
  Status state() const;

  ConsoleStyle style_;
  std::ostream& results_;
  std::ostream& messages_;
  std::function<double()> seconds_;
  std::vector<Json> starts_;             // by rank
  std::map<int, Json> progress_;         // last body of each rank
  double progress_time_ = 0;             // of the last one, in seconds since 1970
  std::map<int, std::uint64_t> faults_;  // by rank; -1: unknown rank
  bool has_provisional_ = false;         // a fault that was not located when it was reported
  std::uint64_t fault_count_ = 0, injection_count_ = 0;
  std::string last_epoch_;
  std::vector<int> bar_columns_;  // width of each bar line on the screen
  std::optional<double> drawn_;
  bool due_ = false;  // new data since the last redraw
};

/// Writes to this process's stdout and stderr, bypassing the buffers of the C and C++ libraries. A blocked
/// terminal then blocks only the writing thread.
std::shared_ptr<Console> open_console(const ConsoleStyle& style);

}  // namespace egt
