#include "report/console/console.hpp"

#include <unistd.h>

#include <algorithm>
#include <ostream>
#include <sstream>

#include <fmt/format.h>

#include "egt/core/clock.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "report/console/console_text.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

constexpr double redraw_period_s = 0.25, line_period_s = 10;
/// Limits the output of a badly broken device. The journal has every fault.
constexpr std::uint64_t max_faults_shown = 50;

}  // namespace

Console::Console(ConsoleStyle style, std::ostream& results, std::ostream& messages,
                 std::function<double()> seconds)
    : style_(style), results_(results), messages_(messages), seconds_(std::move(seconds)) {}

void Console::on_start(const std::vector<Json>& bodies) {
  starts_ = bodies;
  if (!has_bar()) drawn_ = seconds_();
  if (style_.progress == ProgressStyle::none || bodies.empty()) return;
  const bool name_host = several_hosts(bodies);
  std::string text = text_at(bodies[0], "command") == "burn" ? banner_text(style_) + "\n\n" : "";
  for (const Json& body : bodies)
    if (!body.is_null()) text += device_text(body, name_host) + "\n";
  if (!member(bodies[0], "layers").empty()) text += fmt::format("\n{}\n", network_text(bodies[0]));
  if (const std::string defaults = host_defaults_text(bodies[0]); !defaults.empty()) text += defaults + "\n";
  print(results_, wrapped_prose(text, style_with_columns().results_columns));
}

void Console::on_memory_filled(int rank, std::uint64_t used_bytes, std::uint64_t total_bytes) {
  if (style_.progress == ProgressStyle::none) return;
  print(results_, memory_text(label(rank), used_bytes, total_bytes));
}

Status Console::write(const Record& record) {
  switch (record.kind) {
    case RecordKind::fault:
      show_fault(record);
      break;
    case RecordKind::notice:
      show_notice(record);
      break;
    case RecordKind::epoch:
      if (record.rank == 0) show_epoch(record);
      break;
    case RecordKind::progress:
    case RecordKind::end:
      note_progress(record);
      break;
    case RecordKind::injection:
      if (++injection_count_ <= max_faults_shown) show_event(record, Colour::yellow);
      break;
    case RecordKind::loss:
      show_event(record, Colour::red);
      break;
    case RecordKind::finding:
    case RecordKind::restart:
      show_event(record, Colour::yellow);
      break;
    case RecordKind::late_stop:  // already shown when it occurred
    case RecordKind::start:
      break;  // on_start shows all ranks together
  }
  return state();
}

Status Console::flush() {
  const bool rested = !drawn_ || seconds_() - *drawn_ >= (has_bar() ? redraw_period_s : line_period_s);
  if (due_ && rested && has_bar()) draw_bar();
  if (due_ && rested && has_lines()) print_status();
  return state();
}

void Console::on_live_page(const std::string& url) {
  print(messages_, "live page: " + url);
}

/// The terminal may have got another width since the last output.
const ConsoleStyle& Console::style_with_columns() {
  if (!style_.results_terminal.empty())
    style_.results_columns = static_cast<std::size_t>(terminal_size(style_.results_terminal).columns);
  return style_;
}

void Console::on_summary(const std::string& lines) {
  print(results_, fmt::format("\n{}", wrapped_prose(lines, style_with_columns().results_columns)));
}

void Console::on_verdict(const Verdict& verdict, const Json& result, const std::string& directory,
                         bool has_result) {
  print(results_,
        fmt::format("\n{}", verdict_text(style_with_columns(), verdict, result, directory, has_result)));
  due_ = false;
}

void Console::show_fault(const Record& record) {
  const int rank = value_at<int>(record.body, "rank").value_or(-1);
  // Provisional faults are not counted, since a final one follows.
  if (value_at<bool>(record.body, "provisional").value_or(false))
    has_provisional_ = true;
  else
    ++faults_[rank];
  due_ = true;
  if (level_of(record) < style_.messages || ++fault_count_ > max_faults_shown) return;
  show_line(Colour::red, line(record));
  if (fault_count_ == max_faults_shown)
    show_line(Colour::red, "More faults are counted and listed in the journals only.");
}

void Console::show_notice(const Record& record) {
  const LogLevel level = level_of(record);
  const bool warning = level == LogLevel::warning;
  if (level < style_.messages || (style_.progress == ProgressStyle::none && !warning)) return;
  if (warning)
    show_line(Colour::yellow, "Warning: " + line(record));
  else
    show_line(std::nullopt, line(record));
}

void Console::on_warning(const std::string& text) {
  Record record;
  record.body = {{"level", "warning"}, {"text", text}};
  show_notice(record);
}

void Console::show_event(const Record& record, Colour colour) {
  if (level_of(record) < style_.messages) return;
  show_line(colour, line(record));
}

