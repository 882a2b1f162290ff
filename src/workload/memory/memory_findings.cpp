#include "workload/memory/memory_findings.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "workload/common/findings.hpp"

namespace egt {
namespace {

constexpr double probe_seconds = 30;
constexpr std::uint64_t search_words = 1u << 22;  ///< about 0.1 s
constexpr std::size_t search_bytes = 1u << 20;    ///< copied at once
constexpr std::size_t max_positions = 64;
/// Bad cells of one column of the memory are a multiple of this distance apart.
constexpr std::uint64_t column_words = 1u << 14;
/// That unrelated memory errors are all read by one multiprocessor.
constexpr double max_chance = 0.02;

std::uint64_t offset_of(std::uint64_t block_offset, const Mismatches::Sample& sample) {
  return block_offset + sample.index * sizeof(std::uint32_t);
}

}  // namespace

std::optional<Mismatches::Sample> MemoryLedger::news(std::uint64_t block_offset, const Mismatches& found) {
  if (found.count == 0 || blocks_.contains(block_offset) || words_.size() >= max_words) return std::nullopt;
  std::optional<Mismatches::Sample> lowest;
  for (const Mismatches::Sample& sample : samples_of(found))
    if (words_.insert(offset_of(block_offset, sample)).second && (!lowest || sample.index < lowest->index))
      lowest = sample;
  if (found.count > Mismatches::max_samples) blocks_.insert(block_offset);
  return lowest;
}

Result<CellProbe> probe_cell(Device& device, Stream& stream, const Buffer& pinned, WordsView word,
                             std::uint32_t content) {
  auto* const probe = pinned.as<CellProbe>();
  const auto read = [&](std::uint32_t& to) { return device.copy(&to, word.data, sizeof to, stream); };
  const auto write = [&](std::uint32_t value) {
    return device.fill(word, {.kind = PatternKind::solid, .parameter = value}, stream);
  };
  EGT_TRY(read(probe->before));
  EGT_TRY(write(0));
  EGT_TRY(read(probe->zeros));
  EGT_TRY(write(~0u));
  EGT_TRY(read(probe->ones));
  EGT_TRY(write(0));
  EGT_TRY(read(probe->zeros_again));
  EGT_TRY(write(content));
  EGT_TRY(device.synchronize(stream, probe_seconds));
  return *probe;
}

void add_sample(Mismatches& to, const Mismatches::Sample& sample) {
  to.sample[to.samples++] = sample;
  to.xor_or |= sample.expected ^ sample.actual;
  to.xor_and &= sample.expected ^ sample.actual;
}

std::map<int, Mismatches> take_miscomputed(Mismatches& found, const Pattern& expected) {
  const PatternFunction function(expected);
  std::map<int, Mismatches> miscomputed;
  Mismatches others = Mismatches::none();
  others.count = found.count;
  others.first_index = found.first_index;
  for (const Mismatches::Sample& one : samples_of(found)) {
    if (one.expected == function(one.index)) {
      add_sample(others, one);
      continue;
    }
    Mismatches& own = miscomputed.try_emplace(static_cast<int>(one.reader), Mismatches::none()).first->second;
    add_sample(own, one);
    ++own.count;
    --others.count;
  }
  if (!miscomputed.empty()) found = others;
  return miscomputed;
}

Result<SecondReads> read_again(Device& device, Stream& stream, const Buffer& pinned, WordsView words,
                               const Mismatches& found) {
  const auto samples = samples_of(found);
  auto* second = pinned.as<std::uint32_t>();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    second[i] = ~samples[i].expected;  // until the copy arrives
    EGT_TRY(device.copy(second + i, words.data + samples[i].index, sizeof *second, stream));
  }
  EGT_TRY(device.synchronize(stream, probe_seconds));
  SecondReads all;
  for (const Mismatches::Sample& one : samples) {
    add_sample(*second++ == one.expected ? all.read_wrong : all.others, one);
  }
  all.read_wrong.count = all.read_wrong.samples;
  all.others.count = found.count - all.read_wrong.count;
  return all;
}

