#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "egt/core/pattern.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "workload/common/operation_pipeline.hpp"

/// What is made of wrong words of memory: which of them are told, and what a closer look at one says.
namespace egt {

/// Remembers the wrong words that were told, so that a bad cell, which every pass sees again, gives one
/// record. For one thread at a time.
class MemoryLedger {
 public:
  static constexpr std::size_t most_words = 1u << 16;  ///< that are remembered; behind them nothing is news

  /// The lowest wrong word that is to be told, if there is a new one. `block_offset`: bytes from the start of
  /// the region to what was verified. Of a block with more wrong words than are sampled, nothing is news
  /// until it was right again.
  std::optional<Mismatches::Sample> news(std::uint64_t block_offset, const Mismatches& found);
  /// The block went through a whole visit without a wrong word.
  void was_right(std::uint64_t block_offset) { blocks_.erase(block_offset); }

 private:
  std::set<std::uint64_t> words_;   ///< offsets in the region, bytes
  std::set<std::uint64_t> blocks_;  ///< offsets of those with too many to know each
};

/// What one word did when it was looked at again: what it held, and what it gave back of 0s and 1s.
struct CellProbe {
  std::uint32_t before = 0;
  std::uint32_t zeros = 0;        ///< read after 0 was written
  std::uint32_t ones = 0;         ///< then after ~0
  std::uint32_t zeros_again = 0;  ///< then after 0

  std::uint32_t stuck_at_one() const { return zeros & zeros_again; }
  std::uint32_t stuck_at_zero() const { return ~ones; }
};

/// Looks at `word` (one word of device memory) and leaves `content` in it. `pinned`: of a CellProbe. Waits
/// for the work enqueued before it.
Result<CellProbe> probe_cell(Device& device, Stream& stream, const Buffer& pinned, WordsView word,
                             std::uint32_t content);

/// "single bit 9", "bits 0x80000001", "bits 0x80000001 in each", "bits 0x0000ffff among them".
std::string describe_bits(const Mismatches& found);
/// Of a word that still was as the verification left it: was it stored wrong, or only read wrong?
std::string describe_second_read(const CellProbe& probe, const Mismatches::Sample& sample);
/// Of a word that was rewritten with `content` since.
std::string describe_rewritten(const CellProbe& probe, std::uint32_t content);
/// "stuck at 1 in 0x00000200", or that it takes both.
std::string describe_cell(const CellProbe& probe);

/// Of an operation whose two results (`evidence`) are not the same, or are none. `fault`: kind, detector,
/// rank, step; the rest is put in here.
void emit_disagreement(RecordQueue& records, Fault fault, std::uint64_t offset, const Evidence& evidence,
                       std::string where);

}  // namespace egt
