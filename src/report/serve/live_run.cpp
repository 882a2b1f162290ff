#include "report/serve/live_run.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "egt/core/clock.hpp"
#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "judge/result.hpp"
#include "report/console/console_text.hpp"
#include "report/export/result_files.hpp"
#include "report/html/page.hpp"
#include "report/journal/journal.hpp"

namespace egt {
namespace {

constexpr double min_age_s = 1;
constexpr std::size_t max_points = 16;  // cached texts; clients request nearly the same points
constexpr std::size_t max_journal_bytes = 1 << 20;

/// Node verdicts exist only at the end of a run.
Json result_so_far(const std::vector<Record>& records) {
  const Verdict verdict = judge_so_far(records);
  Json result = build_result(records, verdict);
  result.erase("nodes");
  result["running"] = true;
  if (verdict.exit_code == no_exit_code) result["exit_code"] = nullptr;
  return result;
}

}  // namespace

LiveRun::LiveRun(Settings settings) : settings_(std::move(settings)) {
  std::error_code unknown;  // the path stays relative
  const std::filesystem::path own = std::filesystem::absolute(settings_.directory, unknown);
  state_.report = (unknown ? settings_.directory : own.string()) + "/report.html";
  state_.heard.resize(static_cast<std::size_t>(settings_.ranks));
}

Status LiveRun::write(const Record& record) {
  const std::lock_guard lock(mutex_);
  kept_.add(record);
  has_news_ = true;
  if (record.rank >= 0 && record.rank < settings_.ranks)
    state_.heard[static_cast<std::size_t>(record.rank)] = unix_now();
  return settings_.lines.write(record);
}

Status LiveRun::flush() {
  Activity now;
  {
    const std::lock_guard lock(main_mutex_);
    if (!settings_.main_thread) return {};
    now = settings_.main_thread();
  }
  const std::lock_guard lock(mutex_);
  main_ = std::move(now);
  main_read_at_ = steady_seconds();
  return {};
}

void LiveRun::finish(Json result) {
  const std::lock_guard lock(mutex_);
  if (::access(state_.report.c_str(), R_OK) != 0) state_.report.clear();  // the disk is full
  result_ = std::move(result);
  texts_ = {};
  has_ended_ = true;
}

void LiveRun::end() {
  const std::lock_guard lock(main_mutex_);
  settings_.main_thread = nullptr;
}

/// The caller holds the lock.
void LiveRun::refresh() {
  if (has_ended_ || !has_news_ || (made_at_ && steady_seconds() - *made_at_ < min_age_s)) return;
  std::vector<Record> records = settings_.earlier;
  kept_.append_to(records);
  result_ = result_so_far(records);
  state_.now = unix_now();
  const Json* start = nullptr;
  for (const Record& record : records) {
    if (record.rank != 0) continue;
    if (record.kind == RecordKind::start) start = &record.body;
    if (!start || (record.kind != RecordKind::progress && record.kind != RecordKind::end)) continue;
    state_.done = fraction_done(*start, record.body).value_or(0);
    state_.elapsed_seconds = value_at<double>(record.body, "elapsed_seconds").value_or(0);
  }
  texts_ = {};
  points_.clear();
  made_at_ = steady_seconds();
  has_news_ = false;
}

LiveRun::Text LiveRun::text(Kind kind) {
  const std::lock_guard lock(mutex_);
  refresh();
  Text& text = texts_[kind];
  if (!text)
    text = std::make_shared<const std::string>(kind == page ? live_page_text(result_, settings_.lines, state_)
                                               : kind == data   ? live_data_text(result_, state_)
                                               : kind == result ? result_text(result_)
                                                                : prometheus_text(result_));
  return text;
}

/// The caller holds the lock.
const LiveRun::Points& LiveRun::points(std::size_t from) {
  if (points_.size() >= max_points) points_.clear();
  const auto [found, is_new] = points_.try_emplace(from);
  if (is_new) {
    const Json drawn = time_lines_json(settings_.lines, result_, from);
    found->second = {.seconds = drawn["seconds"],
                     .text = std::make_shared<const std::string>(script_json(drawn))};
  }
  return found->second;
}

LiveRun::Text LiveRun::lines(std::size_t from, double seconds) {
  const std::lock_guard lock(mutex_);
  refresh();
  const Points asked = points(from);
  return from > 0 && asked.seconds != seconds ? points(0).text : asked.text;
}

Result<std::string> LiveRun::journal(int rank, std::int64_t from) const {
  const Status no_record(
      StatusCode::invalid_argument,
      fmt::format("from {}: no record begins there; use 0, or next of the last answer", from));
  if (rank < 0 || rank >= settings_.ranks || from < 0) return no_record;
  const std::string path = settings_.directory + "/" + journal_name(rank);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat about {};
  if (!file.valid() || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode))
    return Status(StatusCode::unavailable, fmt::format("this host has no journal of rank {}", rank));
  if (from > about.st_size) from = 0;
  const std::int64_t before = from > 0 ? 1 : 0;  // the preceding newline
  std::size_t begin = static_cast<std::size_t>(before);
  std::string text;
  ssize_t got = 0;
  do {  // repeated only for records above max_journal_bytes
    text.resize(text.size() + max_journal_bytes);
    got = ::pread(file.get(), text.data(), text.size(), from - before);
    if (got < before || (before && text[0] != '\n')) return no_record;
  } while (static_cast<std::size_t>(got) == text.size() && text.find('\n', begin) == std::string::npos);
  text.resize(static_cast<std::size_t>(got));
  std::string records;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    if (Json::accept(line)) records += (records.empty() ? "" : ",") + line;
  }
  return fmt::format("{{\"rank\":{},\"from\":{},\"next\":{},\"records\":[{}]}}\n", rank, from,
                     from - before + static_cast<std::int64_t>(begin), records);
}

std::string LiveRun::trouble() {
  const std::lock_guard lock(mutex_);
  refresh();
  const double seconds = main_.seconds + steady_seconds() - main_read_at_;
  const double limit = main_.patience_seconds > 0 ? main_.patience_seconds : settings_.patience_seconds;
  if (!main_.phase.empty() && seconds > limit)
    return fmt::format("no progress for {:.0f} s: {}, step {}", seconds, main_.phase, main_.step);
  const int code = value_at<int>(result_, "exit_code").value_or(exit_code::pass);
  if (code != exit_code::fault && code != exit_code::incomplete) return {};
  std::string text = text_at(result_, "verdict");
  for (const Json& reason : member(result_, "reasons"))
    text += "\n" + (reason.is_string() ? reason.get<std::string>() : one_line(reason));
  return text;
}

}  // namespace egt
