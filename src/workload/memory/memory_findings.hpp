#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "egt/core/pattern.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "workload/common/operation_pipeline.hpp"

/// Reporting of wrong memory words: which ones are new, and the diagnosis of one word.
namespace egt {

/// Remembers the reported wrong words, so that a bad cell, which every pass detects, gives one record. One
/// thread at a time.
class MemoryLedger {
 public:
  static constexpr std::size_t max_words = 1u << 16;  ///< words remembered; then no more reports

  /// Returns the lowest new wrong word, if any. `block_offset`: bytes from the start of the region to the
  /// verified words. A block with more wrong words than samples reports nothing new until it was right again.
  std::optional<Mismatches::Sample> news(std::uint64_t block_offset, const Mismatches& found);
  /// The block passed a complete test without a wrong word.
  void was_right(std::uint64_t block_offset) { blocks_.erase(block_offset); }

 private:
  std::set<std::uint64_t> words_;   ///< offsets in the region, in bytes
  std::set<std::uint64_t> blocks_;  ///< offsets of blocks with more wrong words than samples
};

/// Diagnosis of one word: its content, and the values read after writing 0s and 1s.
struct CellProbe {
  std::uint32_t before = 0;
  std::uint32_t zeros = 0;        ///< read after writing 0
  std::uint32_t ones = 0;         ///< read after then writing ~0
  std::uint32_t zeros_again = 0;  ///< read after writing 0 again

  std::uint32_t stuck_at_one() const { return zeros & zeros_again; }
  std::uint32_t stuck_at_zero() const { return ~ones; }
};

/// Probes `word` (one word of device memory) and leaves `content` in it. `pinned`: holds a CellProbe. Waits
/// for previously enqueued work.
Result<CellProbe> probe_cell(Device& device, Stream& stream, const Buffer& pinned, WordsView word,
                             std::uint32_t content);

/// It fits into `to`.
void add_sample(Mismatches& to, const Mismatches::Sample& sample);

/// Moves the samples whose expected word is not the pattern's out of `found`, by the multiprocessor that
/// computed it.
std::map<int, Mismatches> take_miscomputed(Mismatches& found, const Pattern& expected);

/// The mismatches of a verification, divided by a second read of the sampled words.
struct SecondReads {
  Mismatches read_wrong = Mismatches::none();  ///< samples that are stored right
  Mismatches others = Mismatches::none();      ///< its `count` includes the words without a sample
};
/// `pinned`: holds max_samples words. Waits for previously enqueued work.
Result<SecondReads> read_again(Device& device, Stream& stream, const Buffer& pinned, WordsView words,
                               const Mismatches& found);
/// By index in the block.
using WrongWords = std::map<std::uint64_t, Mismatches::Sample>;
/// Searches `words` from index `first` on for words that are stored wrong, with an upper limit for their
/// number and for the time. Waits for previously enqueued work.
Result<WrongWords> words_stored_wrong(Device& device, Stream& stream, WordsView words,
                                      const Pattern& expected, std::uint64_t first);
/// The multiprocessor to blame for words that were only read wrong; none if the memory may be the cause.
std::optional<int> faulty_reader(const Mismatches& read_wrong, int multiprocessors);

/// The injected fault in a region of `words` words, without a word twice: that would undo its effect.
Flip fitted(Flip flip, std::uint64_t words);

/// "single bit 9", "bits 0x80000001", "bits 0x80000001 in each", "bits 0x0000ffff among them".
std::string describe_bits(const Mismatches& found);
/// For a word not written since the verification: states whether it was stored wrong or only read wrong.
std::string describe_second_read(const CellProbe& probe, const Mismatches::Sample& sample);
/// For a word that was rewritten with `content` since.
std::string describe_rewritten(const CellProbe& probe, std::uint32_t content);
/// "stuck at 1 in 0x00000200", or that the cell stores both values.
std::string describe_cell(const CellProbe& probe);

/// Writes an operation whose two results (`evidence`) differ or are missing into its fault, which has kind,
/// detector, rank and step.
void show_disagreement(Fault& fault, std::uint64_t offset, const Evidence& evidence, std::string where);

}  // namespace egt
