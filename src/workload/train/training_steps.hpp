#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/options.hpp"
#include "workload/train/batch_balance.hpp"
#include "workload/train/slow_injection.hpp"

namespace egt {

/// The injected faults of training: of its passes (gradient, activation, gemm, extreme), which strike as
/// Injection::lasting says; where that is left open, once if all passes are compared, else up to the next
/// check. Of its state at rest (weight, optimizer), once. Detectors know nothing of it. Main thread only.
class TrainingInjections {
 public:
  /// All outlive the object.
  TrainingInjections(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                     MlpTrainer& trainer)
      : environment_(environment), options_(options), batch_(batch), trainer_(trainer) {}

  /// What is due, just before training step `step` is enqueued.
  Status before_step(std::int64_t step);
  /// The same before it is enqueued once more: only what had struck by then.
  void before_repeated_step(std::int64_t step);
  /// What is due at rest, behind step `step`. Not while a check is under way: if that sends training back,
  /// the state that was struck would be gone.
  Status strike_states(std::int64_t step);
  /// A check was put in line: passes are left alone from here on.
  void end_passes();

 private:
  struct Tampered {
    Tampering tampering;
    std::int64_t since = 0;  ///< step
    Lasting lasting = Lasting::once;
  };

  Status hang_device(std::int64_t step);
  /// Those that last, and these.
  void put_in_force(std::int64_t step, std::vector<Tampering> tampering);
  std::optional<Tampering> tampering_of(const Injection& injection) const;
  std::optional<Tampering> tampering_of_sum(const Injection& injection) const;
  StateTensor state_tensor_of(const Injection& injection) const;
  int layers() const { return static_cast<int>(trainer_.layout().layers().size()); }

  Environment& environment_;
  const TrainOptions& options_;
  const BatchShare& batch_;
  MlpTrainer& trainer_;
  std::vector<Tampered> tampered_;  ///< that last
  Buffer unread_;                   ///< what a device that hangs writes to
};

/// Enqueues the steps of training, and repeats them: a step's samples, precision, faults on purpose and, as
/// long as it is not retired, its vote to stop are the same whenever it is enqueued. Main thread only.
class TrainingSteps {
 public:
  /// `batch`: the share that training begins with. All but the trainer outlive the object.
  TrainingSteps(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                const BatchBalance& balance, std::unique_ptr<MlpTrainer> trainer);

  /// Of each rank, whose batch it computes a second time: another one of its device model, or itself. Before
  /// the first step. Empty: there are no second passes.
  void set_ring(std::vector<int> ring) { ring_ = std::move(ring); }
  /// Whose batch each rank computes as well in this step: only one that it has memory for. Empty: none.
  std::vector<int> second_of(std::int64_t step) const;
  /// `note` travels with it.
  Status enqueue(const Step& step, const StepNote& note);
  /// Enqueues a step once more, behind `restore` and in order.
  Status repeat(std::int64_t step);
  /// Takes training back to the state kept in `slot`. No step may be under way.
  Status restore(int slot);
  /// The steps behind `step` were given up: it is the last one enqueued.
  void give_up_behind(std::int64_t step) { last_ = step; }

  /// The last step enqueued for the first time.
  std::int64_t last() const { return last_; }
  Precision precision_of(std::int64_t step) const;
  MlpTrainer& trainer() { return *trainer_; }
  TrainingInjections& injections() { return injections_; }
  SlowInjection& slow() { return slow_; }

 private:
  Status enqueue_step(std::int64_t step, StepNote note);
  StopVote& vote_of(std::int64_t step) { return votes_[static_cast<std::size_t>(step) % votes_.size()]; }

  const RankPlace place_;
  const TrainOptions& options_;
  const BatchBalance& balance_;
  std::vector<int> ring_;
  SlowInjection slow_;  ///< before the trainer, whose streams may still use its memory
  const std::unique_ptr<MlpTrainer> trainer_;
  TrainingInjections injections_;
  std::optional<Precision> precision_;  ///< none: the trainer's copy of the weights is of another state
  std::vector<StopVote> votes_;  ///< of the steps that may have to be repeated, by step modulo their number
  std::int64_t last_ = -1;
};

/// The strongest of all ranks' votes, of their sum (`StepResult::notes`).
StopVote decode_votes(float sum);
inline constexpr int most_voters = 65535;

}  // namespace egt
