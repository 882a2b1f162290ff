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

/// Runs a round of known-answer collectives at intervals, while the devices are busy with a step: all-reduce,
/// broadcast, reduce-scatter and all-gather. Every element is known in advance and verified on the device.
/// The ranks exchange their mismatches and judge them identically (collective_judgement.hpp); rank 0 reports
/// the faults. A rank whose own copy of the exchanged mismatches is wrong reports that itself. A single rank
/// does nothing.
///
/// Injections of kind collective corrupt, by `layer`, what the rank receives: 1 all-reduce, 2 broadcast, 3
/// reduce-scatter (its slice), 4 all-gather. 5 corrupts what it sends to the all-reduce, in the next round in
/// which it contributes. Default: one of 1 to 4. Without a mask, 5 replaces the rank's contribution by
/// another valid one.
class CollectiveWorkload : public Workload {
 public:
  /// `stream`: after `prepare`, returns the stream of the communicator's other collectives. `summed_bytes`:
  /// their all-reduced bytes per step. `answers`: results of the memory-resident GEMMs, the newest
  /// max_operand_answers; the ranks compare them in each round.
  CollectiveWorkload(const Environment& environment, const CollectiveOptions& options,
                     std::function<Stream&()> stream, std::function<double()> summed_bytes,
                     std::function<std::vector<OperandAnswer>()> answers);

  std::string name() const override { return "collective"; }
  Status prepare() override;
  Status start() override;
  Status enqueue(const Step& step) override;
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  Status resume(RestartInfo& restart) override;
  /// Runs one round if the run was shorter than the period, and further rounds for due injections.
  Status finish(const Shutdown& ending) override;
  PartReport report() const override;

 private:
  static constexpr std::size_t slots = 4;  ///< max rounds in flight; exceeds the max steps in flight

  /// A round in flight. Rounds share the data buffers and are ordered by the stream.
  struct Slot {
    std::int64_t step = 0;
    CollectiveRound round;
    Buffer introduction;  ///< pinned: introduction of this rank
    Buffer gathered;      ///< pinned: introductions and reports of all ranks
    std::array<std::unique_ptr<Event>, collective_kinds> begin, end;
    std::unique_ptr<Event> done;
  };

  bool planned() const { return environment_.place.size > 1; }
  bool has_round(std::int64_t step) const { return planned() && step % options_.every == options_.every / 2; }
  std::size_t ranks() const { return static_cast<std::size_t>(environment_.place.size); }
  std::size_t told_bytes() const;

  Mismatches* own_report(std::size_t index) const;
  /// `block`: rank that a part belongs to; 0 if there is only one part.
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
  void report(const Slot& slot, const CollectiveFinding& finding);

  Environment environment_;
  CollectiveOptions options_;
  std::function<Stream&()> stream_;
  std::function<double()> summed_bytes_;
  std::function<std::vector<OperandAnswer>()> answers_;
  FaultReporter reporter_;      ///< for memory-resident GEMMs
  std::optional<double> rate_;  ///< standalone all-reduce bus bandwidth, bytes/s
  double moved_bytes_ = 0;      ///< bus bytes of gradients and rounds
  std::uint64_t slice_elements_ = 1;
  Buffer data_, slice_, reported_, gathered_;
  std::array<Slot, slots> slots_;
  std::uint64_t enqueued_ = 0, rounds_ = 0;  ///< rounds enqueued and rounds collected
  std::uint64_t first_number_ = 0;           ///< number of the first round after the last restart
  std::uint64_t rounds_before_ = 0;          ///< rounds collected before that restart
  std::int64_t last_step_ = 0;               ///< last enqueued step
  CollectiveIncidents incidents_;
  std::vector<Injection> planned_injections_;  ///< pending ones of all ranks, the same list on every rank
  std::vector<Injection> own_injections_;      ///< to be applied in the next suitable round
  AnswerComparison operands_;
  std::uint64_t elements_checked_ = 0, mismatches_ = 0, wrong_rounds_ = 0;
  std::array<double, collective_kinds> milliseconds_{};
};

}  // namespace egt
