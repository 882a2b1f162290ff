#include "judge/peer_comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "egt/core/histogram.hpp"

namespace egt {

namespace {

constexpr std::size_t min_windows = 8;
constexpr std::size_t min_voters = 3;
constexpr double deviations = 6;
// For a normal distribution: standard deviation over median absolute deviation, and standard error of the
// median over that of the mean. A disturbance spans several windows, so fewer of them are independent.
constexpr double sigma_per_mad = 1.4826, median_per_mean = 1.2533, windows_a_disturbance = 2;
constexpr double longest_silence_seconds = 10;

bool is_known(double time) {
  return std::isfinite(time) && time > 0;
}

}  // namespace

PeerComparison::PeerComparison(const PeerRule& rule, std::vector<std::string> models)
    : rule_(rule), ranks_(models.size()) {
  std::map<std::string, std::vector<int>> by_model;
  for (std::size_t rank = 0; rank < models.size(); ++rank)
    if (!models[rank].empty()) by_model[models[rank]].push_back(static_cast<int>(rank));
  for (auto& [model, group] : by_model)
    if (group.size() > 1) groups_.push_back(std::move(group));
}

void PeerComparison::add(double time, const std::vector<double>& times) {
  now_ = time;
  new_.clear();
  forget_before(time - rule_.horizon_seconds);
  for (const auto& group : groups_) {
    compare(group, time, times);
    if (is_anybody_far(group)) {
      for (const PeerStanding& standing : judge(group)) note(standing);
    } else {
      for (const int rank : group) ranks_[static_cast<std::size_t>(rank)].slow_since.reset();
    }
  }
}

void PeerComparison::note(const PeerStanding& standing) {
  Rank& rank = ranks_[static_cast<std::size_t>(standing.rank)];
  if (!(standing.deviation - standing.error > standing.threshold)) {
    rank.slow_since.reset();
    return;
  }
  if (!rank.slow_since) rank.slow_since = now_;
  if (rank.named || now_ - *rank.slow_since < rule_.hold_seconds) return;
  rank.named = true;
  new_.push_back(standing);
}

/// Cheap test first, since most windows need no full comparison.
bool PeerComparison::is_anybody_far(const std::vector<int>& group) const {
  const double far = std::log1p(rule_.least);
  return std::any_of(group.begin(), group.end(), [&](int rank) {
    const auto& windows = ranks_[static_cast<std::size_t>(rank)].windows;
    const auto above =
        std::count_if(windows.begin(), windows.end(), [&](const Window& one) { return one.deviation > far; });
    return above > 0 && 2 * above >= static_cast<std::ptrdiff_t>(windows.size());
  });
}

void PeerComparison::forget_before(double time) {
  for (Rank& rank : ranks_)
    while (!rank.windows.empty() && rank.windows.front().end < time) rank.windows.pop_front();
}

/// Compares each rank with the median of the others. In a group of two, that is the other rank.
void PeerComparison::compare(const std::vector<int>& group, double time, const std::vector<double>& times) {
  std::vector<std::pair<double, int>> known;  // ln of the time, rank; ascending
  for (const int rank : group)
    if (const auto index = static_cast<std::size_t>(rank); index < times.size() && is_known(times[index]))
      known.emplace_back(std::log(times[index]), rank);
  if (known.size() < std::min(group.size(), min_voters)) return;
  std::sort(known.begin(), known.end());
  for (std::size_t i = 0; i < known.size(); ++i) {
    const auto other = [&](std::size_t index) { return known[index < i ? index : index + 1].first; };
    const std::size_t others = known.size() - 1;
    const double median = (other((others - 1) / 2) + other(others / 2)) / 2;
    const auto [log, rank] = known[i];
    ranks_[static_cast<std::size_t>(rank)].windows.push_back({time, std::exp(log), log - median});
  }
}

std::optional<PeerStanding> PeerComparison::measure(int rank) const {
  const auto& windows = ranks_[static_cast<std::size_t>(rank)].windows;
  if (windows.size() < min_windows || windows.back().end - windows.front().end < rule_.min_seconds ||
      now_ - windows.back().end > longest_silence_seconds)
    return std::nullopt;
  PeerStanding standing;
  standing.rank = rank;
  scratch_.clear();
  for (const Window& window : windows) scratch_.push_back(window.time);
  standing.time = median_of(scratch_);
  scratch_.clear();
  for (const Window& window : windows) scratch_.push_back(window.deviation);
  standing.deviation = median_of(scratch_);
  for (double& value : scratch_) value = std::abs(value - standing.deviation);
  const double independent = static_cast<double>(windows.size()) / windows_a_disturbance;
  standing.error = median_per_mean * sigma_per_mad * median_of(scratch_) / std::sqrt(independent);
  return standing;
}

std::vector<PeerStanding> PeerComparison::judge(const std::vector<int>& group) const {
  std::vector<PeerStanding> standings;
  for (const int rank : group)
    if (const auto standing = measure(rank)) standings.push_back(*standing);
  for (PeerStanding& standing : standings) {
    standing.threshold = std::log1p(threshold(standing.rank, standings));
    standing.peers = static_cast<int>(group.size()) - 1;
    if (group.size() == 2) standing.beside = group[0] == standing.rank ? group[1] : group[0];
  }
  return standings;
}

/// Outlier threshold: six times the peers' dispersion, minus the dispersion that their standard errors
/// explain. The caller subtracts the rank's own error.
double PeerComparison::threshold(int rank, const std::vector<PeerStanding>& standings) const {
  if (standings.size() < min_voters) return rule_.limit;
  std::vector<double> peers, errors;
  for (const PeerStanding& one : standings) {
    if (one.rank == rank) continue;
    peers.push_back(one.deviation);
    errors.push_back(one.error);
  }
  const double middle = median_of(peers);
  for (double& value : peers) value = std::abs(value - middle);
  const double spread = median_of(peers), noise = median_of(errors) / sigma_per_mad;
  // The difference of two values contains both of their errors.
  const double own = std::sqrt(std::max(0.0, spread * spread - 2 * noise * noise));
  return std::clamp(deviations * own, rule_.least, rule_.limit);
}

std::optional<PeerStanding> PeerComparison::standing(int rank) const {
  for (const auto& group : groups_)
    for (const PeerStanding& standing : judge(group))
      if (standing.rank == rank) return standing;
  return std::nullopt;
}

}  // namespace egt
