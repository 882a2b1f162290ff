#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"
#include "workload/memory/memory_patrol.hpp"

/// The part of the memory test that uses block contents as GEMM and function operands.
namespace egt {
namespace {

constexpr std::uint64_t fewest_turn_words = 4096;

/// With more iterations, rounding differs too much between device and host.
constexpr int comparable_iterations = 2;
constexpr double sample_tolerance = 1e-5;

/// math::sine_exponential with the host library's functions.
double sine_exponential_on_host(double v, int iterations) {
  double sum = 0;
  for (int i = 0; i < iterations; ++i) {
    v = std::sin(v * static_cast<double>(1.7f) + i) + std::exp(-std::fabs(v));
    sum += v;
  }
  return sum;
}

/// For sines and exponentials, whose arguments must be small enough to compare their values with the host's.
constexpr MemoryPass turns_pass{.kind = PatternKind::finite, .seed = MemoryPass::Seed::given};

}  // namespace

/// Turns one block after the other into an operand, each after its test.
Status MemoryPatrol::take_next_operand(const std::stop_token& stop) {
  if (products_->held() >= products_->wanted(blocks_.size())) return {};
  const std::size_t block = std::exchange(next_operand_, next_operand_ + 1) % blocks_.size();
  const auto plan = products_->plan(blocks_[block].words.bytes(), step_);
  if (is_away(block) || !plan || !blocks_[block].was_visited) return {};
  blocks_[block].was_visited = false;
  const bool was_looked_at = look_ && look_->block == block;
  if (was_looked_at) {
    EGT_TRY(await(*std::exchange(look_, std::nullopt), stop));
  } else {
    EGT_TRY_ASSIGN(const Look own, look(block, stop));
    EGT_TRY(await(own, stop));
  }
  EGT_TRY(take_operand(block, *plan, stop));
  count_visit();
  return {};
}

/// Fills the block with finite numbers, runs all of them through sine and exponential, fills it with a band
/// of GEMM operands, and keeps these until all results are judged.
Status MemoryPatrol::take_operand(std::size_t block, const GemmLane::Plan& plan,
                                  const std::stop_token& stop) {
  const Check check{.block = block,
                    .expected = courses_[block].pattern(),
                    .place = fmt::format("{}, before it became an operand", place(block)),
                    .rewritten = true,
                    .test = {}};
  courses_[block].give_seed(plan.seed);
  EGT_TRY(rewrite(check, turns_pass, !blocks_[block].clean, stop));
  EGT_TRY(turn_all(block, stop));
  EGT_TRY(turn_window(block, stop));
  const Check turned{.block = block,
                     .expected = courses_[block].pattern(),
                     .place = fmt::format("{}, before it became an operand of GEMMs", place(block)),
                     .rewritten = true,
                     .test = {}};
  const MemoryPass operands{
      .kind = PatternKind::operands, .parameter = plan.parameter(), .seed = MemoryPass::Seed::same};
  EGT_TRY(rewrite(turned, operands, false, stop));
  const MemoryBlock& b = blocks_[block];
  return products_->begin(block, b.words, b.offset, place(block), plan, in_flight_->stream());
}

/// One iteration for every word.
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

/// All iterations for a window of the block. Each use of the block takes the next window.
Status MemoryPatrol::turn_window(std::size_t block, const std::stop_token& stop) {
  if (buffer_iterations_ <= 1) return {};
  MemoryBlock& b = blocks_[block];
  const Window window{b.window, std::min(words_of_next_turn(buffer_iterations_), b.words.count - b.window)};
  b.window = (window.first + window.count) % b.words.count;
  return turn(block, window, buffer_iterations_, stop);
}

Status MemoryPatrol::turn(std::size_t block, Window window, int iterations, const std::stop_token& stop) {
  const WordsView words{blocks_[block].words.data + window.first, window.count};
  const std::uint64_t last = window.count - 1;
  const std::uint32_t operand = PatternFunction(courses_[block].pattern())(window.first + last);
  return submit(
      [&](Stream& stream, Evidence* on_device) -> Status {
        EGT_TRY(device_.sine_exponential(words, iterations, &on_device->first, stream));
        if (last > 0)
          EGT_TRY(device_.sine_exponential({words.data, last}, iterations, &on_device->second, stream));
        return device_.sine_exponential({words.data + last, 1}, iterations, &on_device->sample, stream);
      },
      [this, block, window, iterations, last, operand, place = place(block)](Evidence evidence,
                                                                             double device_ms) {
        const double turns = 2.0 * static_cast<double>(window.count) * iterations;
        const auto word = only_word(evidence.sample);
        if (word) add_to_digest(evidence.second.a, evidence.second.b, last, *word);
        turn_pace_.learn(turns, device_ms);
        count_turns(evidence, turns, device_ms);
        const std::uint64_t offset = blocks_[block].offset + window.first * sizeof(std::uint32_t);
        const std::string what = fmt::format("{}, {} of sine and exponential on", place,
                                             counted(static_cast<std::uint64_t>(iterations), "iteration"));
        if (!word || !evidence.runs_agree())
          report_disagreement(offset, evidence, fmt::format("{} {}", what, counted(window.count, "word")));
        else if (iterations <= comparable_iterations)
          compare_with_host(float_from_bits(*word), operand, iterations,
                            offset + last * sizeof(std::uint32_t),
                            fmt::format("{} the word {:#010x}", what, operand));
        return Status();
      },
      stop);
}

/// Checks the word that was computed separately on the device and that agrees with both runs.
void MemoryPatrol::compare_with_host(float actual, std::uint32_t operand, int iterations,
                                     std::uint64_t offset, std::string where) {
  const double expected = sine_exponential_on_host(static_cast<double>(float_from_bits(operand)), iterations);
  if (std::fabs(static_cast<double>(actual) - expected) <= sample_tolerance) return;
  Fault fault = fault_of(environment_, "extreme", "host sample", "memory", step_);
  fault.where = std::move(where);
  fault.offset = offset;
  fault.expected = fmt::format("{:.9g}", expected);
  fault.actual = fmt::format("{:.9g}", actual);
  environment_.records.emit(fault);
  const std::lock_guard lock(mutex_);
  ++figures_.disagreements;
}

/// A multiple of the memory quantum, for alignment.
std::uint64_t MemoryPatrol::words_of_next_turn(int iterations) const {
  constexpr std::uint64_t quantum_words = memory_quantum_bytes / sizeof(std::uint32_t);
  const auto words = static_cast<std::uint64_t>(turn_pace_.units() / (2.0 * iterations));
  return std::max(fewest_turn_words, words / quantum_words * quantum_words);
}

void MemoryPatrol::count_turns(const Evidence& evidence, double turns, double device_ms) {
  const std::lock_guard lock(mutex_);
  figures_.turns_ms += device_ms;
  if (evidence.runs_agree()) figures_.turns += turns;
}

void MemoryPatrol::report_disagreement(std::uint64_t offset, const Evidence& evidence, std::string where) {
  Fault fault = fault_of(environment_, "extreme", "repetition", "memory", step_);
  show_disagreement(fault, offset, evidence, std::move(where));
  environment_.records.emit(fault);
  const std::lock_guard lock(mutex_);
  ++figures_.disagreements;
}

}  // namespace egt