/// Wrapped in a terminal; in a pipe each record stays one line, or two for a fault.
void Console::show_line(std::optional<Colour> colour, const std::string& text) {
  erase_bar();  // gets the size of the terminal
  const std::size_t columns = style_.terminal.empty() ? 0 : static_cast<std::size_t>(style_.size.columns);
  const std::string lines = wrapped_prose(text, columns);
  print(messages_, colour ? coloured(style_.messages_colour, *colour, lines) : lines);
}

/// The record's line, with the node if there are several.
std::string Console::line(const Record& record) const {
  return line_of(record, start_of(value_at<int>(record.body, "rank").value_or(-1)), starts_.size(),
                 several_hosts(starts_));
}

void Console::show_epoch(const Record& record) {
  const bool is_first = last_epoch_.empty();
  last_epoch_ = line(record);
  due_ = true;
  if (is_first && has_lines()) print(messages_, last_epoch_);
}

void Console::note_progress(const Record& record) {
  progress_[record.rank] = record.body;
  progress_time_ = record.time;
  due_ = true;
}

/// Prints one or more lines above the bar.
void Console::print(std::ostream& stream, const std::string& text) {
  erase_bar();
  stream << text << std::endl;
}

/// Starts at column 1, since the terminal echoes input such as "^C" at the cursor. Accounts for lines that
/// wrapped after the window became narrower.
void Console::erase_bar() {
  if (!style_.terminal.empty()) style_.size = terminal_size(style_.terminal);
  if (bar_columns_.empty()) return;
  int lines = 0;
  for (const int columns : bar_columns_)
    lines += std::max(1, (columns + style_.size.columns - 1) / style_.size.columns);
  messages_ << fmt::format("\r\x1b[{}A\x1b[J", lines) << std::flush;
  bar_columns_.clear();
  due_ = true;
}

void Console::draw_bar() {
  const auto first = progress_.begin();
  if (first == progress_.end() || starts_.empty()) return;
  erase_bar();
  std::vector<std::string> lines = {bar_text(style_, start_of(first->first), first->second)};
  if (!last_epoch_.empty()) lines.push_back(last_epoch_);
  lines.push_back(row_header());
  for (const auto& [rank, body] : progress_)
    lines.push_back(row_text(label(rank), start_of(rank), body, faults_[rank]));
  // Lines above the top of the window cannot be erased. tmux also keeps lines that are erased from the top
  // line on.
  const auto fit = static_cast<std::size_t>(std::max(style_.size.lines - 2, 0));
  if (fit > 0 && lines.size() > fit) {
    const std::size_t left_out = lines.size() - fit + 1;
    lines.resize(fit - 1);
    lines.push_back(fmt::format("({} more lines)", left_out));
  }
  for (std::string& line : lines) {
    line = clipped(line, style_.size.columns - 1);
    bar_columns_.push_back(columns_of(line));
    messages_ << line << '\n';
  }
  messages_ << std::flush;
  drawn_ = seconds_();
  due_ = false;
}

void Console::print_status() {
  if (progress_.empty() || starts_.empty()) return;
  std::uint64_t faults = 0;
  for (const auto& [rank, count] : faults_) faults += count;
  print(messages_, status_line(progress_time_, start_of(progress_.begin()->first), progress_, last_epoch_,
                               faults, has_provisional_));
  drawn_ = seconds_();
  due_ = false;
}

std::string Console::label(int rank) const {
  return device_label(member(start_of(rank), "identity"), several_hosts(starts_));
}

/// Null if the rank is unknown.
Json Console::start_of(int rank) const {
  const bool known = rank >= 0 && static_cast<std::size_t>(rank) < starts_.size();
  return known ? starts_[static_cast<std::size_t>(rank)] : Json();
}

Status Console::state() const {
  if (!results_.good()) return {StatusCode::io_error, "standard output cannot be written"};
  if (!messages_.good()) return {StatusCode::io_error, "standard error cannot be written"};
  return {};
}

namespace {

/// Writes its buffer at each flush, and waits for a descriptor that is not writable.
class DescriptorBuffer : public std::stringbuf {
 public:
  explicit DescriptorBuffer(int file) : std::stringbuf(std::ios::out), file_(file) {}

 protected:
  int sync() override {
    const std::string text = str();
    str({});
    return write_all(file_, text) == 0 ? 0 : -1;
  }

 private:
  const int file_;
};

/// The console together with its streams.
struct StandardConsole {
  explicit StandardConsole(const ConsoleStyle& style)
      : console(style, results, style.one_terminal ? results : messages,
                [start = Clock::now()] { return seconds_since(start); }) {}

  DescriptorBuffer output{STDOUT_FILENO}, error{STDERR_FILENO};
  std::ostream results{&output}, messages{&error};
  Console console;
};

}  // namespace

std::shared_ptr<Console> open_console(const ConsoleStyle& style) {
  const auto standard = std::make_shared<StandardConsole>(style);
  return {standard, &standard->console};
}

}  // namespace egt
