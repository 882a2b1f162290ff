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
#include "workload/memory/gemm_lane.hpp"
#include "workload/memory/memory_findings.hpp"
#include "workload/memory/memory_plan.hpp"
#include "workload/memory/memory_suite.hpp"
#include "workload/memory/repeated_sines.hpp"

namespace egt {

/// One block of the filled region. Owned by the MemoryPatrol, used by its thread.
struct MemoryBlock {
  Buffer buffer;
  WordsView words;
  std::uint64_t offset = 0;  ///< bytes from the start of the region
  std::uint64_t window = 0;  ///< first word of the next sine and exponential window
  bool clean = true;         ///< result of its last retention verification
  bool right = true;         ///< no mismatch since its current test began
  bool was_visited = false;  ///< was tested since it last was an operand
};

/// Learns the device's rate for one kind of work, to size operations to a target time. So other work is not
/// delayed and a stop is quick, on any device and under any load.
class Pace {
 public:
  explicit Pace(double target_ms) : target_ms_(target_ms) {}
  /// Units per operation; 0 before the first measurement.
  double units() const { return rate_ * target_ms_; }
  void learn(double units, double milliseconds) {
    if (milliseconds <= 0) return;
    const double rate = units / milliseconds;
    rate_ = rate_ > 0 ? 0.5 * (rate_ + rate) : rate;
  }

 private:
  const double target_ms_;
  double rate_ = 0;  ///< units per millisecond
};

/// Totals of the memory test so far. Times are device times.
struct PatrolFigures {
  std::uint64_t sweeps = 0;          ///< complete ones: every block had one test
  std::uint64_t rounds = 0;          ///< complete ones: every block had all tests of the suite
  std::uint64_t visits = 0;          ///< blocks verified, used and tested
  std::uint64_t bytes_enqueued = 0;  ///< enqueued for verification
  std::uint64_t bytes_verified = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_right = 0;  ///< of the verified: as expected
  double verify_ms = 0;           ///< including rewrites
  double turns = 0;               ///< sine and exponential iterations of both runs, if bit-identical
  double turns_ms = 0;
  std::uint64_t mismatches = 0;              ///< number of wrong words
  std::uint64_t disagreements = 0;           ///< operations whose two runs differed
  std::uint64_t freed_bytes = 0;             ///< freed on request because memory was short
  std::vector<std::uint64_t> verifications;  ///< per block still held
  std::vector<std::uint64_t> passes;         ///< over a block, per test of the suite
};

/// Tests the blocks cyclically. Each time, it verifies what the block retained and runs the next test of the
/// suite. One block after the other instead becomes an operand of sine and exponential and of large GEMMs,
/// filled with finite numbers, while the other blocks are tested. Mismatches become Fault records at once.
/// Its device time follows the duty cycle of Environment::load, and it frees the last blocks when they exceed
/// its memory share. One thread at a time runs it; only `figures` and `set_step` are thread-safe.
class MemoryPatrol {
 public:
  /// Enough for the device always to have work while the host judges other operations.
  static constexpr std::size_t operations_in_flight = 8;

  MemoryPatrol(Environment& environment, std::vector<MemoryBlock> blocks,
               std::unique_ptr<OperationPipeline> in_flight, std::unique_ptr<GemmLane> products,
               int buffer_iterations);

  /// Prepares the diagnosis, fills every block with its first pattern and waits for that.
  Status prepare();
  /// Standalone verification rate in bytes per second; call after `prepare`. Mismatches are reported; no
  /// other metric is affected.
  Result<double> measure_rate_alone();
  /// Runs until a stop is requested, and leaves at most operations_in_flight operations enqueued.
  Status run(const std::stop_token& stop);
  /// Judges the operations that `run` left enqueued.
  Status settle(double seconds);
  /// Verifies every block once more, after applying the due injections.
  Status verify_all();

  /// Last enqueued step, for the records.
  void set_step(std::int64_t step) { step_ = step; }
  PatrolFigures figures() const;
  const GemmLane& products() const { return *products_; }
  const std::vector<MemoryBlock>& blocks() const { return blocks_; }

 private:
  /// An enqueued verification.
  struct Check {
    std::size_t block = 0;
    Pattern expected;
    std::string place;                ///< location for its finding, as text
    bool rewritten = false;           ///< verified words were overwritten by a test's pass
    std::optional<std::size_t> test;  ///< index in the suite, if it is a pass of a test
  };
  /// An injection that waits for the next verification of its block.
  struct Strike {
    Injection injection;
    std::size_t block = 0;
    Flip flip;  ///< words of the block to flip
  };
  /// Faulty sines and exponentials that have not been repeated yet.
  struct Faulty {
    BlockSines call;
    std::string file;  ///< Fault::reproducer
  };
  /// A retention verification enqueued ahead of the block's test, and the number of operations up to it.
  struct Look {
    std::size_t block = 0;
    std::uint64_t operations = 0;
  };
  /// True if a hold or the GEMMs use the block, so that it must not be tested.
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
  Flip due_miscomputation(std::size_t block);

  Status take_next_operand(const std::stop_token& stop);
  Status take_operand(std::size_t block, const GemmLane::Plan& plan, const std::stop_token& stop);
  Status turn_all(std::size_t block, const std::stop_token& stop);
  Status turn_window(std::size_t block, const std::stop_token& stop);
  Status turn(std::size_t block, std::uint64_t first, std::uint64_t count, int iterations,
              const std::stop_token& stop);
  Status repeat_faulty(std::size_t block, const std::stop_token& stop);

  std::uint64_t words_of_next_turn(int iterations) const;

  Status judge(const Check& check, const Mismatches& found, double device_ms);
  void count_enqueued(const Check& check);
  void count_verification(const Check& check, const Mismatches& found, double device_ms);
  void count_turns(const Evidence& evidence, double turns, double device_ms);
  Status report_mismatch(const Check& check, Mismatches found, Mismatches::Sample sample);
  Status report_words(const Check& check, Mismatches found, Mismatches::Sample sample);
  void report_reader(const Check& check, int reader, const Mismatches& found, const char* how);

  Environment& environment_;
  Device& device_;
  std::vector<MemoryBlock> blocks_;
  std::vector<BlockCourse> courses_;  ///< one per block
  std::vector<Strike> strikes_;       ///< pending
  std::uint64_t strikes_taken_ = 0;
  Flip lasting_miscomputation_ = {.count = 0};  ///< injected into each later verification
  std::optional<Look> look_;                    ///< for the next block
  const std::uint64_t planned_bytes_;
  std::uint64_t held_bytes_;
  double worked_ms_ = 0;  ///< device time since the last pause
  MemoryLedger ledger_;
  std::vector<Faulty> faulty_;
  ReproducerFiles reproducers_{environment_};
  Buffer probe_;  ///< pinned: a CellProbe, or words that are read again
  const int buffer_iterations_;
  std::size_t next_operand_ = 0;  ///< block index
  Pace turn_pace_;
  std::atomic<std::int64_t> step_{-1};
  mutable std::mutex mutex_;
  PatrolFigures figures_;
  std::unique_ptr<OperationPipeline>
      in_flight_;  ///< both last: their streams finish before the memory is freed
  std::unique_ptr<GemmLane> products_;
};

}  // namespace egt
