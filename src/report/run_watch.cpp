#include "report/run_watch.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/json_access.hpp"
#include "report/journal/journal.hpp"
#include "report/journal/journal_files.hpp"
#include "report/tables/summary.hpp"

namespace egt {
namespace {

constexpr int start_patience = 3;  ///< updates to wait for further ranks' start records
/// Updates without a new record until a run on another node counts as gone. Long runs have a record per 0.1 %
/// of their time.
constexpr int quiet_updates = 60;
constexpr double quiet_share = 0.005;

/// Whether the process of that start record runs on this node; empty: it is on another node.
std::optional<bool> is_running(const Json& start) {
  std::array<char, 256> hostname{};
  if (::gethostname(hostname.data(), hostname.size() - 1) != 0) return std::nullopt;
  const int process = value_at<int>(start, "process").value_or(0);
  if (process <= 0 || text_at(member(start, "identity"), "hostname") != hostname.data()) return std::nullopt;
  return ::kill(process, 0) == 0 || errno == EPERM;
}

}  // namespace

Status RunWatch::read() {
  EGT_TRY_ASSIGN(const std::vector<JournalFile> journals, find_journals(directory_));
  if (journals.empty())
    return {
        StatusCode::unavailable,
        fmt::format("{}: holds no journal of a run (journal.rank*.jsonl); name the directory that the run "
                    "printed or was given by --output",
                    directory_)};
  const std::size_t before = pending_.size();
  for (const JournalFile& journal : journals) {
    Rank& rank = ranks_[journal.rank];
    const auto take = [&](JournalLine& line) {
      if (!line.is_record) return Status();
      if (line.record.kind == RecordKind::start) rank.start = line.record.body;
      if (line.record.kind == RecordKind::start || line.record.kind == RecordKind::end)
        rank.has_ended = line.record.kind == RecordKind::end;
      pending_.push_back(std::move(line.record));
      return Status();
    };
    EGT_TRY(for_each_line(journal.path, take, &rank.read));
  }
  std::stable_sort(pending_.begin() + static_cast<std::ptrdiff_t>(before), pending_.end(),
                   [](const Record& a, const Record& b) { return a.time < b.time; });
  updates_without_news_ = pending_.size() > before ? 0 : updates_without_news_ + 1;
  return {};
}

/// True if the start records of all ranks are known.
bool RunWatch::is_complete() const {
  const auto started = std::count_if(ranks_.begin(), ranks_.end(),
                                     [](const auto& rank) { return !rank.second.start.is_null(); });
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
    return value_at<std::int64_t>(rank.second.start, "size") == started;
  });
}

void RunWatch::show(bool is_last) {
  if (!has_begun_) {
    const bool has_start = std::any_of(ranks_.begin(), ranks_.end(),
                                       [](const auto& rank) { return !rank.second.start.is_null(); });
    if (!is_last && (!has_start || (!is_complete() && ++updates_ < start_patience))) return;
    has_begun_ = true;
    std::vector<Json> starts;  // by rank; null: its journal is on another node
    for (const auto& [rank, one] : ranks_) {
      starts.resize(static_cast<std::size_t>(rank) + 1);
      starts.back() = one.start;
    }
    console_.on_start(starts);
  }
  for (const Record& record : pending_) static_cast<void>(console_.write(record));
  pending_.clear();
}

/// A running process holds the lock of its journal. On file systems without locks, its process is looked for,
/// or the journals must grow.
bool RunWatch::is_alive() const {
  if (!await_writers(directory_, 0).ok()) return true;
  bool is_elsewhere = false;
  double seconds = 0;
  for (const auto& [number, rank] : ranks_) {
    const std::optional<bool> running = is_running(rank.start);
    if (running.value_or(false)) return true;
    is_elsewhere = is_elsewhere || !running;
    seconds = std::max(seconds, value_at<double>(rank.start, "requested_duration_seconds").value_or(0));
  }
  return is_elsewhere && updates_without_news_ < std::max<double>(quiet_updates, quiet_share * seconds);
}

/// The result of the run's last part.
std::optional<Json> RunWatch::result() const {
  std::ifstream file(directory_ + "/result.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Json result = Json::parse(text, nullptr, false);
  if (!value_at<int>(result, "exit_code")) return std::nullopt;
  std::size_t part = 0;  // that result.json must have, since a resumed run has the one of its earlier part
  for (const auto& [number, rank] : ranks_)
    part = std::max(part, value_at<std::size_t>(rank.start, "part").value_or(0));
  if (member(result, "parts_of_run").size() <= part) return std::nullopt;
  return result;
}

Result<std::optional<int>> RunWatch::update() {
  EGT_TRY(read());
  const bool alive = is_alive();
  if (!alive) EGT_TRY(read());  // its last records
  show();
  EGT_TRY(console_.flush());
  const bool has_ended = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
    return !rank.second.start.is_null() && rank.second.has_ended;
  });
  if (alive && !has_ended) return std::optional<int>();
  const std::optional<Json> found = result();
  if (!found && alive) return std::optional<int>();
  show(true);
  if (!found) {
    console_.on_warning(
        fmt::format("{0}: the run's processes are gone and left no result; extreme_gpu_trainer "
                    "report {0} judges its journals",
                    directory_));
    return std::optional<int>(exit_code::incomplete);
  }
  Verdict verdict;
  verdict.name = text_at(*found, "verdict");
  verdict.exit_code = value_at<int>(*found, "exit_code").value_or(exit_code::incomplete);
  for (const Json& reason : member(*found, "reasons"))
    if (reason.is_string()) verdict.reasons.push_back(reason.get<std::string>());
  if (const std::string summary = summary_text(*found); !summary.empty()) console_.on_summary(summary);
  console_.on_verdict(verdict, *found, directory_);
  return std::optional<int>(verdict.exit_code);
}

}  // namespace egt
