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

/// Takes what is left of the device's memory, up to the share asked for, and patrols it from a thread of its
/// own on a low-priority stream: so it prepares after every workload that needs memory. Every byte is
/// verified at least once, in `finish` at the latest; those aside that were given back meanwhile, since
/// Environment::load asked for it. What is asked for beyond MemoryOptions::limit is not taken, with a
/// warning.
class MemoryWorkload : public Workload {
 public:
  /// `trained`: FLOP/s alone, by the precisions of training; asked for in `prepare`, empty: none is known.
  MemoryWorkload(Environment& environment, const MemoryOptions& options,
                 std::function<ProductRates()> trained = {})
      : environment_(environment), options_(options), trained_(std::move(trained)) {}

  std::string name() const override { return "memory"; }
  /// out_of_memory: the share cannot be taken, or others use all of it already; the text says what is wanted,
  /// used and free.
  Status prepare() override;
  Status start() override;
  Status enqueue(const Step& step) override;
  /// Relays what the patrol failed with.
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  void stop_background() override { thread_.ask_to_stop(); }
  Status finish(const Ending& ending) override;
  PartReport report() const override;

  /// See ProductLane::answers. Any thread.
  std::vector<OperandAnswer> answers() const;

  /// The filled blocks, in the order of their offsets: for tests and for the injection of faults.
  std::vector<WordsView> blocks() const;

 private:
  Result<ProductRates> product_rates(Stream& stream);
  void look_for_starvation();
  Status verify_all();
  void tell_smaller_fill(const SizeOrShare& fill) const;
  Result<std::vector<MemoryBlock>> allocate_blocks(const MemoryPlan& plan) const;
  /// What was planned and not done, whatever was found; empty: nothing.
  std::string undone(const PatrolFigures& figures) const;

  Environment& environment_;
  const MemoryOptions options_;
  MemoryPlan plan_;
  MemoryInfo filled_;                     ///< of the device, once filled
  std::unique_ptr<MemoryPatrol> patrol_;  ///< none: nothing is planned
  WorkerThread thread_{"the memory patrol"};
  const std::function<ProductRates()> trained_;
  std::optional<double> verify_rate_;  ///< alone: bytes/s
  double read_rate_ = 0;               ///< likewise, of bare reading; measured with it
  ProductRates product_rates_;
  // Of the looks for starvation: a window of steps
  Clock::time_point last_retired_ = Clock::now();
  double window_seconds_ = 0, window_bytes_ = 0;  ///< its length; verified and written before it
  bool starvation_told_ = false;
  bool finished_ = false;
  bool hurried_ = false;
};

}  // namespace egt
