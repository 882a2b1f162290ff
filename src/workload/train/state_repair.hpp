#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/workload/workload.hpp"
#include "model/digest_exchange.hpp"
#include "workload/train/pass_judgement.hpp"
#include "workload/train/training_steps.hpp"

namespace egt {

/// A state word that differs between ranks.
struct DifferentWord {
  std::uint64_t index = 0;             ///< index in the tensor
  std::vector<std::uint32_t> by_rank;  ///< value on each rank
};

/// Differences between the ranks' copies of one state tensor.
struct StateDifference {
  std::size_t question = 0;          ///< tensor, as an index of `MlpTrainer::state_tensors`
  std::vector<DifferentWord> words;  ///< in the first `max_blocks` differing blocks; ascending
  static constexpr std::uint64_t block_words = 1024;
  static constexpr std::size_t max_blocks = 4;
};

/// Result of repeating the steps from the verified state to the candidate's.
struct Repetition {
  bool alike = false;                               ///< all ranks have equal states at the candidate's step
  Answers states;                                   ///< their digests there, on rank 0
  std::int64_t first_step = 0;                      ///< first repeated step
  std::vector<double> losses = {};                  ///< over all ranks, per repeated step
  std::vector<std::vector<float>> own_losses = {};  ///< per repeated step and rank
  PassDigests passes = {};                          ///< of the requested step, if it was repeated
  bool passes_differ = false;                       ///< in any repeated step
  bool alike_before_loss = true;                    ///< all ranks' states directly before the requested step
};

/// Keeps the training state at checks, locates differences between the ranks' copies, and restores the last
/// verified state to repeat the steps from there. Afterwards all ranks are equal again, and the repetition
/// decides between two ranks that disagree. Collective: the same calls in the same order on all ranks, with
/// an idle exchange. Main thread only.
class StateRepair {
 public:
  /// All must outlive the object.
  StateRepair(Environment& environment, TrainingSteps& steps, DigestExchange& exchange)
      : environment_(environment), steps_(steps), trainer_(steps.trainer()), exchange_(exchange) {}

  /// Keeps the initial state as verified.
  Status begin();
  /// Keeps the state after the last enqueued step, `step`, as the candidate.
  Status keep_candidate(std::int64_t step);
  /// Digests the candidate, so that an error of its copy shows as one of the state does.
  Status enqueue_candidate_digests(Digest* answers);
  /// Marks the candidate, with these digests, as verified; restores use it from now on.
  void prove_candidate(Answers digests);

  /// Digests of all ranks' candidates.
  Result<std::vector<Answers>> candidates();
  /// Locates differences in the first candidate tensors whose digests in `states` differ.
  Result<std::vector<StateDifference>> locate(const std::vector<Answers>& states);
  /// Waits for the steps in flight, which will be repeated.
  Status drain();
  /// Repeats the steps from the verified state to the candidate's. `pass_step`: step whose pass digests to
  /// return, if any. `loss_step`: step before which the ranks' states are compared too, if any. No step may
  /// be in flight.
  Result<Repetition> repeat(const std::optional<std::int64_t>& loss_step,
                            const std::optional<std::int64_t>& pass_step);
  /// Enqueues the steps after the candidate's again; the caller retires them.
  Status go_on();

  /// Restores the state after `step`, which some rank verified. On this rank it may still be the candidate.
  /// No step may be in flight. Returns an error if the state is not kept here.
  Status go_back_to(std::int64_t step);

  std::int64_t proven_step() const { return proven_step_; }
  std::int64_t candidate_step() const { return candidate_step_; }

 private:
  Result<std::vector<Answers>> exchange(const std::function<Status(Digest*)>& write, std::size_t count);
  Status restore();
  /// Digests of all ranks' current states.
  Result<std::vector<Answers>> states(bool of_second);
  /// Adds the words of a range that differ, up to max_blocks differing blocks.
  Status locate(const WordsView& whole, std::uint64_t first, std::uint64_t count, std::size_t& blocks,
                std::vector<DifferentWord>& found);

  Environment& environment_;
  TrainingSteps& steps_;
  MlpTrainer& trainer_;
  DigestExchange& exchange_;
  int proven_slot_ = 0;
  Answers proven_digests_;  ///< empty: another rank has them, whose check was complete before a restart
  std::int64_t proven_step_ = -1, candidate_step_ = -1;
};

/// Uses the repetition to find the faulty ranks if the vote over `states`, the candidate's digests on all
/// ranks, left suspects. Replaces that Mismatch in `dissents` by one per faulty rank, and one for the tensors
/// that stay undecided. Decides nothing if the ranks differ after the repetition.
/// 1. If some rank's digest of a tensor equals the repetition's, ranks with another digest are wrong.
/// 2. Otherwise a gradient all-reduce has propagated the fault. `blamed(question)`: the ranks whose first
///    wrong result in a pass was of the tensor's layer.
void decide_by_repetition(std::vector<Mismatch>& dissents, const std::vector<Answers>& states,
                          const Repetition& repetition,
                          const std::function<std::set<int>(std::size_t)>& blamed);

/// Writes location and values of a wrong state into a fault, as precisely as `differences` permit. `tensor`:
/// name of the dissent's first tensor.
void show_state(Fault& fault, const Mismatch& dissent, const std::string& tensor,
                const std::vector<StateDifference>& differences);

}  // namespace egt
