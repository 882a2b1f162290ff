#include "egt/core/progress_board.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace egt {

void ProgressBoard::Line::begin(std::string phase, std::int64_t step, double patience_seconds) {
  const std::lock_guard lock(mutex_);
  activity_.phase = std::move(phase);
  activity_.step = step;
  activity_.waits_for_peers = false;
  activity_.patience_seconds = patience_seconds;
  since_ = clock_();
}

void ProgressBoard::Line::wait_for_peers(std::string phase) {
  const std::lock_guard lock(mutex_);
  activity_.phase = std::move(phase);
  activity_.waits_for_peers = true;
}

void ProgressBoard::Line::go_on(std::string phase) {
  const std::lock_guard lock(mutex_);
  activity_.phase = std::move(phase);
  activity_.waits_for_peers = false;
  since_ = clock_();
}

Activity ProgressBoard::Line::read() const {
  const std::lock_guard lock(mutex_);
  Activity activity = activity_;
  activity.line = name_;
  activity.seconds = clock_() - since_;
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
