#include "egt/workload/memory_patrol.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "egt/workload/findings.hpp"

namespace egt {
namespace {

constexpr double operation_ms = 5;  ///< what one operation (two runs of it) is to last
constexpr std::uint64_t fewest_turn_words = 4096;
constexpr double fill_deadline_seconds = 300;
constexpr double second_read_seconds = 30;

/// A pattern of finite numbers every fourth time, first of all.
PatternKind kind_of(std::uint64_t generation) {
  constexpr PatternKind kinds[] = {PatternKind::finite, PatternKind::finite_inverse, PatternKind::random,
                                   PatternKind::random_inverse};
  return kinds[generation % std::size(kinds)];
}

Precision operand_precision(const Device& device) {
  return device.supports(Precision::bf16).yes() ? Precision::bf16 : Precision::fp32;
}

std::string hex(const Digest& digest) {
  return fmt::format("0x{}", to_string(digest));
}

}  // namespace

MemoryPatrol::MemoryPatrol(Environment& environment, std::vector<MemoryBlock> blocks,
                           std::unique_ptr<InFlight> in_flight, Buffer product, std::int64_t product_rows,
                           int buffer_iterations)
    : environment_(environment),
      device_(environment.device),
      blocks_(std::move(blocks)),
      product_(std::move(product)),
      product_rows_(product_rows),
      buffer_iterations_(buffer_iterations),
      precision_(operand_precision(environment.device)),
      product_pace_(operation_ms),
      turn_pace_(operation_ms),
      in_flight_(std::move(in_flight)) {
  figures_.verifications.resize(blocks_.size());
}

Status MemoryPatrol::prepare() {
  EGT_TRY_ASSIGN(word_, device_.allocate_pinned(sizeof(std::uint32_t)));
  for (std::size_t block = 0; block < blocks_.size(); ++block)
    EGT_TRY(device_.fill(blocks_[block].words, pattern(block, 0), in_flight_->stream()));
  return device_.synchronize(in_flight_->stream(), fill_deadline_seconds);
}

Status MemoryPatrol::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    for (std::size_t block = 0; block < blocks_.size(); ++block) EGT_TRY(visit(block, stop));
    const std::lock_guard lock(mutex_);
    ++figures_.sweeps;
  }
  return {};
}

Status MemoryPatrol::verify_all() {
  for (std::size_t block = 0; block < blocks_.size(); ++block) EGT_TRY(verify(block, {}));
  return settle(InFlight::deadline_seconds);
}

PatrolFigures MemoryPatrol::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

Pattern MemoryPatrol::pattern(std::size_t block, std::uint64_t generation) const {
  return {.kind = kind_of(generation),
          .seed = pattern_seed(environment_, PatternPurpose::memory, block, generation)};
}

std::string MemoryPatrol::place(std::size_t block, std::uint64_t generation) const {
  return fmt::format("block {} of {}, generation {}, pattern {}", block + 1, blocks_.size(), generation,
                     to_string(kind_of(generation)));
}

/// The verification is judged before the block is used and rewritten: a wrong word must still be there for
/// its second read, and a wrong operand would put the blame on the multiplier.
Status MemoryPatrol::visit(std::size_t block, const std::stop_token& stop) {
  EGT_TRY(verify(block, stop));
  EGT_TRY(in_flight_->drain(InFlight::deadline_seconds, stop));
  if (blocks_[block].clean && kind_of(blocks_[block].generation) == PatternKind::finite) {
    EGT_TRY(multiply_all(block, stop));
    EGT_TRY(turn_all(block, stop));
    EGT_TRY(turn_window(block, stop));
  }
  EGT_TRY(rewrite(block, stop));
  const std::lock_guard lock(mutex_);
  ++figures_.visits;
  return {};
}

Status MemoryPatrol::verify(std::size_t block, const std::stop_token& stop) {
  const std::uint64_t generation = blocks_[block].generation;
  return in_flight_->submit(
      [&](Stream& stream, Evidence* on_device) {
        return device_.verify(blocks_[block].words, pattern(block, generation), &on_device->mismatches,
                              stream);
      },
      [this, block, generation](const Evidence& evidence, double device_ms) {
        blocks_[block].clean = evidence.mismatches.count == 0;
        count_verification(block, evidence.mismatches, device_ms);
        return tell_mismatch(block, generation, evidence.mismatches, Remains::yes);
      },
      stop);
}

