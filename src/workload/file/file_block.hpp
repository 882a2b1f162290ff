#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "egt/core/pattern.hpp"

/// A file is made of blocks of 4 KiB: words of a pattern, and at both ends the block's identity instead, so
/// that of a block that is wrong one can tell what it is.
namespace egt {

constexpr std::uint64_t file_block_bytes = 4096;
constexpr std::size_t file_block_words = file_block_bytes / sizeof(std::uint32_t);
constexpr std::size_t identity_words = 8;  ///< at either end

/// Whole blocks.
constexpr std::uint64_t blocks_in(std::uint64_t bytes) {
  return bytes / file_block_bytes;
}

using FileBlock = std::array<std::uint32_t, file_block_words>;

/// Which block it is, and which writing of it.
struct BlockIdentity {
  std::uint64_t run = 0;     ///< of the seed and the start of the run: what an earlier run left is not ours
  std::uint64_t offset = 0;  ///< in its file, bytes
  std::uint32_t generation = 0;  ///< how often it was written, this time included
  std::uint32_t rank = 0;
  std::uint32_t file = 0;  ///< which of the rank's files

  bool operator==(const BlockIdentity&) const = default;
  bool same_place(const BlockIdentity& other) const {
    return run == other.run && offset == other.offset && rank == other.rank && file == other.file;
  }
};

enum class BlockEnd { head, tail };

/// Puts the identity at both ends of the block's words, with a checksum that also tells the ends apart.
void stamp(std::uint32_t* block, const BlockIdentity& identity);
/// Are both ends, bit for bit, what `stamp` puts there?
bool carries(const std::uint32_t* block, const BlockIdentity& identity);
/// The identity at one end; none: no identity is there, or it is damaged.
std::optional<BlockIdentity> identity_at(BlockEnd end, const std::uint32_t* block);
/// The reverse of `stamp`: the words of `pattern` at both ends; `first_word` is the block's in the pattern.
void restore(std::uint32_t* block, const PatternFunction& pattern, std::uint64_t first_word);

/// What can be wrong with a file, told apart by what is there instead.
enum class FileFault {
  bit,        ///< the right block: less than a sector of it, or only few bits a word, or one mask, is wrong
  stale,      ///< all that differs is of an older generation of this place: the write did not happen
  torn,       ///< a part is of this generation, the rest of an older one or of no block: written in part
  misplaced,  ///< another block's whole identity, from another offset
  swapped,    ///< the block of this offset from another file or rank: files exchanged
  lost,       ///< no block of this run is there (zeros, say), and none of the words that were written
  truncated,  ///< the file is shorter than what was written
  copy,       ///< the host read it right, but the device holds it wrong: the copy, or the device's memory
};
constexpr std::size_t file_fault_kinds = 8;

/// "file-bit", ..: the kind in a fault's record.
const char* to_string(FileFault kind);

/// One block that is wrong.
struct BlockFinding {
  FileFault kind = FileFault::bit;
  std::uint64_t offset = 0;           ///< of the block in its file, bytes
  std::optional<BlockIdentity> held;  ///< whose block is there, or in part; none: nobody's, or the right one
  std::uint64_t wrong_words = 0;
  std::size_t first_word = 0;  ///< in the block, the first that differs
  std::uint32_t expected = 0;
  std::uint32_t actual = 0;
};

/// Makes the block of an identity as it is written.
using MakeBlock = std::function<FileBlock(const BlockIdentity&)>;

/// What is wrong with a block as it was read; none: it is right, bit for bit. Slow (it makes blocks): for
/// those that are known or suspected to be wrong.
std::optional<BlockFinding> examine(const std::uint32_t* block, const BlockIdentity& expected,
                                    const MakeBlock& make);

}  // namespace egt
