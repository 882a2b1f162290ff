#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/report/sink.hpp"
#include "session/selftest/selftest_score.hpp"

namespace egt {

/// Tracks a selftest on rank 0: injected faults, found faults, and whether more are expected. Main thread
/// only.
class SelftestWatch : public Sink {
 public:
  /// `patience_seconds`: max time without news after the plan's last step. Then missing faults are not
  /// awaited any longer.
  SelftestWatch(SelftestPlan plan, double patience_seconds);

  /// Receives all ranks' records as they arrive; keeps the injections and faults.
  Status write(const Record& record) override;
  Status flush() override { return {}; }

  /// Call it before each step. True two periods after all faults are found, or if no more are awaited.
  bool is_done(std::int64_t step);
  SelftestScore score() const { return score_selftest(plan_, records_); }
  /// Injections and faults so far.
  const std::vector<Record>& records() const { return records_; }
  const SelftestPlan& plan() const { return plan_; }

 private:
  bool is_settled();

  const SelftestPlan plan_;
  const double patience_seconds_;
  std::int64_t last_step_ = 0;  ///< last planned step of an injection
  std::vector<Record> records_;
  Clock::time_point last_news_ = Clock::now();
  std::size_t scored_ = 0;  ///< number of records when `settled_` was computed
  bool settled_ = false;
  std::optional<std::int64_t> settled_step_;
};

}  // namespace egt
