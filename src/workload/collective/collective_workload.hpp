#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/collective/collective_judgement.hpp"
#include "workload/collective/known_answer.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/common/operand_answers.hpp"
#include "workload/options.hpp"

namespace egt {

/// From time to time, while the devices are busy with a step: a round of all-reduce, broadcast,
/// reduce-scatter and all-gather whose every element is known beforehand and verified on the device.
/// All ranks exchange what they found, judge it alike (collective_judgement.hpp), and rank 0 tells the
/// faults. With one rank there is nothing to do.
///
/// Injections of kind collective, by `layer`: what the rank receives of 1 the all-reduce, 2 the broadcast,
/// 3 the reduce-scatter (its slice), 4 the all-gather; 5 what it puts into the all-reduce (it waits for a
/// round in which the rank puts something in). None: one of 1 to 4. Without a mask, 5 puts another valid
/// contribution in place of the rank's own.
class CollectiveWorkload : public Workload {
 public:
  /// `stream`: gives, from `prepare` on, the stream on which the communicator's other collectives run;
  /// `summed_bytes`: how much they sum over ranks a step; `answers`: what products over memory gave,
  /// the newest most_operand_answers: with each round the ranks compare it.
  CollectiveWorkload(const Environment& environment, const CollectiveOptions& options,
                     std::function<Stream&()> stream, std::function<double()> summed_bytes,
                     std::function<std::vector<OperandAnswer>()> answers);

  std::string name() const override { return "collective"; }
  Status prepare() override;
  Status start() override;
  Status enqueue(const Step& step) override;
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  Status resume(RestartInfo& restart) override;
  /// A run shorter than the period still gets its round, and so do injections that are due.
  Status finish(const Ending& ending) override;
  PartReport report() const override;

 private:
  static constexpr std::size_t slots = 4;  ///< rounds under way at once: more than steps are

  /// A round under way. Its data shares buffers with the others', in the order of the stream.
  struct Slot {
    std::int64_t step = 0;
    CollectiveRound round;
    Buffer introduction;  ///< pinned: of this rank
    Buffer gathered;      ///< pinned: what all ranks told
    std::array<std::unique_ptr<Event>, collective_kinds> begin, end;
    std::unique_ptr<Event> done;
  };

  bool planned() const { return environment_.place.size > 1; }
  bool has_round(std::int64_t step) const { return planned() && step % options_.every == options_.every / 2; }
  std::size_t ranks() const { return static_cast<std::size_t>(environment_.place.size); }
  std::size_t told_bytes() const;

  Mismatches* own_report(std::size_t index) const;
  /// `block`: the rank that a part belongs to; 0 where there is one part only.
  std::uint64_t seed(const Slot& slot, CollectiveKind kind, int block) const;
  KnownAnswer known_answer(const Slot& slot, CollectiveKind kind) const;

  Status introduce(Slot& slot);
  Status enqueue_round(std::int64_t step);
  Status enqueue_collective(Slot& slot, CollectiveKind kind);
  Status enqueue_exchange(Slot& slot);

  int place_of(const Injection& injection) const;
  bool strikes(const Injection& injection, const CollectiveRound& round) const;
  void take_injections(const Slot& slot);
  Status inject(const Slot& slot, int place, WordsView words);
  Flip flip_contribution(const Slot& slot, const Injection& injection, Flip flip) const;
  bool injection_is_due() const;

  Status await_peers(const Event& event, const char* what);
  double moved_by(CollectiveKind kind) const;

  Status collect_round();
  std::vector<RankReports> read_reports(const Slot& slot) const;
  void compare_operands(const Slot& slot);
  void look_at(const Slot& slot, const std::vector<RankReports>& reports);
  void tell(const Slot& slot, const CollectiveFinding& finding);

  Environment environment_;
  CollectiveOptions options_;
  std::function<Stream&()> stream_;
  std::function<double()> summed_bytes_;
  std::function<std::vector<OperandAnswer>()> answers_;
  FaultReporter reporter_;      ///< of products over memory
  std::optional<double> rate_;  ///< alone, bus bytes/s of an all-reduce
  double moved_bytes_ = 0;      ///< bus bytes: of gradients and rounds
  std::uint64_t slice_elements_ = 1;
  Buffer data_, slice_, told_, gathered_;
  std::array<Slot, slots> slots_;
  std::uint64_t enqueued_ = 0, rounds_ = 0;  ///< rounds enqueued, and collected
  std::uint64_t first_number_ = 0;           ///< of the rounds after the last restart
  std::uint64_t rounds_before_ = 0;          ///< collected before it
  std::int64_t last_step_ = 0;               ///< enqueued last
  CollectiveIncidents incidents_;
  std::vector<Injection> planned_injections_;  ///< of all ranks, the same everywhere: not yet had their turn
  std::vector<Injection> own_injections_;      ///< taken, to strike in the next round that gives the chance
  AnswerComparison operands_;
  std::uint64_t elements_checked_ = 0, mismatches_ = 0, wrong_rounds_ = 0;
  std::array<double, collective_kinds> milliseconds_{};
};

}  // namespace egt
