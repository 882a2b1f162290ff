#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "egt/core/injection.hpp"
#include "egt/device/device.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/operation_pipeline.hpp"
#include "workload/memory/memory_findings.hpp"
#include "workload/memory/memory_plan.hpp"
#include "workload/memory/memory_suite.hpp"
#include "workload/memory/product_lane.hpp"

namespace egt {

/// One block of the filled region. Owned by the patrol, used by the thread that runs it.
struct MemoryBlock {
  Buffer buffer;
  WordsView words;
  std::uint64_t offset = 0;  ///< bytes from the start of the whole region
  std::uint64_t window = 0;  ///< first word of the next window of sines and exponentials
  bool clean = true;         ///< what its last verification at rest found
  bool right = true;         ///< nothing was wrong since its last visit began
  bool was_visited = false;  ///< since it was an operand
};

/// Learns how much work of one kind the device does in a time, so that no operation lasts long: others are
/// never behind much of it, and a stop is quick. On any device, whatever else it does.
class Pace {
 public:
  explicit Pace(double target_ms) : target_ms_(target_ms) {}
  /// Units for one operation; 0 until something was learnt.
  double units() const { return rate_ * target_ms_; }
  void learn(double units, double milliseconds) {
    if (milliseconds <= 0) return;
    const double rate = units / milliseconds;
    rate_ = rate_ > 0 ? 0.5 * (rate_ + rate) : rate;
  }

 private:
  const double target_ms_;
  double rate_ = 0;  ///< units a millisecond
};

/// What the patrol did so far. Times are device time.
struct PatrolFigures {
  std::uint64_t sweeps = 0;          ///< whole ones: every block had one test
  std::uint64_t rounds = 0;          ///< whole ones: every block had all tests of the suite
  std::uint64_t visits = 0;          ///< blocks verified, used and put through a test
  std::uint64_t bytes_enqueued = 0;  ///< to be verified
  std::uint64_t bytes_verified = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_right = 0;  ///< of those: found as expected
  double verify_ms = 0;           ///< and rewrite
  double turns = 0;               ///< of sine and exponential, both runs counted, equal bit for bit
  double turns_ms = 0;
  std::uint64_t mismatches = 0;              ///< words that were not as expected
  std::uint64_t disagreements = 0;           ///< operations whose two runs differed
  std::uint64_t freed_bytes = 0;             ///< given back since memory was short
  std::vector<std::uint64_t> verifications;  ///< of each block that is still held
  std::vector<std::uint64_t> passes;         ///< over a block, of each test of the suite
};

/// Goes round the blocks. Each visit verifies what rested in the block and puts it through the next test of
/// the suite. One block after the other is filled with finite numbers instead, and is the operand of sines
/// and exponentials and of large products while the patrol goes on with the others. What is wrong becomes a
/// Fault record at once. It keeps to the duty of Environment::load, by the device time of its operations, and
/// gives back the last blocks when they are more than its memory share. One thread at a time runs it;
/// `figures` and `set_step` are safe from any other.
class MemoryPatrol {
 public:
  /// So many that the device always has one to begin while the host judges others.
  static constexpr std::size_t operations_in_flight = 8;

  MemoryPatrol(Environment& environment, std::vector<MemoryBlock> blocks,
               std::unique_ptr<OperationPipeline> in_flight, std::unique_ptr<ProductLane> products,
               int buffer_iterations);

  /// Makes ready what judging needs, puts the first pattern into every block and waits for it.
  Status prepare();
  /// Bytes a second of verifying blocks, with nothing beside it; after `prepare`. What is wrong is told; of
  /// the figures it counts in no other.
  Result<double> measure_rate_alone();
  /// Patrols until a stop is asked for, and then leaves at most operations_in_flight enqueued.
  Status run(const std::stop_token& stop);
  /// Judges what `run` left enqueued.
  Status settle(double seconds);
  /// Verifies every block once more; faults on purpose that are due are put in before.
  Status verify_all();

  /// For the records: the step that was enqueued last.
  void set_step(std::int64_t step) { step_ = step; }
  PatrolFigures figures() const;
  const ProductLane& products() const { return *products_; }
  const std::vector<MemoryBlock>& blocks() const { return blocks_; }

