#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/common/digest_exchange.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/options.hpp"
#include "workload/train/all_reduce_check.hpp"
#include "workload/train/check_schedule.hpp"
#include "workload/train/golden_digests.hpp"
#include "workload/train/loss_watch.hpp"
#include "workload/train/operation_audit.hpp"
#include "workload/train/second_pass.hpp"
#include "workload/train/state_repair.hpp"
#include "workload/train/training_steps.hpp"

namespace egt {

/// The golden file of a run: what it knew, and what this run found. Outlives the workloads.
struct GoldenBook {
  std::optional<Golden> known;  ///< none: there is no file yet, or none is wanted
  Golden found;                 ///< on rank 0, after a finish without a fault
};

/// What the checks did so far.
struct CheckFigures {
  std::uint64_t replays = 0;          ///< known-answer passes compared with others or the past
  std::uint64_t compared_steps = 0;   ///< whose two passes were compared
  std::uint64_t replica_checks = 0;   ///< comparisons of all ranks' training state
  std::int64_t verified_updates = 0;  ///< steps whose updates' results all ranks compared
  std::uint64_t digests_compared = 0;
  std::uint64_t gemms_verified = 0;      ///< by OperationAudit, in whole or a block of rows
  std::uint64_t operations_sampled = 0;  ///< the other operations that it compared elements of
  std::uint64_t wrong_checks = 0;        ///< checks that found something, on whatever rank
  std::uint64_t own_wrong_checks = 0;    ///< those that found this rank wrong
  std::uint64_t undecided_checks = 0;    ///< those that found this rank or another wrong, not known which
  std::uint64_t repeated_steps = 0;
  std::optional<double> fraction;                         ///< of the steps' time that checks took
  std::int64_t period_steps = 0;                          ///< from one check to the next, as planned now
  std::set<std::string> golden_compared, golden_unknown;  ///< see GoldenCheck
  std::uint64_t checks_in_steps = 0;                      ///< between the first step and the last
  /// Of the first loss that was not finite: it came out the same when the steps were repeated, with nothing
  /// else wrong, so training diverges. None: not so.
  std::optional<std::int64_t> diverged_step;
  std::optional<LossApart> diverged_first;  ///< the rank whose own loss diverged before the others'
  /// Of a loss that was not finite, where the run ended or was restarted before its steps were repeated.
  std::optional<std::int64_t> unexamined_loss_step;
};

/// The checks of training, all at one time behind a step: the same known-answer pass on every rank, compared
/// with the other ranks of the device model, the past and the golden file; the training state (weights,
/// moments) compared with all ranks; some of its operations compared with an independent answer, others on
/// each rank and each time.
///
/// A check that finds something reports it, takes training back to the last proven state, and repeats the
/// steps: that decides who is wrong where there is no majority, separates a loss that a device made infinite
/// from training that diverges, and leaves all ranks alike again. A repair that a restart breaks off is made
/// after it.
///
/// Main thread only; all ranks make the same calls in the same order.
class TrainingChecks {
 public:
  TrainingChecks(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                 TrainingSteps& steps, GoldenBook& golden);

  /// Takes memory.
  Status prepare();
  /// Who is of whose model, and a first answer in every precision: before the first step.
  Status start();
  /// Behind training step `step`: faults on purpose at rest, and a check if one is due.
  Status after_step(std::int64_t step);
  Status retire(std::int64_t step, const StepResult& result);
  /// To ride along with the next step.
  StepNote take_note() { return costs_.take_note(); }
  /// After the communicator was given up and is new: takes training back to the last state that any rank
  /// proved, proves that it is the same on all ranks, and gives the step behind it.
  Result<std::int64_t> resume();
  /// One more check at the end: all steps are retired.
  Status finish();
  /// What was left to be reported when no more checks come. `complete`: `finish` was, on all ranks.
  void close(bool complete);

