#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/digest_exchange.hpp"
#include "workload/train/second_pass.hpp"
#include "workload/train/training_steps.hpp"

namespace egt {

/// A state word that differs between ranks.
struct DifferentWord {
  std::uint64_t index = 0;             ///< index in the tensor
  std::vector<std::uint32_t> by_rank;  ///< value on each rank
  std::uint32_t repeated = 0;          ///< value after the repeated steps
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
  /// Marks the candidate as verified; restores use it from now on.
  void prove_candidate();

  /// Digests of all ranks' candidates, as computed by `enqueue_state_digests` for the state.
  Result<std::vector<Answers>> candidates();
  /// Locates differences in the first candidate tensors whose digests in `states` differ.
  Result<std::vector<StateDifference>> locate(const std::vector<Answers>& states);
  /// Waits for the steps in flight, which will be repeated.
  Status drain();
  /// Repeats the steps from the verified state to the candidate's, and fills in `repeated` of each word in
  /// `differences`. `pass_step`: step whose pass digests to return, if any. `loss_step`: step before which
  /// the ranks' states are compared too, if any. No step may be in flight.
  Result<Repetition> repeat(std::vector<StateDifference>& differences,
                            const std::optional<std::int64_t>& loss_step,
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
  Result<StateDifference> locate(std::size_t question);
  Result<std::vector<Answers>> exchange_words(const WordsView& words);

  Environment& environment_;
  TrainingSteps& steps_;
  MlpTrainer& trainer_;
  DigestExchange& exchange_;
  int proven_slot_ = 0;
  std::int64_t proven_step_ = -1, candidate_step_ = -1;
};

/// Ranks whose word, as fp32, is over `times` as far from the repetition's as the nearest rank's. A wrong
/// word is far away, while the right one moves only through gradient all-reduces that include the wrong one.
/// Empty: not clear.
std::vector<int> furthest_from(std::uint32_t repeated, const std::vector<std::uint32_t>& by_rank,
                               double times = 4);

/// First step whose loss differed in the repetition on some rank, and these ranks.
struct Deviation {
  std::int64_t step = -1;
  std::set<int> ranks;  ///< empty: no step differed
  /// The difference exceeds rounding. A tiny error that leaves its own rank's loss unchanged may change
  /// another rank's loss first, through the gradient all-reduce.
  bool clear = false;
};

/// Uses the repetition to find the faulty ranks if the vote left suspects, as in `undecided`. `states`: all
/// ranks' digests of the candidate; `candidate_step`: its step. Returns one Mismatch per faulty rank, and one
/// with suspects for the tensors that stay undecided.
///
/// Rules for one tensor, in this order:
/// 1. If some rank's digest equals the repetition's, ranks with another digest are wrong.
/// 2. Ranks whose words are 16 times as far from the repetition's as the nearest rank's are wrong. The
///    gradient all-reduce pulls all copies together, past the right value, but not that far.
/// 3. A wrong weight changes its own rank's loss in the next step, and other losses only after an all-reduce.
///    If one rank's loss was the first to deviate, and clearly, that rank is wrong.
/// 4. Ranks whose words are clearly furthest from the repetition's are wrong. This is reliable for a few
///    steps only, or if no loss deviated; then it precedes rule 3, if clear. Later it only shows a second
///    fault. If the words of one tensor contradict the rank of rule 3, and those of another a different rank,
///    both are suspects in the latter.
std::vector<Mismatch> decide_by_repetition(const Mismatch& undecided, const std::vector<Answers>& states,
                                           const std::vector<StateDifference>& differences,
                                           const Repetition& repetition, const Deviation& deviation,
                                           std::int64_t candidate_step);
/// The same for a complete vote: replaces its undecided Mismatch, if any, by the decisions. `deviation` is
/// empty if no losses were kept. Decides nothing if the ranks differ after the repetition.
void decide_by_repetition(std::vector<Mismatch>& dissents, const std::vector<Answers>& states,
                          const std::vector<StateDifference>& differences, const Repetition& repetition,
                          const std::optional<Deviation>& deviation, std::int64_t candidate_step);

/// Writes location and values of a wrong state into a fault, as precisely as `differences` permit. `tensor`:
/// name of the dissent's first tensor.
void show_state(Fault& fault, const Mismatch& dissent, const std::string& tensor,
                const std::vector<StateDifference>& differences);

}  // namespace egt
