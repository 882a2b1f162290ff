#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/worker_thread.hpp"
#include "workload/memory/memory_patrol.hpp"
#include "workload/memory/memory_plan.hpp"
#include "workload/options.hpp"

namespace egt {

/// Fills the remaining device memory up to the requested share and tests it continuously, on its own thread
/// and a low-priority stream. So it prepares after every workload that allocates memory. Every byte is
/// verified at least once, in `finish` at the latest, except memory freed on request of Environment::load.
/// The fill is limited to MemoryOptions::limit, with a warning.
class MemoryWorkload : public Workload {
 public:
  /// `trained`: standalone FLOP/s per training precision; called in `prepare`. Empty: none is known.
  MemoryWorkload(Environment& environment, const MemoryOptions& options,
                 std::function<ProductRates()> trained = {}, SecondsClock clock = steady_seconds)
      : environment_(environment),
        options_(options),
        trained_(std::move(trained)),
        clock_(std::move(clock)) {}

  std::string name() const override { return "memory"; }
  /// out_of_memory: the share is not available, or other programs use all of it already. The message gives
  /// the bytes wanted, used and free.
  Status prepare() override;
  Status start() override;
  Status enqueue(const Step& step) override;
  /// Returns the error of the memory test.
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  void stop_background() override { thread_.ask_to_stop(); }
  Status finish(const Shutdown& ending) override;
  PartReport report() const override;

  /// See GemmLane::answers. Any thread.
  std::vector<OperandAnswer> answers() const;

  /// The filled blocks in order of offset, for tests and fault injection.
  std::vector<WordsView> blocks() const;

 private:
  Result<ProductRates> product_rates(Stream& stream);
  void look_for_starvation();
  Status verify_all();
  void report_smaller_fill(const SizeOrShare& fill) const;
  Result<std::vector<MemoryBlock>> allocate_blocks(const MemoryPlan& plan) const;
  /// Planned work that was not done, regardless of faults found; empty: none.
  std::string undone(const PatrolFigures& figures) const;

  Environment& environment_;
  const MemoryOptions options_;
  MemoryPlan plan_;
  MemoryInfo filled_;                     ///< device memory after the fill
  std::unique_ptr<MemoryPatrol> patrol_;  ///< null: nothing is planned
  WorkerThread thread_{"the memory test"};
  const std::function<ProductRates()> trained_;
  std::optional<double> verify_rate_;  ///< standalone, bytes/s
  double read_rate_ = 0;               ///< standalone rate of reading only, bytes/s
  ProductRates product_rates_;
  // Starvation check over a window of steps.
  const SecondsClock clock_;
  double last_retired_ = 0;                       ///< seconds of clock_
  double window_seconds_ = 0, window_bytes_ = 0;  ///< window so far; bytes processed before it
  bool starvation_told_ = false;
  bool finished_ = false;
  bool hurried_ = false;
};

}  // namespace egt
