#include "egt/core/progress_board.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "egt/core/system_files.hpp"

namespace egt {
namespace {

constexpr double long_operation_seconds = 1;  ///< shorter ones need no explanation

/// "D" of "123 (name) D 1 ..". The name may contain blanks and parentheses.
std::string state_of_task(int task) {
  const std::string line = first_line(fmt::format("/proc/self/task/{}/stat", task)).value_or("");
  const std::size_t name_end = line.rfind(')');
  return name_end != std::string::npos && name_end + 2 < line.size() ? line.substr(name_end + 2, 1) : "";
}

}  // namespace

std::string blocked_file_text(const Activity& activity) {
  std::string text =
      fmt::format("{} of {} has not returned for {:.1f} s", activity.phase, activity.file, activity.seconds);
  if (activity.task_state.empty()) return text;
  return text + fmt::format(" (task state {}{})", activity.task_state,
                            activity.task_state == "D" ? ": it waits for the disk" : "");
}

void ProgressBoard::Line::begin_file_operation(std::string operation, std::string file, std::int64_t step,
                                               double patience_seconds) {
  static thread_local const int task = ::gettid();
  const std::lock_guard lock(mutex_);
  activity_.phase = std::move(operation);
  activity_.file = std::move(file);
  task_ = task;
  activity_.step = step;
  activity_.waits_for_peers = false;
  activity_.patience_seconds = patience_seconds;
  since_ = clock_();
}

void ProgressBoard::Line::wait_for_peers(std::string phase) {
  const std::lock_guard lock(mutex_);
  activity_.phase = std::move(phase);
  activity_.file.clear();
  activity_.waits_for_peers = true;
}

void ProgressBoard::Line::go_on(std::string phase) {
  const std::lock_guard lock(mutex_);
  activity_.phase = std::move(phase);
  activity_.file.clear();
  activity_.waits_for_peers = false;
  since_ = clock_();
}

Activity ProgressBoard::Line::read() const {
  const std::lock_guard lock(mutex_);
  Activity activity = activity_;
  activity.line = name_;
  const double beat_at = beat_at_;
  activity.beats = beat_at > since_;
  activity.seconds = clock_() - std::max(since_, beat_at);
  if (!activity.file.empty() && activity.seconds > long_operation_seconds)
    activity.task_state = state_of_task(task_);
  return activity;
}

ProgressBoard::Line& ProgressBoard::line(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto known = std::find(names_.begin(), names_.end(), name);
  if (known != names_.end()) return *std::next(lines_.begin(), known - names_.begin());
  names_.push_back(name);
  return lines_.emplace_back(name, clock_);
}

std::vector<Activity> ProgressBoard::read() const {
  const std::lock_guard lock(mutex_);
  std::vector<Activity> all;
  for (const Line& line : lines_) all.push_back(line.read());
  return all;
}

}  // namespace egt
