#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/report/sink.hpp"
#include "session/selftest/selftest_score.hpp"

namespace egt {

/// Follows a selftest on rank 0: what was injected, what was found, and whether there is more to wait for.
/// Main thread only.
class SelftestWatch : public Sink {
 public:
  /// `patience_seconds`: how long nothing may happen, once the plan's last step is over, before what is still
  /// awaited is given up.
  SelftestWatch(SelftestPlan plan, double patience_seconds);

  /// All ranks' records, as they arrive.
  Status write(const Record& record) override;
  Status flush() override { return {}; }

  /// Asked before each step: is all found and two more periods passed, or is nothing more to be expected?
  bool is_done(std::int64_t step);
  SelftestScore score() const { return score_selftest(plan_, records_); }
  /// Injections and faults so far.
  const std::vector<Record>& records() const { return records_; }
  const SelftestPlan& plan() const { return plan_; }

 private:
  bool is_settled();

  const SelftestPlan plan_;
  const double patience_seconds_;
  std::int64_t last_step_ = 0;  ///< of the injections that strike at their step
  std::vector<Record> records_;
  Clock::time_point last_news_ = Clock::now();
  std::size_t scored_ = 0;  ///< records, when `settled_` was found out
  bool settled_ = false;
  std::optional<std::int64_t> settled_step_;
};

}  // namespace egt