/// Finds what went wrong since `verify`; what that one told already is not told again.
Status MemoryPatrol::rewrite(std::size_t block, const std::stop_token& stop) {
  const std::uint64_t generation = blocks_[block].generation;
  EGT_TRY(in_flight_->submit(
      [&](Stream& stream, Evidence* on_device) {
        return device_.verify_and_fill(blocks_[block].words, pattern(block, generation),
                                       pattern(block, generation + 1), Direction::ascending,
                                       &on_device->mismatches, stream);
      },
      [this, block, generation, told = !blocks_[block].clean](const Evidence& evidence, double device_ms) {
        if (told) return Status();
        count_verification(block, evidence.mismatches, device_ms);
        return tell_mismatch(block, generation, evidence.mismatches, Remains::no);
      },
      stop));
  ++blocks_[block].generation;
  return {};
}

Status MemoryPatrol::multiply_all(std::size_t block, const std::stop_token& stop) {
  const auto elements =
      static_cast<std::int64_t>(blocks_[block].words.bytes() / size_of(storage_type(precision_)));
  for (std::int64_t first = 0; first < elements;) {
    const OperandPiece piece = next_operand_piece(elements - first, rows_of_next_product(), product_rows_);
    EGT_TRY(multiply(block, first, piece, stop));
    first += piece.elements();
  }
  return {};
}

/// The product, twice, over unlike leftovers: so that a run which does nothing shows.
Status MemoryPatrol::multiply(std::size_t block, std::int64_t first, const OperandPiece& piece,
                              const std::stop_token& stop) {
  const ElementType type = storage_type(precision_);
  const std::uint64_t start = static_cast<std::uint64_t>(first) * size_of(type);
  char* const data = blocks_[block].buffer.as<char>() + start;
  const auto operand_bytes = static_cast<std::uint64_t>(piece.elements() / 2) * size_of(type);
  const Gemm gemm{.precision = precision_,
                  .a = {data, type, piece.rows, piece.depth},
                  .b = {data + operand_bytes, type, piece.rows, piece.depth},
                  .d = {product_.data(), ElementType::f32, piece.rows, piece.rows},
                  .b_transposed = true};
  const WordsView result{product_.as<std::uint32_t>(), static_cast<std::uint64_t>(piece.rows * piece.rows)};
  const Pattern leftover{.kind = PatternKind::random, .seed = environment_.seed};
  return in_flight_->submit(
      [&](Stream& stream, Evidence* on_device) -> Status {
        EGT_TRY(device_.set_zero(product_.data(), result.bytes(), stream));
        EGT_TRY(device_.gemm(gemm, stream));
        EGT_TRY(device_.digest(result, &on_device->first, stream));
        EGT_TRY(device_.fill(result, leftover, stream));
        EGT_TRY(device_.gemm(gemm, stream));
        return device_.digest(result, &on_device->second, stream);
      },
      [this, block, start, piece, generation = blocks_[block].generation](const Evidence& evidence,
                                                                          double device_ms) {
        const double flops = 2 * piece.flops();
        product_pace_.learn(flops, device_ms);
        count_product(evidence, flops, device_ms);
        if (!evidence.runs_agree())
          tell_disagreement("gemm", blocks_[block].offset + start, evidence,
                            fmt::format("{}, {} product {} x {} x {}", place(block, generation),
                                        to_string(precision_), piece.rows, piece.rows, piece.depth));
        return Status();
      },
      stop);
}

/// One turn for every word.
Status MemoryPatrol::turn_all(std::size_t block, const std::stop_token& stop) {
  if (buffer_iterations_ == 0) return {};
  const std::uint64_t words = blocks_[block].words.count;
  for (std::uint64_t first = 0; first < words;) {
    const Window window{first, std::min(words_of_next_turn(1), words - first)};
    EGT_TRY(turn(block, window, 1, stop));
    first += window.count;
  }
  return {};
}

/// All turns for a part of the block that moves on from visit to visit.
Status MemoryPatrol::turn_window(std::size_t block, const std::stop_token& stop) {
  if (buffer_iterations_ <= 1) return {};
  MemoryBlock& b = blocks_[block];
  const Window window{b.window, std::min(words_of_next_turn(buffer_iterations_), b.words.count - b.window)};
  b.window = (window.first + window.count) % b.words.count;
  return turn(block, window, buffer_iterations_, stop);
}