/// The multiprocessor that read all wrong words, if this cannot be chance; else the memory is at fault. Words
/// of one thread block prove nothing, since one multiprocessor reads them all. Words of several blocks prove
/// nothing if they may be a bad column of memory, whose cells can be at distances at which the same
/// multiprocessor reads.
std::optional<int> faulty_reader(const Mismatches& read_wrong, int multiprocessors) {
  std::set<std::uint32_t> blocks;
  for (const Mismatches::Sample& one : samples_of(read_wrong)) {
    blocks.insert(one.block);
    for (const Mismatches::Sample& other : samples_of(read_wrong))
      if (other.reader != one.reader ||
          (other.block != one.block && (other.index - one.index) % column_words == 0))
        return std::nullopt;
  }
  const auto repeats = static_cast<double>(blocks.size()) - 1;
  if (repeats < 1 || std::pow(multiprocessors, -repeats) > max_chance) return std::nullopt;
  return static_cast<int>(read_wrong.sample[0].reader);
}

Result<WrongWords> words_stored_wrong(Device& device, Stream& stream, WordsView words,
                                      const Pattern& expected, std::uint64_t first) {
  // Not allocated before, since memory that is used is not tested.
  EGT_TRY_ASSIGN(const Buffer pinned, device.allocate_pinned(search_bytes));
  WrongWords wrong;
  const PatternFunction function(expected);
  auto* const copy = pinned.as<std::uint32_t>();
  const std::uint64_t end = std::min(words.count, first + search_words), most = pinned.bytes() / sizeof *copy;
  for (std::uint64_t begin = first; begin < end && wrong.size() < max_positions; begin += most) {
    const std::uint64_t count = std::min(most, end - begin);
    EGT_TRY(device.copy(copy, words.data + begin, count * sizeof *copy, stream));
    EGT_TRY(device.synchronize(stream, probe_seconds));
    for (std::uint64_t i = begin; i < begin + count && wrong.size() < max_positions; ++i)
      if (const std::uint32_t word = function(i); copy[i - begin] != word)
        wrong[i] = {.index = i, .expected = word, .actual = copy[i - begin], .reader = no_reader};
  }
  return wrong;
}

Flip fitted(Flip flip, std::uint64_t words) {
  flip.first %= words;
  flip.count = std::min(flip.count, words / std::gcd(flip.stride, words));
  return flip;
}

std::string describe_bits(const Mismatches& found) {
  if (found.xor_or != found.xor_and) return fmt::format("bits {} among them", hex(found.xor_or));
  const char* const each = found.count > 1 ? " in each" : "";
  if (std::has_single_bit(found.xor_or))
    return fmt::format("single bit {}{}", std::countr_zero(found.xor_or), each);
  return fmt::format("bits {}{}", hex(found.xor_or), each);
}

std::string describe_second_read(const CellProbe& probe, const Mismatches::Sample& sample) {
  const char* const verdict = probe.before == sample.actual     ? "same): stored wrong"
                              : probe.before == sample.expected ? "as expected): stored right, read wrong"
                                                                : "different): reads differ";
  return fmt::format("second read {} ({}", hex(probe.before), verdict);
}

std::string describe_rewritten(const CellProbe& probe, std::uint32_t content) {
  if (probe.before == content) return "right when it was rewritten";
  return fmt::format("wrong again when it was rewritten ({} for {})", hex(probe.before), hex(content));
}

std::string describe_cell(const CellProbe& probe) {
  const std::uint32_t one = probe.stuck_at_one(), zero = probe.stuck_at_zero();
  if (one && zero) return fmt::format("stuck at 1 in {} and at 0 in {}", hex(one), hex(zero));
  if (one) return fmt::format("stuck at 1 in {}", hex(one));
  if (zero) return fmt::format("stuck at 0 in {}", hex(zero));
  return "not stuck: takes 0 and 1";
}

void show_disagreement(Fault& fault, std::uint64_t offset, const Evidence& evidence, std::string where) {
  fault.where = std::move(where);
  if (evidence.first == evidence.second) fault.where += ": nothing was computed";
  fault.offset = offset;
  show_difference(fault, evidence.first, evidence.second);
}

}  // namespace egt
