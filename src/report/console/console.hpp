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

/// What people see of a run, on rank 0 only: results go to one stream, messages (faults, notices) and
/// progress to another, which may be the same. Used by one thread at a time; a stream may block it for ever.
class Console : public Sink {
 public:
  /// `seconds`: a clock that only grows. The streams outlive the console.
  Console(ConsoleStyle style, std::ostream& results, std::ostream& messages, std::function<double()> seconds);

  /// The banner, the devices and the network; `bodies`: those of all ranks' start records, in rank order.
  void on_start(const std::vector<Json>& bodies);
  /// Bytes of the rank's device in use after the memory part took its share.
  void on_memory_filled(int rank, std::uint64_t used_bytes, std::uint64_t total_bytes);
  /// Shows a fault, injection or notice at once, an epoch or progress record as the style says; ignores the
  /// others.
  Status write(const Record& record) override;
  /// Redraws the bar where it is due.
  Status flush() override;
  /// What people should know, and no record tells.
  void on_warning(const std::string& text);
  /// Where the live page is, in every style: the user asked for it, and may not know its port.
  void on_live_page(const std::string& url);
  /// Lines that a command tells before the verdict.
  void on_summary(const std::string& lines);
  /// The last word. `result`: that of build_result; `directory`: where the files are, with result.json if
  /// `has_result`.
  void on_verdict(const Verdict& verdict, const Json& result, const std::string& directory,
                  bool has_result = true);

 private:
  void show_fault(const Record& record);
  void show_notice(const Record& record);
  void show_event(const Record& record, Colour colour);
  void show_epoch(const Record& record);
  void note_progress(const Record& record);
  void print(std::ostream& stream, const std::string& text);
  void erase_bar();
  void draw_bar();
  bool has_bar() const { return style_.progress == ProgressStyle::bar; }
  std::string line(const Record& record) const;
  Json start_of(int rank) const;
  Status state() const;

  ConsoleStyle style_;
  std::ostream& results_;
  std::ostream& messages_;
  std::function<double()> seconds_;
  std::vector<Json> starts_;             // by rank
  std::map<int, Json> progress_;         // last body of each rank
  std::map<int, std::uint64_t> faults_;  // by rank; -1: not known whose
  std::uint64_t fault_count_ = 0, injection_count_ = 0;
  std::string last_epoch_;
  std::vector<int> bar_columns_;  // of each of its lines on the screen now
  std::optional<double> drawn_;
  bool due_ = false;  // something is new since it was drawn
};

/// On this process's standard output and error, past the buffers of the C and C++ libraries: a terminal that
/// blocks holds nobody but the thread that writes.
std::shared_ptr<Console> open_console(const ConsoleStyle& style);

}  // namespace egt
