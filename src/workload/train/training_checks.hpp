#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/workload/workload.hpp"
#include "model/digest_exchange.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/options.hpp"
#include "workload/train/check_schedule.hpp"
#include "workload/train/golden_digests.hpp"
#include "workload/train/loss_watch.hpp"
#include "workload/train/operation_audit.hpp"
#include "workload/train/pass_judgement.hpp"
#include "workload/train/state_repair.hpp"
#include "workload/train/training_steps.hpp"

namespace egt {

/// Content of the run's golden file: known answers, and new ones from this run. Outlives the workloads.
struct GoldenBook {
  std::optional<Golden> known;  ///< none: no file yet, or not requested
  Golden found;                 ///< on rank 0, after a run without faults
};

/// Totals of the checks so far.
struct CheckFigures {
  std::uint64_t replays = 0;          ///< known-answer passes compared with other ranks or the past
  std::uint64_t compared_steps = 0;   ///< steps whose two passes were compared
  std::uint64_t replica_checks = 0;   ///< weight consistency checks over all ranks
  std::int64_t verified_updates = 0;  ///< steps whose update results all ranks compared
  std::uint64_t digests_compared = 0;
  std::uint64_t gemms_verified = 0;      ///< by OperationAudit, completely or a block of rows
  std::uint64_t operations_sampled = 0;  ///< other operations with compared elements
  std::uint64_t wrong_checks = 0;        ///< checks that detected a fault on any rank
  std::uint64_t own_wrong_checks = 0;    ///< of these, on this rank
  std::uint64_t undecided_checks = 0;    ///< of these, with this rank as a suspect
  std::uint64_t repeated_steps = 0;
  std::optional<double> fraction;  ///< share of the steps' time used by checks; none: not measured
  std::int64_t period_steps = 0;   ///< current plan, from one check to the next
  /// Precisions whose answers were compared with the golden file, and those that are not in it.
  std::set<std::string> golden_compared, golden_unknown;
  std::uint64_t checks_in_steps = 0;  ///< between the first and the last step
  LossWatch::Figures losses;
};

/// All checks of training, run together after a step. The same known-answer pass on every rank is compared
/// with ranks of the same device model, the past and the golden file. The training state (weights, moments)
/// is compared between all ranks. Some operations, different per rank and check, are compared with
/// independent results.
///
/// A failed check is reported, and training restores the last verified state and repeats the steps. The
/// repetition finds the faulty rank without a majority, distinguishes a device fault in the loss from
/// diverging training, and restores equal states on all ranks. A repair that a restart interrupts is done
/// after it.
///
/// Main thread only. Collective: the same calls in the same order on all ranks.
class TrainingChecks {
 public:
  TrainingChecks(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                 TrainingSteps& steps, GoldenBook& golden);

  /// Allocates memory.
  Status prepare();
  /// Groups the ranks by device model and computes a first answer in every precision. Call before step 0.
  Status start();
  /// Call after training step `step`: applies due state injections, and enqueues a check if due.
  Status after_step(std::int64_t step);
  Status retire(std::int64_t step, const StepResult& result);
  /// Call with a new communicator after the old one was aborted. Restores the last state that any rank
  /// verified, checks that it is equal on all ranks, and returns the next step.
  Result<std::int64_t> resume();
  /// Runs a final check; all steps must be retired.
  Status finish();
  /// Reports pending faults after the last check. `complete`: `finish` succeeded on all ranks.
  void close(bool complete);

  CheckFigures figures() const;
  /// Digest of all weights at the last check; empty: none yet.
  const std::string& weight_digest() const { return weight_digest_; }
  bool found_nothing() const { return figures_.wrong_checks == 0 && !losses_.figures().unexamined_step; }

 private:
  struct Check {
    std::int64_t step = -1;
    Precision precision = Precision::fp32;
    std::uint64_t number = 0;  ///< among all checks; equal on every rank
  };

  Status enqueue_check(std::int64_t step);
  Result<std::vector<Answers>> collect();
  bool judge_replay(const std::vector<Answers>& answers);
  void judge_golden(const Answers& own);
  Status judge_audit();
  Status compare_passes(std::int64_t last);
  Status announce_passes();
  void judge_passes(const PassDigests& repeated);
  /// The faults of `pass_mismatch_`, with their ranks. `repeated`: see decide_passes.
  std::vector<std::pair<Fault, Mismatch>> pass_faults(const PassDigests& repeated) const;
  std::string pass_incident() const;
  Fault pass_fault(const Mismatch& dissent) const;
  Fault sum_fault(const WrongSum& wrong) const;
  bool explains(const Mismatch& state) const;
  Result<bool> judge_state(const std::vector<Answers>& state, const std::vector<Answers>& second_state,
                           bool pass_wrong);
  Status announce(const std::vector<Mismatch>& dissents);
  Result<Repetition> repair(const std::vector<Answers>& state, std::vector<Mismatch>& dissents,
                            std::vector<StateDifference>& differences);
  void report_states(const std::vector<Mismatch>& dissents, const std::vector<StateDifference>& differences);
  Fault state_fault(const Mismatch& dissent, const std::vector<StateDifference>& differences) const;
  Fault fault(const char* kind, const char* detector, const char* phase) const;
  void report(Fault found, const Mismatch& dissent, std::string where);
  void count_check(bool wrong);
  void note_weight_digest(const Answers& own);

  OperationAudit::Selection selection_of_this_check(std::int64_t step) const;
  Status prepare_golden();
  Result<std::int64_t> agree_on_state();
  Status finish_repair();
  std::string golden_work() const;
  std::size_t layers() const { return trainer_.layout().layers().size(); }
  std::size_t rank() const { return static_cast<std::size_t>(environment_.place.rank); }

  Environment& environment_;
  const TrainOptions& options_;
  const BatchShare batch_;
  TrainingSteps& steps_;
  MlpTrainer& trainer_;
  GoldenBook& golden_;
  DigestExchange exchange_;
  StateRepair repair_;
  OperationAudit audit_;
  FaultReporter reporter_;
  LossWatch losses_;
  CheckSchedule schedule_;

  const std::vector<PassTensor> tensors_;
  const std::vector<StateTensor> states_;
  std::map<Precision, Answers> golden_answers_;     ///< those of the golden file
  std::vector<int> groups_;                         ///< per rank
  std::map<Precision, std::vector<Answers>> past_;  ///< per rank; undoubted answers only
  std::optional<Check> under_way_;
  struct Marks {
    std::unique_ptr<Event> begin, end;
  } computed_, communicated_;  ///< of the last check's work on each stream
  std::uint64_t checks_ = 0;
  bool pass_was_wrong_ = false;  ///< at the last check
  /// A step whose two passes differ, or with wrong all-reduces.
  struct PassMismatch {
    std::int64_t step = -1, found_step = -1;
    PassDigests passes;
    std::vector<int> second_of;
    std::vector<WrongSum> sums;
  };
  std::optional<PassMismatch> pass_mismatch_;  ///< the first since the last check
  bool passes_stay_wrong_ = false;             ///< they also differed in the repetition
  std::int64_t compared_step_ = -1;            ///< last step whose passes were compared
  bool state_stays_wrong_ = false;             ///< ranks still differed after the repetition
  std::optional<Check> unrepaired_;            ///< check whose repair is not complete
  CheckFigures figures_;
  std::string weight_digest_;
};

}  // namespace egt
