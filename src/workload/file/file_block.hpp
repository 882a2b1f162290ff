#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "egt/core/pattern.hpp"

/// A file consists of 4 KiB blocks: pattern words, with the block's identity at both ends. It shows which
/// block a wrong block holds.
namespace egt {

constexpr std::uint64_t file_block_bytes = 4096;
constexpr std::size_t file_block_words = file_block_bytes / sizeof(std::uint32_t);
constexpr std::size_t identity_words = 8;  ///< at each end

/// Number of whole blocks.
constexpr std::uint64_t blocks_in(std::uint64_t bytes) {
  return bytes / file_block_bytes;
}

using FileBlock = std::array<std::uint32_t, file_block_words>;

/// Identifies a block and the number of its rewrite.
struct BlockIdentity {
  std::uint64_t run = 0;         ///< hash of seed and start of the run; excludes data of earlier runs
  std::uint64_t offset = 0;      ///< in its file, bytes
  std::uint32_t generation = 0;  ///< rewrite number, from 1
  std::uint32_t rank = 0;
  std::uint32_t file = 0;  ///< index among the rank's files

  bool operator==(const BlockIdentity&) const = default;
  bool same_place(const BlockIdentity& other) const {
    return run == other.run && offset == other.offset && rank == other.rank && file == other.file;
  }
};

enum class BlockEnd { head, tail };

/// Writes the identity into both ends of the block, with a checksum that also distinguishes the ends.
void stamp(std::uint32_t* block, const BlockIdentity& identity);
/// True if both ends are bit-identical to what `stamp` writes.
bool carries(const std::uint32_t* block, const BlockIdentity& identity);
/// Identity at one end; std::nullopt if there is none or it is damaged.
std::optional<BlockIdentity> identity_at(BlockEnd end, const std::uint32_t* block);
/// Reverses `stamp`: restores the words of `pattern` at both ends. `first_word`: the block's index in it.
void restore(std::uint32_t* block, const PatternFunction& pattern, std::uint64_t first_word);

/// Kinds of file faults, distinguished by the data found instead.
enum class FileFault {
  bit,        ///< right block, but part of a sector, few bits per word, or one mask is wrong
  stale,      ///< all wrong words are of an older rewrite of this block: the write was lost
  torn,       ///< partly this rewrite, else an older one or no block: partial write
  misplaced,  ///< another block's complete identity, from another offset
  swapped,    ///< this offset's block of another file or rank: files were swapped
  lost,       ///< no block of this run (zeros, for example) and no written word
  truncated,  ///< the file is shorter than what was written
  copy,       ///< the host read it right, but device data is wrong: copy or device memory
};
constexpr std::size_t file_fault_kinds = 8;

/// "file-bit" etc.: the kind in a fault record.
const char* to_string(FileFault kind);

/// One wrong block.
struct BlockFinding {
  FileFault kind = FileFault::bit;
  std::uint64_t offset = 0;           ///< of the block in its file, bytes
  std::optional<BlockIdentity> held;  ///< foreign block found, maybe in part; none: unknown, or the right one
  std::uint64_t wrong_words = 0;
  std::size_t first_word = 0;  ///< first wrong word in the block
  std::uint32_t expected = 0;
  std::uint32_t actual = 0;
};

/// Generates the block of an identity as it is written.
using MakeBlock = std::function<FileBlock(const BlockIdentity&)>;

/// Finding for a block as read; std::nullopt if it is bit-identical. Slow, because it generates blocks: only
/// for blocks that are known or suspected to be wrong.
std::optional<BlockFinding> examine(const std::uint32_t* block, const BlockIdentity& expected,
                                    const MakeBlock& make);

}  // namespace egt
