#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "model/digest_exchange.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/options.hpp"
#include "workload/verify/allocation_check.hpp"
#include "workload/verify/operation_checks.hpp"

namespace egt {

/// Known-answer checks of `verify` on every device, concurrently with the main job, in rounds. They are
/// evaluation, similarity, optimizer steps and, in the first and last round, allocating and freeing memory.
/// Answers must be equal on all ranks of a device model, in every round, and match the host's. Main thread
/// only; all ranks make the same calls in the same order.
class VerifyWorkload : public Workload {
 public:
  /// `communication_stream`: returns the stream of the communicator's other collectives, from prepare on.
  VerifyWorkload(Environment& environment, const ReadinessOptions& options,
                 std::function<Stream&()> communication_stream);

  std::string name() const override { return "readiness"; }
  Status prepare() override;
  /// Runs the first round.
  Status start() override;
  Status enqueue(const Step& step) override;
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  Status give_up_steps(double timeout_seconds) override;
  Status resume(RestartInfo& restart) override;
  /// Runs the last round.
  Status finish(const Shutdown& ending) override;
  PartReport report() const override;

 private:
  static constexpr std::size_t questions = EncodingCheck::answers + OptimizerCheck::answers;

  Status enqueue_round(std::int64_t step);
  Status collect_round(bool with_cleanup);
  void judge(std::size_t question, const std::vector<Answers>& answers);
  std::optional<WrongAnswer> host_finding(std::size_t question) const;
  Status clean_up(std::int64_t step);
  void report_wrong_words(const AllocationOutcome& outcome, std::int64_t step);
  std::string failure() const;

  Environment& environment_;
  const ReadinessOptions options_;
  const std::function<Stream&()> communication_stream_;
  EncodingCheck encoding_;
  OptimizerCheck optimizer_;
  AllocationCheck cleanup_;
  std::unique_ptr<DigestExchange> exchange_;
  FaultReporter reporter_;
  std::vector<int> groups_;  ///< group of each rank
  std::array<std::vector<Answers>, questions> past_;
  std::optional<std::int64_t> under_way_;  ///< the step of the enqueued round
  std::int64_t last_step_ = -1;

  std::uint64_t rounds_ = 0;
  std::array<std::uint64_t, questions> verified_{};  ///< rounds in which this rank's answer was right
  std::uint64_t cleanups_ = 0, cleanup_attempts_ = 0, wrong_ = 0;
  std::uint64_t words_verified_ = 0;
  AllocationOutcome last_cleanup_;

  std::unique_ptr<Event> done_;
  std::unique_ptr<Stream> stream_;  ///< declared last: it waits for its work before the memory is freed
};

}  // namespace egt
