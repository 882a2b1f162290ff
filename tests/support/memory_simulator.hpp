#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "egt/core/pattern.hpp"
#include "egt/device/device.hpp"
#include "workload/memory/memory_suite.hpp"

/// Memory whose cells have the faults of the literature (van de Goor, "Testing Semiconductor Memories",
/// 1991), and the memory test's suite on it.
namespace egt::test {

struct Cells {
  std::vector<std::uint32_t> stored;
  std::uint64_t now = 0;  ///< reads and writes so far
};

/// A fault of the memory. The base class has no fault.
class CellFault {
 public:
  virtual ~CellFault() = default;
  virtual void write(Cells& cells, std::size_t address, std::uint32_t value) {
    cells.stored[address] = value;
  }
  virtual std::uint32_t read(Cells& cells, std::size_t address) { return cells.stored[address]; }
};

struct Bit {
  std::size_t word = 0;
  unsigned bit = 0;

  std::uint32_t mask() const { return 1u << bit; }
  bool of(const Cells& cells) const { return cells.stored[word] & mask(); }
  void set(Cells& cells, bool value) const {
    cells.stored[word] = (cells.stored[word] & ~mask()) | (value ? mask() : 0);
  }
};

class StuckAt : public CellFault {
 public:
  StuckAt(Bit bit, bool value) : bit_(bit), value_(value) {}
  std::uint32_t read(Cells& cells, std::size_t address) override {
    if (address == bit_.word) bit_.set(cells, value_);
    return cells.stored[address];
  }

 private:
  Bit bit_;
  bool value_;
};

/// The bit cannot change from 0 to 1 (rising), or from 1 to 0.
class Transition : public CellFault {
 public:
  Transition(Bit bit, bool rising) : bit_(bit), rising_(rising) {}
  void write(Cells& cells, std::size_t address, std::uint32_t value) override {
    const bool before = address == bit_.word && bit_.of(cells);
    cells.stored[address] = value;
    if (address == bit_.word && before != bit_.of(cells) && bit_.of(cells) == rising_)
      bit_.set(cells, before);
  }

 private:
  Bit bit_;
  bool rising_;
};

enum class Effect { inverts, forces_zero, forces_one };

/// A transition of the aggressor changes the victim: inversion and idempotent coupling faults.
class Coupling : public CellFault {
 public:
  Coupling(Bit aggressor, Bit victim, bool rising, Effect effect)
      : aggressor_(aggressor), victim_(victim), rising_(rising), effect_(effect) {}
  void write(Cells& cells, std::size_t address, std::uint32_t value) override {
    const bool before = aggressor_.of(cells);
    cells.stored[address] = value;
    if (address != aggressor_.word || before == aggressor_.of(cells) || before == rising_) return;
    victim_.set(cells, effect_ == Effect::inverts ? !victim_.of(cells) : effect_ == Effect::forces_one);
  }

 private:
  Bit aggressor_, victim_;
  bool rising_;
  Effect effect_;
};

/// While the aggressor is in one state, the victim reads as one value.
class StateCoupling : public CellFault {
 public:
  StateCoupling(Bit aggressor, Bit victim, bool state, bool value)
      : aggressor_(aggressor), victim_(victim), state_(state), value_(value) {}
  std::uint32_t read(Cells& cells, std::size_t address) override {
    const std::uint32_t word = cells.stored[address];
    if (address != victim_.word || aggressor_.of(cells) != state_) return word;
    return (word & ~victim_.mask()) | (value_ ? victim_.mask() : 0);
  }

 private:
  Bit aggressor_, victim_;
  bool state_, value_;
};

/// An address that selects no cell: writes are lost. Reads return the last bus value, or one constant word.
class NoCell : public CellFault {
 public:
  NoCell(std::size_t address, bool floats, std::uint32_t word)
      : address_(address), floats_(floats), word_(word) {}
  void write(Cells& cells, std::size_t address, std::uint32_t value) override {
    if (address != address_) cells.stored[address] = value;
  }
  std::uint32_t read(Cells& cells, std::size_t address) override {
    if (address == address_) return word_;
    if (floats_) word_ = cells.stored[address];
    return cells.stored[address];
  }

 private:
  std::size_t address_;
  bool floats_;
  std::uint32_t word_;
};

/// Two addresses select one cell.
class Alias : public CellFault {
 public:
  Alias(std::size_t address, std::size_t other) : address_(address), other_(other) {}
  void write(Cells& cells, std::size_t address, std::uint32_t value) override {
    cells.stored[address == address_ ? other_ : address] = value;
  }
  std::uint32_t read(Cells& cells, std::size_t address) override {
    return cells.stored[address == address_ ? other_ : address];
  }

 private:
  std::size_t address_, other_;
};

/// An address that also selects another cell: it writes both and reads their AND or OR.
class TwoCells : public CellFault {
 public:
  TwoCells(std::size_t address, std::size_t other, bool reads_or)
      : address_(address), other_(other), reads_or_(reads_or) {}
  void write(Cells& cells, std::size_t address, std::uint32_t value) override {
    cells.stored[address] = value;
    if (address == address_) cells.stored[other_] = value;
  }
  std::uint32_t read(Cells& cells, std::size_t address) override {
    const std::uint32_t word = cells.stored[address], other = cells.stored[other_];
    if (address != address_) return word;
    return reads_or_ ? word | other : word & other;
  }

