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

/// A word of the state that is not alike on all ranks.
struct DifferentWord {
  std::uint64_t index = 0;             ///< of the tensor
  std::vector<std::uint32_t> by_rank;  ///< what each rank holds there
  std::uint32_t repeated = 0;          ///< what the repeated steps made of it
};

/// Where the ranks' copies of one state tensor differ.
struct StateDifference {
  std::size_t question = 0;          ///< the tensor, as an index of `MlpTrainer::state_tensors`
  std::vector<DifferentWord> words;  ///< in the first `most_blocks` blocks that differ; ascending
  static constexpr std::uint64_t block_words = 1024;
  static constexpr std::size_t most_blocks = 4;
};

/// What the steps from the proven state to the candidate's gave when they were made again.
struct Repetition {
  bool alike = false;               ///< all ranks' states are the same at the candidate's step
  Answers states;                   ///< their digests there, of rank 0
  std::int64_t first_step = 0;      ///< of the steps repeated
  std::vector<double> losses = {};  ///< by repeated step: of all ranks
  std::vector<std::vector<float>> own_losses = {};  ///< by repeated step, then by rank
  PassDigests passes = {};                          ///< of the step asked for, if it was repeated
  bool passes_differ = false;                       ///< of any repeated step
  bool alike_before_loss = true;  ///< all ranks' states just before the step that was asked for
};

/// Keeps the state of training at checks, finds where the ranks' copies differ, and goes back to the last
/// state that was proven, to repeat the steps from there: that leaves all ranks alike again, and has the
/// third voice where two disagree. All ranks make the same calls in the same order; the exchange is free
/// meanwhile. Main thread only.
class StateRepair {
 public:
  /// All outlive the object.
  StateRepair(Environment& environment, TrainingSteps& steps, DigestExchange& exchange)
      : environment_(environment), steps_(steps), trainer_(steps.trainer()), exchange_(exchange) {}

  /// Keeps the state as it is before the first step, as proven.
  Status begin();
  /// Behind the last enqueued step, `step`: keeps the state as a candidate.
  Status keep_candidate(std::int64_t step);
  /// The candidate is right: it is what is gone back to.
  void prove_candidate();

  /// Digests of all ranks' candidates, as `enqueue_state_digests` gives them of the state.
  Result<std::vector<Answers>> candidates();
  /// Where the candidate's copies differ, in the first tensors of those whose digests in `states` do.
  Result<std::vector<StateDifference>> locate(const std::vector<Answers>& states);
  /// Waits for the steps that are under way, which are to be made again.
  Status drain();
  /// Repeats the steps from the proven state to the candidate's, and fills in `repeated` of each word of
  /// `differences`. `pass_step`: whose digests are wanted; none: no step's. `loss_step`: the ranks' states
  /// before it are compared, too; none: not wanted. No step may be under way.
  Result<Repetition> repeat(std::vector<StateDifference>& differences,
                            const std::optional<std::int64_t>& loss_step,
                            const std::optional<std::int64_t>& pass_step);
  /// Enqueues the steps behind the candidate's again; they are left to be retired.
  Status go_on();

  /// Takes training back to the state kept behind `step`, which was proven on some rank; here it may still be
  /// the candidate. No step may be under way. An error: it is not kept here.
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

/// The ranks whose word, as fp32, is more than `times` as far from what a repetition gave as the nearest
/// rank's: a wrong word is far from it, while the right one can only have moved with the sums of gradients
/// that the wrong one took part in. None: not clear.
std::vector<int> furthest_from(std::uint32_t repeated, const std::vector<std::uint32_t>& by_rank,
                               double times = 4);

/// The first step whose loss came out otherwise on some rank when it was repeated, and on which ranks.
struct Deviation {
  std::int64_t step = -1;
  std::set<int> ranks;  ///< none: no step's did
  /// By more than rounding: a word that is wrong by so little that its own rank's loss stays the same may
  /// reach another rank's loss first, by the sums of gradients.
  bool clear = false;
};

/// Decides by the repetition who is wrong where the ranks' vote could not: `undecided` has suspects.
/// `states`: all ranks' digests of the candidate; `candidate_step`: its step. One Dissent a rank found wrong,
/// and one with suspects, of the tensors that stay undecided.
///
/// Of one tensor, in this order:
/// 1. If some rank's digest is the repetition's, the ranks with another are wrong.
/// 2. The ranks whose words are 16 times as far from the repetition's as the nearest rank's are wrong: sums
///    of gradients pull all copies together, past the right value, but not so far past it.
/// 3. A wrong weight changes the loss of its own rank in the next step, and that of others only after a sum
///    of gradients: if one rank's loss was the first to deviate, and did so clearly, that rank is wrong.
/// 4. The ranks whose words are clearly furthest from the repetition's are wrong. This holds for a few steps
///    only, or where no loss deviated, and comes before rule 3 there, if it is clear. Later it only shows
///    a second fault: where the words of one tensor speak against the rank of rule 3, and those of another
///    against another rank, both are suspects in the latter.
std::vector<Dissent> decide_by_repetition(const Dissent& undecided, const std::vector<Answers>& states,
                                          const std::vector<StateDifference>& differences,
                                          const Repetition& repetition, const Deviation& deviation,
                                          std::int64_t candidate_step);
/// The same for all of a vote: replaces its undecided Dissent, if there is one, by what is decided of it.
/// `deviation`: none: no losses were kept. Where the repetition leaves the ranks unlike, nothing is decided.
void decide_by_repetition(std::vector<Dissent>& dissents, const std::vector<Answers>& states,
                          const std::vector<StateDifference>& differences, const Repetition& repetition,
                          const std::optional<Deviation>& deviation, std::int64_t candidate_step);

/// Puts into a fault where the state is wrong, and what is held there: as near as `differences` show.
/// `tensor`: the name of the dissent's first.
void show_state(Fault& fault, const Dissent& dissent, const std::string& tensor,
                const std::vector<StateDifference>& differences);

}  // namespace egt