Status MemoryPatrol::turn(std::size_t block, Window window, int iterations, const std::stop_token& stop) {
  const WordsView words{blocks_[block].words.data + window.first, window.count};
  return in_flight_->submit(
      [&](Stream& stream, Evidence* on_device) -> Status {
        EGT_TRY(device_.sine_exponential(words, iterations, &on_device->first, stream));
        return device_.sine_exponential(words, iterations, &on_device->second, stream);
      },
      [this, block, window, iterations, generation = blocks_[block].generation](const Evidence& evidence,
                                                                                double device_ms) {
        const double turns = 2.0 * static_cast<double>(window.count) * iterations;
        turn_pace_.learn(turns, device_ms);
        count_turns(evidence, turns, device_ms);
        if (!evidence.runs_agree())
          tell_disagreement("extreme", blocks_[block].offset + window.first * sizeof(std::uint32_t), evidence,
                            fmt::format("{}, {} turns of sine and exponential on {} words",
                                        place(block, generation), iterations, window.count));
        return Status();
      },
      stop);
}

std::int64_t MemoryPatrol::rows_of_next_product() const {
  const double rows = std::sqrt(product_pace_.units() / (4.0 * operand_depth));
  const auto limited = static_cast<std::uint64_t>(std::min(rows, static_cast<double>(product_rows_)));
  return std::max(smallest_product_rows, static_cast<std::int64_t>(std::bit_floor(limited)));
}

/// Whole quanta, for the device's sake.
std::uint64_t MemoryPatrol::words_of_next_turn(int iterations) const {
  constexpr std::uint64_t quantum_words = memory_quantum_bytes / sizeof(std::uint32_t);
  const auto words = static_cast<std::uint64_t>(turn_pace_.units() / (2.0 * iterations));
  return std::max(fewest_turn_words, words / quantum_words * quantum_words);
}

void MemoryPatrol::count_verification(std::size_t block, const Mismatches& found, double device_ms) {
  const std::uint64_t bytes = blocks_[block].words.bytes();
  const std::lock_guard lock(mutex_);
  ++figures_.verifications[block];
  figures_.bytes_verified += bytes;
  figures_.bytes_right += bytes - found.count * sizeof(std::uint32_t);
  figures_.verify_ms += device_ms;
  figures_.mismatches += found.count;
}

void MemoryPatrol::count_product(const Evidence& evidence, double flops, double device_ms) {
  const std::lock_guard lock(mutex_);
  figures_.gemm_ms += device_ms;
  if (evidence.runs_agree()) figures_.gemm_flops += flops;
}

void MemoryPatrol::count_turns(const Evidence& evidence, double turns, double device_ms) {
  const std::lock_guard lock(mutex_);
  figures_.turns_ms += device_ms;
  if (evidence.runs_agree()) figures_.turns += turns;
}

Status MemoryPatrol::tell_mismatch(std::size_t block, std::uint64_t generation, const Mismatches& found,
                                   Remains remains) {
  if (found.count == 0) return {};
  const Mismatches::Sample sample = lowest_sample(found);
  Fault fault = fault_of(environment_, "memory", "pattern", "memory", step_);
  fault.where = place(block, generation);
  fault.offset = blocks_[block].offset + sample.index * sizeof(std::uint32_t);
  describe_mismatch(fault, found, sample);
  if (remains == Remains::yes) {
    EGT_TRY_ASSIGN(const std::string again, second_read(block, sample));
    fault.where += ", " + again;
  } else {
    fault.where += ", went wrong while it was used, rewritten since";
  }
  environment_.records.emit(fault);
  return {};
}

/// Tells a fault of the cell (it reads the same again) from one of the way.
Result<std::string> MemoryPatrol::second_read(std::size_t block, const Mismatches::Sample& sample) {
  Stream& stream = in_flight_->stream();
  EGT_TRY(
      device_.copy(word_.data(), blocks_[block].words.data + sample.index, sizeof(std::uint32_t), stream));
  EGT_TRY(device_.synchronize(stream, second_read_seconds));
  const std::uint32_t word = *word_.as<std::uint32_t>();
  const char* const verdict = word == sample.actual     ? "same"
                              : word == sample.expected ? "as expected"
                                                        : "different";
  return fmt::format("second read {} ({})", hex(word), verdict);
}

void MemoryPatrol::tell_disagreement(std::string kind, std::uint64_t offset, const Evidence& evidence,
                                     std::string where) {
  Fault fault = fault_of(environment_, std::move(kind), "repetition", "memory", step_);
  fault.where = std::move(where);
  fault.offset = offset;
  fault.expected = hex(evidence.first);
  fault.actual = hex(evidence.second);
  fault.xor_mask = hex(Digest{evidence.first.a ^ evidence.second.a, evidence.first.b ^ evidence.second.b});
  environment_.records.emit(fault);
  const std::lock_guard lock(mutex_);
  ++figures_.disagreements;
}

}  // namespace egt
