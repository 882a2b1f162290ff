#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace egt {

/// When a rank counts as an outlier among the ranks of its device model. Shares are of 1: 0.05 is "takes 5 %
/// more time for the same work".
struct PeerRule {
  double limit = 0.05;   ///< more than this beyond its peers: an outlier, however much they differ
  double least = 0.025;  ///< beyond six median absolute deviations of its peers, and this: an outlier too
  double horizon_seconds = 50;  ///< windows that are looked at
  double least_seconds = 20;    ///< that they must span before anybody is judged
  double hold_seconds = 5;      ///< for which the judgement must be the same at every window
};

/// Where a rank stands among its peers, over the horizon.
struct PeerStanding {
  int rank = 0;
  double deviation = 0;       ///< ln of its time over that of its peers: the median over windows
  double error = 0;           ///< the standard error of it
  double time = 0;            ///< its own, for a unit of work: the median over windows
  double threshold = 0;       ///< that was compared with `deviation - error`
  int peers = 0;              ///< of its model, itself not counted
  std::optional<int> beside;  ///< the one it was compared with, where there are two; else the median of all
};

/// Compares ranks by the time that they take for the same work, window by window (about a second each). What
/// disturbs all ranks at once drops out, since each window is compared in itself; what disturbs one rank for
/// a moment does too, since a rank is judged by the median over windows. Pure; one thread.
class PeerComparison {
 public:
  /// `models`: of each rank; only ranks of one model are compared. Empty: not known, compared with nobody.
  PeerComparison(const PeerRule& rule, std::vector<std::string> models);

  /// One more window, that ended at `time` (seconds, ascending). `times`: of each rank for a unit of work, in
  /// any unit; what is not above 0, or not finite, is not known.
  void add(double time, const std::vector<double>& times);

  /// The ranks that became outliers with the last window; each is named once.
  std::vector<PeerStanding> new_outliers() const { return new_; }
  /// Where `rank` stands now; none: there is too little to tell.
  std::optional<PeerStanding> standing(int rank) const;

 private:
  struct Window {
    double end;  ///< when it ended
    double time, deviation;
  };
  struct Rank {
    std::deque<Window> windows;
    std::optional<double> slow_since;  ///< the first window of those in a row at which it was an outlier
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
  std::vector<std::vector<int>> groups_;  ///< ranks of a model, at least two
  std::vector<Rank> ranks_;
  std::vector<PeerStanding> new_;
  double now_ = 0;
  mutable std::vector<double> scratch_;
};

}  // namespace egt
