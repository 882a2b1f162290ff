#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/options.hpp"
#include "workload/train/batch_balance.hpp"
#include "workload/train/slow_injection.hpp"

namespace egt {

/// The injected faults of training. Pass faults (gradient, activation, gemm, extreme, all_reduce) last as
/// given by Injection::lasting. The default is once if all passes are compared, else up to the next check.
/// State faults (weight, optimizer) are applied once. Detectors do not know of them. Main thread only.
class TrainingInjections {
 public:
  /// All must outlive the object.
  TrainingInjections(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                     MlpTrainer& trainer)
      : environment_(environment), options_(options), batch_(batch), trainer_(trainer) {}

  /// Applies due injections. Call directly before training step `step` is enqueued.
  Status before_step(std::int64_t step);
  /// The same before a repeated step: only injections applied by then.
  void before_repeated_step(std::int64_t step);
  /// Applies due state injections after step `step`. Not while a check is in flight: if it triggers a
  /// restore, the corrupted state would be lost.
  Status strike_states(std::int64_t step);
  /// A check was enqueued: ends the injections in passes.
  void end_passes();

 private:
  struct Tampered {
    TensorFault tensor_faults;
    std::int64_t since = 0;  ///< step
    Lasting lasting = Lasting::once;
  };

  Status hang_device(std::int64_t step);
  /// Activates the lasting injections and the given ones.
  void put_in_force(std::int64_t step, std::vector<TensorFault> tensor_faults);
  std::optional<TensorFault> tampering_of(const Injection& injection) const;
  /// The layer's first rows, and the index of their bucket.
  std::pair<std::size_t, GradientPiece> first_piece(int layer) const;
  int layers() const { return static_cast<int>(trainer_.layout().layers().size()); }

  Environment& environment_;
  const TrainOptions& options_;
  const BatchShare& batch_;
  MlpTrainer& trainer_;
  std::vector<Tampered> tampered_;  ///< lasting ones
  Buffer unread_;                   ///< output buffer of a hanging device
};

/// Enqueues and repeats training steps. A step's samples, precision and injections are the same whenever it
/// is enqueued. So is its stop vote until the step is retired. Main thread only.
class TrainingSteps {
 public:
  /// `batch`: the initial share. All references except the trainer must outlive the object.
  TrainingSteps(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                const BatchBalance& balance, std::unique_ptr<MlpTrainer> trainer);

  /// `ring`: for each rank, the rank of its device model whose batch it recomputes, possibly its own. Call
  /// before the first step. Empty: no second passes.
  void set_ring(std::vector<int> ring) { ring_ = std::move(ring); }
  /// Ranks whose batches are recomputed in this step, limited to those that fit the memory. Empty: none.
  std::vector<int> second_of(std::int64_t step) const;
  /// The samples that this rank recomputes in this step; none: no second pass.
  std::optional<BatchShare> second_share(std::int64_t step) const;
  Status enqueue(const Step& step);
  /// Enqueues a step again, after `restore` and in order.
  Status repeat(std::int64_t step);
  /// Restores the state kept in `slot`. No step may be in flight.
  Status restore(int slot);
  /// The steps after `step` were aborted, so it is the last enqueued one.
  void give_up_behind(std::int64_t step) { last_ = step; }

  /// This rank's vote in a step that is not retired yet.
  StopVote vote(std::int64_t step) const { return votes_[static_cast<std::size_t>(step) % votes_.size()]; }
  /// The last step enqueued for the first time.
  std::int64_t last() const { return last_; }
  Precision precision_of(std::int64_t step) const;
  MlpTrainer& trainer() { return *trainer_; }
  TrainingInjections& injections() { return injections_; }
  SlowInjection& slow() { return slow_; }

 private:
  Status enqueue_step(std::int64_t step);
  StopVote& vote_of(std::int64_t step) { return votes_[static_cast<std::size_t>(step) % votes_.size()]; }

  const RankPlace place_;
  const TrainOptions& options_;
  const BatchBalance& balance_;
  std::vector<int> ring_;
  SlowInjection slow_;  ///< before the trainer, whose streams may still use its memory
  const std::unique_ptr<MlpTrainer> trainer_;
  TrainingInjections injections_;
  std::optional<Precision> precision_;  ///< none: the trainer's copy of the weights belongs to another state
  std::vector<StopVote> votes_;         ///< of steps that may be repeated, by step modulo size
  std::int64_t last_ = -1;
};

/// Decodes the strongest vote from the sum of all ranks' votes (`StepResult::votes`).
StopVote decode_votes(float sum);
inline constexpr int max_voters = 65535;

}  // namespace egt
