#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "egt/device/device.hpp"
#include "egt/workload/in_flight.hpp"
#include "egt/workload/memory_plan.hpp"
#include "egt/workload/workload.hpp"

namespace egt {

/// One block of the filled region. Owned by the patrol, used by the thread that runs it.
struct MemoryBlock {
  Buffer buffer;
  WordsView words;
  std::uint64_t offset = 0;      ///< bytes from the start of the whole region
  std::uint64_t generation = 0;  ///< how often it was rewritten since the first fill
  std::uint64_t window = 0;      ///< first word of the next window of sines and exponentials
  bool clean = true;             ///< what its last verification found
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
  std::uint64_t sweeps = 0;  ///< whole ones
  std::uint64_t visits = 0;  ///< blocks verified, used and rewritten
  std::uint64_t bytes_verified = 0;
  std::uint64_t bytes_right = 0;  ///< of those: found as expected
  double verify_ms = 0;
  double gemm_flops = 0;  ///< both runs counted, equal bit for bit
  double gemm_ms = 0;
  double turns = 0;  ///< of sine and exponential, both runs counted, equal bit for bit
  double turns_ms = 0;
  std::uint64_t mismatches = 0;              ///< words that were not as expected
  std::uint64_t disagreements = 0;           ///< operations whose two runs differed
  std::vector<std::uint64_t> verifications;  ///< of each block
};

/// Goes round the blocks: verifies each, uses it as operand of products and of sines and exponentials where
/// its pattern is made of finite numbers, and rewrites it with its next pattern. What is wrong becomes a
/// Fault record at once. One thread at a time runs it; `figures` and `set_step` are safe from any other.
class MemoryPatrol {
 public:
  /// `product`: scratch for product_rows^2 fp32.
  MemoryPatrol(Environment& environment, std::vector<MemoryBlock> blocks, std::unique_ptr<InFlight> in_flight,
               Buffer product, std::int64_t product_rows, int buffer_iterations);

  /// Makes ready what judging needs, puts the first pattern into every block and waits for it.
  Status prepare();
  /// Patrols until a stop is asked for, and then leaves at most InFlight::slots operations in line.
  Status run(const std::stop_token& stop);
  /// Judges what `run` left in line.
  Status settle(double seconds) { return in_flight_->drain(seconds); }
  /// Verifies every block once more.
  Status verify_all();

  /// For the records: the step that was enqueued last.
  void set_step(std::int64_t step) { step_ = step; }
  PatrolFigures figures() const;
  const std::vector<MemoryBlock>& blocks() const { return blocks_; }

 private:
  enum class Remains { no, yes };  ///< is the wrong word still there, for a second read?
  struct Window {
    std::uint64_t first = 0;  ///< word of the block
    std::uint64_t count = 0;
  };

  Pattern pattern(std::size_t block, std::uint64_t generation) const;
  std::string place(std::size_t block, std::uint64_t generation) const;

  Status visit(std::size_t block, const std::stop_token& stop);
  Status verify(std::size_t block, const std::stop_token& stop);
  Status rewrite(std::size_t block, const std::stop_token& stop);
  Status multiply_all(std::size_t block, const std::stop_token& stop);
  Status multiply(std::size_t block, std::int64_t first, const OperandPiece& piece,
                  const std::stop_token& stop);
  Status turn_all(std::size_t block, const std::stop_token& stop);
  Status turn_window(std::size_t block, const std::stop_token& stop);
  Status turn(std::size_t block, Window window, int iterations, const std::stop_token& stop);

  std::int64_t rows_of_next_product() const;
  std::uint64_t words_of_next_turn(int iterations) const;

  void count_verification(std::size_t block, const Mismatches& found, double device_ms);
  void count_product(const Evidence& evidence, double flops, double device_ms);
  void count_turns(const Evidence& evidence, double turns, double device_ms);
  Status tell_mismatch(std::size_t block, std::uint64_t generation, const Mismatches& found, Remains remains);
  Result<std::string> second_read(std::size_t block, const Mismatches::Sample& sample);
  void tell_disagreement(std::string kind, std::uint64_t offset, const Evidence& evidence, std::string where);

  Environment& environment_;
  Device& device_;
  std::vector<MemoryBlock> blocks_;
  Buffer product_;
  Buffer word_;  ///< pinned, for second reads
  const std::int64_t product_rows_;
  const int buffer_iterations_;
  const Precision precision_;
  Pace product_pace_;
  Pace turn_pace_;
  std::atomic<std::int64_t> step_{-1};
  mutable std::mutex mutex_;
  PatrolFigures figures_;
  std::unique_ptr<InFlight> in_flight_;  ///< last: its stream ends before the memory goes
};

}  // namespace egt