  CheckFigures figures() const;
  /// Of all weights, as the last check saw them; empty: not yet.
  const std::string& weight_digest() const { return weight_digest_; }
  bool found_nothing() const { return figures_.wrong_checks == 0 && !losses_.unexamined_step(); }

 private:
  /// Where the digests of one check lie among the answers.
  struct Sections {
    std::size_t replay = 0, state = 0, second_state = 0;  ///< how many of each
    std::size_t all() const { return replay + state + second_state; }
  };
  struct Check {
    std::int64_t step = -1;
    Precision precision = Precision::fp32;
    std::uint64_t number = 0;  ///< of all checks, the same on every rank
  };

  Status enqueue_check(std::int64_t step);
  Status collect();
  bool judge_replay(const std::vector<Answers>& answers);
  void judge_golden(const Answers& own);
  Status judge_audit();
  Status compare_passes(std::int64_t last);
  Status announce_passes();
  void judge_passes(const PassDigests& repeated);
  std::string pass_incident() const;
  Fault pass_fault(const Dissent& dissent) const;
  Fault sum_fault(const WrongSum& wrong) const;
  bool explains(const Dissent& state) const;
  bool has_comparison(const std::vector<Answers>& past) const;
  Result<bool> judge_state(const std::vector<Answers>& state, const std::vector<Answers>& second_state,
                           bool pass_wrong);
  Status announce(const std::vector<Dissent>& dissents);
  Result<Repetition> repair(const std::vector<Answers>& state, std::vector<Dissent>& dissents,
                            std::vector<StateDifference>& differences);
  Fault state_fault(const Dissent& dissent, const std::vector<StateDifference>& differences) const;
  Fault fault(const char* kind, const char* detector, const char* phase) const;
  void report(Fault found, const Dissent& dissent, std::string where);
  void count_check(bool wrong);
  void note_weight_digest(const Answers& own);

  OperationAudit::Selection selection_of_this_check(std::int64_t step) const;
  Status take_groups();
  /// What the ranks of a restart know together.
  struct Agreement {
    std::int64_t proven_step = -1;         ///< the newest that any rank proved
    std::optional<Check> unrepaired = {};  ///< the check whose repair was broken off on some rank
  };
  Result<Agreement> agree_on_state();
  Status finish_repair(const Check& check);
  std::string golden_work() const;
  int layers() const { return static_cast<int>(trainer_.layout().layers().size()); }

  Environment& environment_;
  const TrainOptions& options_;
  const BatchShare batch_;
  TrainingSteps& steps_;
  MlpTrainer& trainer_;
  GoldenBook& golden_;
  DigestExchange exchange_;
  StateRepair repair_;
  std::unique_ptr<OperationAudit> audit_;
  FaultReporter reporter_;
  LossWatch losses_;
  LossHistory own_losses_;  ///< since the proven state
  CheckSchedule schedule_;
  StepCosts costs_;

  Sections sections_;
  std::vector<PassTensor> tensors_;
  std::vector<StateTensor> states_;
  GoldenCheck golden_check_;
  std::vector<int> groups_;                         ///< of each rank
  std::map<Precision, std::vector<Answers>> past_;  ///< by rank; what was not doubted
  std::optional<Check> under_way_;
  std::uint64_t checks_ = 0;
  bool pass_was_wrong_ = false;  ///< at the last check
  /// A step whose two passes differ, or whose all-reduces are wrong.
  struct Unlike {
    std::int64_t step = -1, found_step = -1;
    PassDigests passes;
    std::vector<int> second_of;
    std::vector<WrongSum> sums;
  };
  std::optional<Unlike> unlike_;     ///< the first since the last check
  bool passes_stay_wrong_ = false;   ///< they differed when they were repeated, too
  std::int64_t compared_step_ = -1;  ///< the last one whose passes were compared
  bool state_stays_wrong_ = false;   ///< going back did not leave the ranks alike
  std::optional<Check> unrepaired_;  ///< whose repair is not through yet
  CheckFigures figures_;
  std::string weight_digest_;
};

}  // namespace egt