 private:
  std::size_t address_, other_;
  bool reads_or_;
};

/// The bit decays to `value` if it was not written during this many reads and writes of the memory.
class Retention : public CellFault {
 public:
  Retention(Bit bit, bool value, std::uint64_t keeps) : bit_(bit), value_(value), keeps_(keeps) {}
  void write(Cells& cells, std::size_t address, std::uint32_t value) override {
    cells.stored[address] = value;
    if (address == bit_.word) written_ = cells.now;
  }
  std::uint32_t read(Cells& cells, std::size_t address) override {
    if (address == bit_.word && cells.now - written_ > keeps_) bit_.set(cells, value_);
    return cells.stored[address];
  }

 private:
  Bit bit_;
  bool value_;
  std::uint64_t keeps_;
  std::uint64_t written_ = 0;
};

/// Order within an operation. A device works in waves: it reads all words of a wave and writes them, in any
/// order, before the next wave.
struct Waves {
  std::size_t words = 1;
  std::mt19937_64* order = nullptr;  ///< null: ascending
};

struct SimulatedRegion {
  std::size_t blocks = 4;
  std::size_t block_words = 64;
  std::size_t words() const { return blocks * block_words; }
};

/// Device operations on the blocks of a region with faulty cells.
class SimulatedMemory {
 public:
  SimulatedMemory(SimulatedRegion region, CellFault& fault, std::uint64_t seed, Waves waves = {})
      : region_(region), fault_(fault), waves_(waves) {
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < region.words(); ++i)
      cells_.stored.push_back(static_cast<std::uint32_t>(random()));
  }

  std::uint64_t now() const { return cells_.now; }

  void fill(std::size_t block, const Pattern& pattern) {
    const PatternFunction word_at(pattern);
    for (std::size_t i = 0; i < region_.block_words; ++i) write(block, i, word_at(i));
  }

  /// Number of wrong words.
  std::uint64_t verify(std::size_t block, const Pattern& expected) {
    const PatternFunction word_at(expected);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < region_.block_words; ++i) wrong += read(block, i) != word_at(i);
    return wrong;
  }

  std::uint64_t verify_and_fill(std::size_t block, const Pattern& expected, const Pattern& next,
                                Direction direction) {
    const PatternFunction expected_at(expected), next_at(next);
    const std::size_t count = (region_.block_words + waves_.words - 1) / waves_.words;
    std::uint64_t wrong = 0;
    for (std::size_t w = 0; w < count; ++w) {
      const std::size_t wave = direction == Direction::ascending ? w : count - 1 - w;
      const std::vector<std::size_t> words = wave_words(wave);
      for (const std::size_t i : words) wrong += read(block, i) != expected_at(i);
      for (const std::size_t i : words) write(block, i, next_at(i));
    }
    return wrong;
  }

 private:
  std::vector<std::size_t> wave_words(std::size_t wave) const {
    const std::size_t first = wave * waves_.words;
    std::vector<std::size_t> words(std::min(waves_.words, region_.block_words - first));
    std::iota(words.begin(), words.end(), first);
    if (waves_.order) std::shuffle(words.begin(), words.end(), *waves_.order);
    return words;
  }
  std::uint32_t read(std::size_t block, std::size_t i) {
    ++cells_.now;
    return fault_.read(cells_, block * region_.block_words + i);
  }
  void write(std::size_t block, std::size_t i, std::uint32_t value) {
    ++cells_.now;
    fault_.write(cells_, block * region_.block_words + i, value);
  }

  SimulatedRegion region_;
  CellFault& fault_;
  Waves waves_;
  Cells cells_;
};

/// Tests the blocks in the order of the memory workload until a word is wrong or `rounds` are complete.
inline std::uint64_t wrong_words(SimulatedMemory& memory, const SimulatedRegion& region,
                                 std::span<const MemoryTest> suite, std::uint64_t rounds,
                                 std::uint64_t seed) {
  std::vector<BlockCourse> courses;
  for (std::size_t block = 0; block < region.blocks; ++block) {
    courses.emplace_back(suite, block, region.blocks, mix64(seed + block));
    memory.fill(block, courses[block].pattern());
  }
  while (courses.back().round() < rounds)
    for (std::size_t block = 0; block < region.blocks; ++block) {
      BlockCourse& course = courses[block];
      if (!course.held()) {
        std::uint64_t wrong = memory.verify(block, course.pattern());
        for (const MemoryPass& pass : course.test().passes) {
          wrong += memory.verify_and_fill(block, course.pattern(), course.next(pass), pass.direction);
          course.wrote(pass);
        }
        if (wrong) return wrong;
      }
      course.leave();
    }
  std::uint64_t wrong = 0;
  for (std::size_t block = 0; block < region.blocks; ++block)
    wrong += memory.verify(block, courses[block].pattern());
  return wrong;
}

}  // namespace egt::test
