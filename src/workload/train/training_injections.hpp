#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/options.hpp"

namespace egt {

/// The faults on purpose of training: of its passes (gradient, activation, gemm), which last from their step
/// to the end of the next check, like a unit gone bad; of its state at rest (weight, optimizer), once; and of
/// the transcendental chains (extreme), once. Detectors know nothing of it. Main thread only.
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
  /// What the chains' check behind step `step` shall suffer, of `words` results.
  std::optional<Flip> take_chain_flip(std::int64_t step, std::uint64_t words);
  /// A check was put in line: passes are left alone from here on.
  void end_passes();

 private:
  struct Tampered {
    Tampering tampering;
    std::int64_t since = 0;  ///< step
  };

  Status hang_device(std::int64_t step);
  std::optional<Tampering> tampering_of(const Injection& injection) const;
  StateTensor state_tensor_of(const Injection& injection) const;
  int layers() const { return static_cast<int>(trainer_.layout().layers().size()); }

  Environment& environment_;
  const TrainOptions& options_;
  const BatchShare& batch_;
  MlpTrainer& trainer_;
  std::vector<Tampered> tampered_;
  Buffer unread_;  ///< what a device that hangs writes to
};

}  // namespace egt
