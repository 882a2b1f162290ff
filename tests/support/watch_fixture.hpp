#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "session/recovery/failure_detector.hpp"

/// Ranks that monitor each other, as seen by the failure detector.
namespace egt::test {

using Act = WatchDecision::Act;

inline Activity working(std::int64_t step, double seconds, double patience = 0) {
  return {.line = "main",
          .phase = "train: forward",
          .step = step,
          .patience_seconds = patience,
          .seconds = seconds};
}

inline Activity waiting(std::int64_t step, double seconds) {
  return {.line = "main", .phase = "train: sums", .step = step, .waits_for_peers = true, .seconds = seconds};
}

/// All ranks work at `now`; a test changes only its subject.
struct WatchRules : testing::Test {
  explicit WatchRules(int size = 3) {
    for (int rank = 0; rank < size; ++rank) {
      RankView view;
      view.who = {"node" + std::to_string(rank), "uuid" + std::to_string(rank)};
      view.news.activities = {working(20, 0.1)};
      view.heard_at = now - 0.1;
      table.ranks.push_back(view);
    }
  }

  RankView& rank(int number) { return table.ranks[static_cast<std::size_t>(number)]; }
  void set(int number, const Activity& main) { rank(number).news.activities = {main}; }
  void all_but(int number, const Activity& main) {
    for (int other = 0; other < static_cast<int>(table.ranks.size()); ++other)
      if (other != number) set(other, main);
  }
  /// Advances time; all ranks except `silent` keep sending the same.
  void pass(double seconds, int silent = -1) {
    now += seconds;
    for (int other = 0; other < static_cast<int>(table.ranks.size()); ++other) {
      if (other == silent || !table.ranks[static_cast<std::size_t>(other)].news.activities.size()) continue;
      rank(other).heard_at += seconds;
      for (Activity& activity : rank(other).news.activities) activity.seconds += seconds;
    }
  }
  void order(int number, std::vector<Loss> waited_for = {}) {
    table.as_ordered = main_threads(table, options, now);
    table.order = {number, std::move(waited_for)};
    table.ordered_at = now;
    table.all_arrived_at.reset();
  }
  WatchDecision decision() const { return judge(table, options, now); }
  std::vector<int> lost() const {
    std::vector<int> ranks;
    for (const Loss& loss : decision().losses) ranks.push_back(loss.rank);
    return ranks;
  }

  WatchTable table;
  WatchOptions options{.collective_timeout_seconds = 3, .max_restarts = 1};
  double now = 1000;
};

struct WatchRulesAlone : WatchRules {
  WatchRulesAlone() : WatchRules(1) {}
};

}  // namespace egt::test