 private:
  /// A verification enqueued.
  struct Check {
    std::size_t block = 0;
    Pattern expected;
    std::string place;       ///< of its finding, in words
    bool rewritten = false;  ///< by a pass of a test; else the block rests, and a wrong word is still there
    std::optional<std::size_t> test;  ///< of the suite, one of whose passes it is
  };
  /// A fault on purpose that waits for the visit of its block.
  struct Strike {
    Injection injection;
    std::size_t block = 0;
    Flip flip;  ///< of the block's words
  };
  struct Window {
    std::uint64_t first = 0;  ///< word of the block
    std::uint64_t count = 0;
  };
  /// A verification at rest that is enqueued ahead of its visit, and the operations up to it.
  struct Look {
    std::size_t block = 0;
    std::uint64_t operations = 0;
  };
  /// Is it held, or the operand of products, and so left alone?
  bool is_away(std::size_t block) const { return courses_[block].held() || products_->holds(block); }
  std::string place(std::size_t block) const;
  WordsView word(std::size_t block, std::uint64_t index) const;

  Status submit(const OperationPipeline::Enqueue& enqueue, OperationPipeline::Judge judge,
                const std::stop_token& stop);
  Status rest(const std::stop_token& stop);
  Status keep_to_share(const std::stop_token& stop);
  void give_back_last();

  Status visit(std::size_t block, const std::stop_token& stop);
  Result<Look> look(std::size_t block, const std::stop_token& stop);
  Status await(const Look& look, const std::stop_token& stop);
  void count_visit();
  Status verify(std::size_t block, const std::stop_token& stop);
  Status run_test(std::size_t block, const std::stop_token& stop);
  Status apply(std::size_t block, std::size_t number, const std::stop_token& stop);
  Status rewrite(const Check& check, const MemoryPass& pass, bool only_fill, const std::stop_token& stop);

  void take_strikes();
  Strike aim(const Injection& injection);
  Status strike(std::size_t block);

  Status take_next_operand(const std::stop_token& stop);
  Status take_operand(std::size_t block, const ProductLane::Plan& plan, const std::stop_token& stop);
  Status turn_all(std::size_t block, const std::stop_token& stop);
  Status turn_window(std::size_t block, const std::stop_token& stop);
  Status turn(std::size_t block, Window window, int iterations, const std::stop_token& stop);

  std::uint64_t words_of_next_turn(int iterations) const;

  Status judge(const Check& check, const Mismatches& found, double device_ms);
  void count_enqueued(const Check& check);
  void count_verification(const Check& check, const Mismatches& found, double device_ms);
  void count_turns(const Evidence& evidence, double turns, double device_ms);
  Status tell_mismatch(const Check& check, const Mismatches& found, const Mismatches::Sample& sample);
  void compare_with_host(float actual, std::uint32_t operand, int iterations, std::uint64_t offset,
                         std::string where);
  void tell_disagreement(std::uint64_t offset, const Evidence& evidence, std::string where);

  Environment& environment_;
  Device& device_;
  std::vector<MemoryBlock> blocks_;
  std::vector<BlockCourse> courses_;  ///< of each block
  std::vector<Strike> strikes_;       ///< not done yet
  std::uint64_t strikes_taken_ = 0;
  std::optional<Look> look_;  ///< at the block that is visited next
  const std::uint64_t planned_bytes_;
  std::uint64_t held_bytes_;
  double worked_ms_ = 0;  ///< device time since the last rest
  MemoryLedger ledger_;
  Buffer probe_;  ///< pinned: a CellProbe
  const int buffer_iterations_;
  std::size_t next_operand_ = 0;  ///< a block
  Pace turn_pace_;
  std::atomic<std::int64_t> step_{-1};
  mutable std::mutex mutex_;
  PatrolFigures figures_;
  std::unique_ptr<OperationPipeline>
      in_flight_;  ///< these two last: their streams end before the memory goes
  std::unique_ptr<ProductLane> products_;
};

}  // namespace egt
