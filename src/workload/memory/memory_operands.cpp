#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"
#include "workload/memory/memory_patrol.hpp"

/// The part of the memory test that uses block contents as GEMM and function operands.
namespace egt {
namespace {

constexpr std::uint64_t fewest_turn_words = 4096;

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

/// Fills the block with finite numbers and runs them through sine and exponential: one iteration for all
/// words, all iterations for one window of them. Then fills the block with a band of GEMM operands, which
/// stay until all results are judged.
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
    const std::uint64_t count = std::min(words_of_next_turn(1), words - first);
    EGT_TRY(turn(block, first, count, 1, stop));
    first += count;
  }
  return {};
}

/// All iterations for a window of the block. Each use of the block takes the next window.
Status MemoryPatrol::turn_window(std::size_t block, const std::stop_token& stop) {
  if (buffer_iterations_ <= 1) return {};
  MemoryBlock& b = blocks_[block];
  const std::uint64_t first = b.window,
                      count = std::min(words_of_next_turn(buffer_iterations_), b.words.count - first);
  b.window = (first + count) % b.words.count;
  return turn(block, first, count, buffer_iterations_, stop);
}

Status MemoryPatrol::turn(std::size_t block, std::uint64_t first, std::uint64_t count, int iterations,
                          const std::stop_token& stop) {
  const BlockSines call{courses_[block].pattern().seed, first, count, iterations};
  return submit(
      [&](Stream& stream, Evidence* on_device) {
        return call.enqueue(device_, blocks_[block].words, stream, on_device);
      },
      [this, call, offset = blocks_[block].offset, place = place(block)](Evidence evidence,
                                                                         double device_ms) {
        const double turns = 2.0 * static_cast<double>(call.count) * call.iterations;
        turn_pace_.learn(turns, device_ms);
        const auto last = call.last_value(evidence);
        count_turns(evidence, turns, device_ms);
        const auto expected = last ? call.host_value_unlike(*last) : std::nullopt;
        if (last && !expected) return Status();
        const std::string what =
            fmt::format("{}, {} of sine and exponential on", place,
                        counted(static_cast<std::uint64_t>(call.iterations), "iteration"));
        constexpr std::uint64_t word_bytes = sizeof(std::uint32_t);
        Fault fault =
            fault_of(environment_, "extreme", expected ? "host sample" : "repetition", "memory", step_);
        if (expected) {
          fault.where = fmt::format("{} the word {:#010x}", what, call.last_operand());
          fault.offset = offset + (call.end() - 1) * word_bytes;
          fault.expected = fmt::format("{:.9g}", *expected);
          fault.actual = fmt::format("{:.9g}", *last);
        } else {
          show_disagreement(fault, offset + call.first * word_bytes, evidence,
                            fmt::format("{} {}", what, counted(call.count, "word")));
        }
        if (std::string file = reproducers_.emit(fault, SineExponential::name, to_json(call)); !file.empty())
          faulty_.push_back({call, std::move(file)});
        const std::lock_guard lock(mutex_);
        ++figures_.disagreements;
        return Status();
      },
      stop);
}

/// Repeats faulty sines and exponentials in a block whose content was judged and is not needed. Then restores
/// that content, which the next pass verifies.
Status MemoryPatrol::repeat_faulty(std::size_t block, const std::stop_token& stop) {
  const WordsView words = blocks_[block].words;
  while (!faulty_.empty() && faulty_.back().call.end() <= words.count) {
    const Faulty one = std::move(faulty_.back());
    faulty_.pop_back();
    EGT_TRY_ASSIGN(const Repetitions counts,
                   repeat_sines(device_, one.call, words, *in_flight_,
                                {.is_stopped = [&] { return stop.stop_requested(); }}, stop));
    report_repetitions(environment_, one.file, counts);
    EGT_TRY(device_.fill(words, courses_[block].pattern(), in_flight_->stream()));
  }
  return {};
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

}  // namespace egt
