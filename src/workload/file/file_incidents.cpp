#include "workload/file/file_incidents.hpp"

#include <algorithm>
#include <utility>
#include "egt/core/units.hpp"

#include <fmt/format.h>

namespace egt {
namespace {

/// Beyond this number, it is no longer a single misplaced block.
constexpr std::size_t max_related = 4096;

}  // namespace

void FileIncidents::add(const BlockFinding& finding) {
  if (finding.kind == FileFault::misplaced && misplaced_from_.size() < max_related)
    misplaced_from_.push_back(finding.held->offset);
  const bool not_written = finding.kind == FileFault::stale || finding.kind == FileFault::lost;
  if (not_written && not_written_.size() < max_related)
    not_written_.push_back(finding);
  else
    add(finding, 1);
}

void FileIncidents::add(const BlockFinding& finding, std::uint64_t blocks) {
  std::optional<Incident>& incident = by_kind_[static_cast<std::size_t>(finding.kind)];
  if (!incident) incident = Incident{.first = finding};
  if (finding.offset < incident->first.offset) incident->first = finding;
  incident->blocks += blocks;
  incident->words += finding.wrong_words;
}

void FileIncidents::add_missing(std::uint64_t offset, std::uint64_t blocks) {
  BlockFinding missing;
  missing.kind = FileFault::truncated;
  missing.offset = offset;
  missing.wrong_words = blocks * file_block_words;
  add(missing, blocks);
}

void FileIncidents::drop_what_misplacing_left() {
  for (const BlockFinding& finding : std::exchange(not_written_, {}))
    if (std::find(misplaced_from_.begin(), misplaced_from_.end(), finding.offset) == misplaced_from_.end())
      add(finding, 1);
  misplaced_from_.clear();
}

std::vector<FileIncidents::Incident> FileIncidents::take() {
  drop_what_misplacing_left();
  if (by_kind_[static_cast<std::size_t>(FileFault::swapped)])
    by_kind_[static_cast<std::size_t>(FileFault::truncated)].reset();
  std::vector<Incident> incidents;
  for (auto& incident : by_kind_)
    if (incident) incidents.push_back(*std::exchange(incident, std::nullopt));
  std::sort(incidents.begin(), incidents.end(),
            [](const Incident& a, const Incident& b) { return a.first.offset < b.first.offset; });
  return incidents;
}

std::string describe(const FileIncidents::Incident& incident, const BlockIdentity& of_file) {
  const BlockFinding& first = incident.first;
  const std::string block = fmt::format("block {}", first.offset / file_block_bytes);
  const BlockIdentity held = first.held.value_or(BlockIdentity{});
  switch (first.kind) {
    case FileFault::bit:
      return fmt::format("{}: {} of its {} words wrong", block, first.wrong_words, file_block_words);
    case FileFault::stale:
      return fmt::format("{} holds generation {} instead of {}", block, held.generation, of_file.generation);
    case FileFault::torn:
      return fmt::format("{} was written in part: {} of its {} words are not of generation {}", block,
                         first.wrong_words, file_block_words, of_file.generation);
    case FileFault::misplaced:
      return fmt::format("{} holds the block of byte {} of the rank's file {}", block, held.offset,
                         held.file);
    case FileFault::swapped:
      return fmt::format("{} is that of rank {}, file {}, instead of file {}", block, held.rank, held.file,
                         of_file.file);
    case FileFault::lost:
      return fmt::format("{} holds nothing that this run wrote", block);
    case FileFault::truncated:
      return fmt::format("the file ends there, {} too early",
                         counted(static_cast<std::uint64_t>(incident.blocks), "block"));
    case FileFault::copy:
      return fmt::format("{} was read right, but is wrong on the device", block);
  }
  return block;
}

}  // namespace egt
