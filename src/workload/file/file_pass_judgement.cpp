// Judgement of the blocks read in a pass: which are wrong, and the fault records.
#include "workload/file/file_pass.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "workload/common/findings.hpp"

namespace egt {

/// Stores the blocks with a wrong identity and keeps them unchanged. Restores the pattern in the others.
void FilePass::check_identities(std::size_t slot, const Chunk& chunk) {
  const PatternFunction payload(pattern(chunk.file->index, chunk.index, chunk.file->generation));
  strangers_[slot].clear();
  for (std::uint64_t block = 0; block < blocks_in(chunk.bytes); ++block) {
    std::uint32_t* const words = pinned_block(slot, block);
    if (carries(words, identity(chunk, block)))
      restore(words, payload, block * file_block_words);
    else
      strangers_[slot].push_back(block);
  }
}

void FilePass::judge(std::size_t slot, const Chunk& chunk, Reading reading, const Mismatches& found) {
  const bool right = found.count == 0 && strangers_[slot].empty();
  const std::uint64_t wrong_bytes = right ? 0 : examine_blocks(slot, chunk, found);
  count(&FileFigures::bytes_judged, chunk.bytes);
  if (reading == Reading::back) count(&FileFigures::bytes_right, chunk.bytes - wrong_bytes);
}

/// Examines each block in host memory. Returns the number of unverified bytes: the wrong words of blocks with
/// flipped bits, else whole blocks.
std::uint64_t FilePass::examine_blocks(std::size_t slot, const Chunk& chunk, const Mismatches& found) {
  std::uint64_t wrong_bytes = 0;
  const MakeBlock make = [this](const BlockIdentity& of) { return make_block(of); };
  const std::vector<std::uint64_t>& strangers = strangers_[slot];
  for (std::uint64_t block = 0; block < blocks_in(chunk.bytes); ++block) {
    const BlockIdentity expected = identity(chunk, block);
    if (!std::binary_search(strangers.begin(), strangers.end(), block))
      stamp(pinned_block(slot, block), expected);
    const auto finding = examine(pinned_block(slot, block), expected, make);
    if (!finding) continue;
    note(*chunk.file, *finding);
    wrong_bytes +=
        finding->kind == FileFault::bit ? finding->wrong_words * sizeof(std::uint32_t) : block_bytes;
  }
  if (wrong_bytes > 0) return wrong_bytes;
  const Mismatches::Sample sample = lowest_sample(found);
  note(*chunk.file, {.kind = FileFault::copy,
                     .offset = chunk.offset + sample.index / file_block_words * block_bytes,
                     .held = std::nullopt,
                     .wrong_words = found.count,
                     .first_word = sample.index % file_block_words,
                     .expected = sample.expected,
                     .actual = sample.actual});
  return found.count * sizeof(std::uint32_t);
}

void FilePass::note(File& file, const BlockFinding& finding) {
  const std::uint64_t block = blocks_in(finding.offset);
  if (file.reported[block]) return;
  file.reported[block] = true;
  incidents_.add(finding);
  count(&FileFigures::mismatches, finding.wrong_words);
}

void FilePass::note_missing(File& file, std::uint64_t size) {
  if (size >= file.written) return;
  const auto first = file.reported.begin() + static_cast<std::ptrdiff_t>(blocks_in(size));
  const auto end = file.reported.begin() + static_cast<std::ptrdiff_t>(blocks_in(file.written));
  const auto missing = static_cast<std::uint64_t>(std::count(first, end, false));
  if (missing == 0) return;
  std::fill(first, end, true);
  incidents_.add_missing(size, missing);
  count(&FileFigures::mismatches, missing * file_block_words);
}

/// Emits one record per kind of fault in this reading.
void FilePass::report(File& file, Reading reading) {
  for (const FileIncidents::Incident& incident : incidents_.take()) {
    const BlockFinding& first = incident.first;
    {
      const std::lock_guard lock(mutex_);
      figures_.wrong_blocks[static_cast<std::size_t>(first.kind)] += incident.blocks;
    }
    if (is_told_exchange(file, incident)) continue;
    const bool of_words = first.kind == FileFault::bit || first.kind == FileFault::copy;
    Fault fault = fault_of(environment_, to_string(first.kind),
                           reading == Reading::back ? "file read-back" : "file re-read", "io", step_);
    fault.where = fmt::format("{}, pass {}: {}", file.path, pass_,
                              describe(incident, {.generation = file.generation, .file = file.index}));
    fault.offset = first.offset + (of_words ? first.first_word * sizeof(std::uint32_t) : 0);
    if (first.kind != FileFault::truncated) show_difference(fault, first.expected, first.actual);
    fault.count = of_words ? incident.words : incident.blocks;
    environment_.records.emit(fault);
  }
}

/// Two exchanged files are one incident, reported when the first of them is read.
bool FilePass::is_told_exchange(const File& file, const FileIncidents::Incident& incident) {
  if (incident.first.kind != FileFault::swapped) return false;
  const BlockIdentity& held = *incident.first.held;
  const bool of_this_rank = held.rank == static_cast<std::uint32_t>(environment_.place.rank);
  if (!of_this_rank || held.file >= files_.size()) return false;
  if (file.exchanged_with == held.file) return true;
  files_[held.file].exchanged_with = file.index;
  return false;
}

}  // namespace egt
