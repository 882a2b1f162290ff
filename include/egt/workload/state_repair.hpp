#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "egt/model/mlp_trainer.hpp"
#include "egt/workload/answer_exchange.hpp"

namespace egt {

/// Where the ranks' copies of one state tensor differ.
struct StateDifference {
  StateTensor tensor;
  std::uint64_t word = 0;              ///< of the tensor: the first that is not alike on all ranks
  std::vector<std::uint32_t> by_rank;  ///< what each rank holds there
  std::uint64_t count = 0;  ///< words that are not alike, in the block of `block_words` with `word`
  static constexpr std::uint64_t block_words = 1024;
};

/// The ranks whose word, as fp32, is further from what a repetition gave than the nearest rank's, clearly so:
/// a wrong word is far from it, while the right one can only have moved with the sums of gradients that the
/// wrong one took part in. None: not clear.
std::vector<int> furthest_from(std::uint32_t repeated, const std::vector<std::uint32_t>& by_rank);

/// Keeps the state of training at checks, finds where the ranks' copies differ, and goes back to the last
/// state that was proven, to repeat the steps from there: that leaves all ranks alike again, and has the
/// third voice where two disagree. All ranks make the same calls in the same order; the exchange is free
/// meanwhile.
class StateRepair {
 public:
  /// Enqueues training step `step` again, just as it was.
  using RepeatStep = std::function<Status(std::int64_t step)>;

  StateRepair(Device& device, MlpTrainer& trainer, AnswerExchange& exchange, RepeatStep repeat);

  /// Keeps the state as it is before the first step, as proven.
  Status begin();
  /// Behind the last enqueued step, `step`: keeps the state as a candidate.
  Status keep_candidate(std::int64_t step);
  /// The candidate is right: it is what is gone back to.
  void prove_candidate();

  /// Where the candidate's copies of `tensor` differ.
  Result<StateDifference> locate(const StateTensor& tensor, double timeout_seconds);
  /// Repeats the steps from the proven state to the candidate's; then goes on to `last`, the last step
  /// enqueued, which is left to be retired (as are those behind the candidate's). Gives what this repetition
  /// makes of word `word` of `tensor` at the candidate's step, or nothing where the ranks are not alike there
  /// again.
  Result<std::optional<std::uint32_t>> repeat(const StateTensor& tensor, std::uint64_t word,
                                              std::int64_t last, double timeout_seconds);

  /// Takes training back to the state kept behind `step`, which was proven on some rank; here it may still be
  /// the candidate. No step may be under way. An error: it is not kept here.
  Status go_back_to(std::int64_t step);

  std::int64_t proven_step() const { return proven_step_; }

 private:
  Status drain(std::int64_t last, double timeout_seconds);
  Result<std::vector<Answers>> exchange(const std::function<Status(Digest*)>& write, std::size_t count,
                                        double timeout_seconds);

  Device& device_;
  MlpTrainer& trainer_;
  AnswerExchange& exchange_;
  const RepeatStep repeat_;
  int proven_slot_ = 0;
  std::int64_t proven_step_ = -1, candidate_step_ = -1;
};

}  // namespace egt
