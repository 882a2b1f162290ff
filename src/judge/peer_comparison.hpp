#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace egt {

/// When a rank is an outlier among the ranks of its device model. Values are fractions of the time for the
/// same work: 0.05 means 5 % more time.
struct PeerRule {
  double limit = 0.05;   ///< share of the peers' median; beyond it always an outlier
  double least = 0.025;  ///< the same; an outlier if also beyond six median absolute deviations of the peers
  double horizon_seconds = 50;  ///< length of the sliding history of windows
  double min_seconds = 20;      ///< min time span of the windows before a rank is judged
  double hold_seconds = 5;      ///< a rank must be an outlier in every window for this long
};

/// The comparison of one rank with its peers over the horizon.
struct PeerStanding {
  int rank = 0;
  double deviation = 0;       ///< ln(own time / peers' time), median over windows
  double error = 0;           ///< standard error of `deviation`
  double time = 0;            ///< own time per unit of work, median over windows
  double threshold = 0;       ///< outlier if `deviation - error` exceeds it
  int peers = 0;              ///< other ranks of the same model
  std::optional<int> beside;  ///< the only peer; empty: compared with the median of several
};

/// Compares the times that ranks need for the same work, per window of about one second. Each window is
/// compared separately, so a disturbance of all ranks cancels out. The median over windows hides a short
/// disturbance of one rank. Pure; used by one thread.
class PeerComparison {
 public:
  /// `models`: device model per rank. Only ranks of one model are compared. An empty model is unknown and has
  /// no peers.
  PeerComparison(const PeerRule& rule, std::vector<std::string> models);

  /// Adds a window that ended at `time` (in seconds, ascending). `times`: time per unit of work for each
  /// rank, in any unit. Values that are not finite or not above 0 are unknown.
  void add(double time, const std::vector<double>& times);

  /// The ranks that became outliers with the last window. Each rank is reported once.
  std::vector<PeerStanding> new_outliers() const { return new_; }
  /// Current comparison of `rank` with its peers; empty if there are too few windows.
  std::optional<PeerStanding> standing(int rank) const;

 private:
  struct Window {
    double end;  ///< in seconds
    double time, deviation;
  };
  struct Rank {
    std::deque<Window> windows;
    std::optional<double> slow_since;  ///< first of the consecutive windows in which it was an outlier
    bool named = false;
  };

  void note(const PeerStanding& standing);
  bool is_anybody_far(const std::vector<int>& group) const;
  void compare(const std::vector<int>& group, double time, const std::vector<double>& times);
  std::vector<PeerStanding> judge(const std::vector<int>& group) const;
  std::optional<PeerStanding> measure(int rank) const;
  double threshold(int rank, const std::vector<PeerStanding>& standings) const;
  void forget_before(double time);

  const PeerRule rule_;
  std::vector<std::vector<int>> groups_;  ///< ranks of each model, at least two
  std::vector<Rank> ranks_;
  std::vector<PeerStanding> new_;
  double now_ = 0;
  mutable std::vector<double> scratch_;
};

}  // namespace egt
