#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "workload/common/findings.hpp"
#include "workload/memory/memory_patrol.hpp"

/// The part of the patrol that computes with what the blocks hold.
namespace egt {
namespace {

constexpr std::uint64_t fewest_turn_words = 4096;

}  // namespace

Status MemoryPatrol::use(std::size_t block, const std::stop_token& stop) {
  EGT_TRY(multiply_all(block, stop));
  EGT_TRY(turn_all(block, stop));
  return turn_window(block, stop);
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
  return submit(
      [&](Stream& stream, Evidence* on_device) -> Status {
        EGT_TRY(device_.set_zero(product_.data(), result.bytes(), stream));
        EGT_TRY(device_.gemm(gemm, stream));
        EGT_TRY(device_.digest(result, &on_device->first, stream));
        EGT_TRY(device_.fill(result, leftover, stream));
        EGT_TRY(device_.gemm(gemm, stream));
        return device_.digest(result, &on_device->second, stream);
      },
      [this, block, start, piece, place = place(block)](const Evidence& evidence, double device_ms) {
        const double flops = 2 * piece.flops();
        product_pace_.learn(flops, device_ms);
        count_product(evidence, flops, device_ms);
        if (!evidence.runs_agree())
          tell_disagreement("gemm", blocks_[block].offset + start, evidence,
                            fmt::format("{}, {} product {} x {} x {}", place, to_string(precision_),
                                        piece.rows, piece.rows, piece.depth));
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
  return submit(
      [&](Stream& stream, Evidence* on_device) -> Status {
        EGT_TRY(device_.sine_exponential(words, iterations, &on_device->first, stream));
        return device_.sine_exponential(words, iterations, &on_device->second, stream);
      },
      [this, block, window, iterations, place = place(block)](const Evidence& evidence, double device_ms) {
        const double turns = 2.0 * static_cast<double>(window.count) * iterations;
        turn_pace_.learn(turns, device_ms);
        count_turns(evidence, turns, device_ms);
        if (!evidence.runs_agree())
          tell_disagreement("extreme", blocks_[block].offset + window.first * sizeof(std::uint32_t), evidence,
                            fmt::format("{}, {} turns of sine and exponential on {} words", place, iterations,
                                        window.count));
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

void MemoryPatrol::tell_disagreement(std::string kind, std::uint64_t offset, const Evidence& evidence,
                                     std::string where) {
  Fault fault = fault_of(environment_, std::move(kind), "repetition", "memory", step_);
  fault.where = std::move(where);
  if (evidence.first == evidence.second) fault.where += ": nothing was computed";
  fault.offset = offset;
  show_difference(fault, evidence.first, evidence.second);
  environment_.records.emit(fault);
  const std::lock_guard lock(mutex_);
  ++figures_.disagreements;
}

}  // namespace egt
