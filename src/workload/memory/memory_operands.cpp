#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "workload/common/findings.hpp"
#include "workload/memory/memory_patrol.hpp"

/// The part of the patrol that computes with what the blocks hold.
namespace egt {
namespace {

constexpr std::uint64_t fewest_turn_words = 4096;

constexpr MemoryPass operands_pass{.kind = PatternKind::finite, .seed = MemoryPass::Seed::fresh};

}  // namespace

/// Where products do not lead, those of a few blocks fill the gaps that others leave; a small fill has none
/// to spare.
std::size_t MemoryPatrol::most_operands() const {
  constexpr std::size_t most = 2, sparing = 16;
  if (environment_.load.lead() == LoadLead::products)
    return std::clamp<std::size_t>(blocks_.size() / 4, 1, most);
  return std::min(most, blocks_.size() / sparing);
}

/// One block after the other, each behind a visit.
Status MemoryPatrol::take_next_operand(const std::stop_token& stop) {
  if (operands_.size() >= most_operands()) return {};
  const std::size_t block = std::exchange(next_operand_, next_operand_ + 1) % blocks_.size();
  if (is_away(block) || operand_rows(block) == 0 || !blocks_[block].was_visited) return {};
  blocks_[block].was_visited = false;
  const bool was_looked_at = look_ && look_->block == block;
  if (was_looked_at) {
    EGT_TRY(await(*std::exchange(look_, std::nullopt), stop));
  } else {
    EGT_TRY_ASSIGN(const Look own, look(block, stop));
    EGT_TRY(await(own, stop));
  }
  EGT_TRY(take_operand(block, stop));
  count_visit();
  return {};
}

/// Of the largest square matrices two of which the block has; 0: not even small ones.
std::int64_t MemoryPatrol::operand_rows(std::size_t block) const {
  const auto elements =
      static_cast<std::int64_t>(blocks_[block].words.bytes() / size_of(storage_type(precision_)));
  std::int64_t rows = product_rows_;
  while (rows > 0 && 2 * rows * rows > elements) rows /= 2;
  return rows;
}

/// The block's words become finite numbers, all of which go through sines and exponentials, and then are the
/// operands until all products are judged.
Status MemoryPatrol::take_operand(std::size_t block, const std::stop_token& stop) {
  const Check check{.block = block,
                    .expected = courses_[block].pattern(),
                    .place = fmt::format("{}, before it became an operand", place(block)),
                    .rewritten = true,
                    .test = {}};
  EGT_TRY(rewrite(check, operands_pass, !blocks_[block].clean, stop));
  Operands operands;
  operands.block = block;
  operands.rows = operand_rows(block);
  const std::uint64_t matrix_bytes =
      static_cast<std::uint64_t>(operands.rows * operands.rows) * size_of(storage_type(precision_));
  operands.digests.resize(blocks_[block].words.bytes() / (2 * matrix_bytes));
  EGT_TRY_ASSIGN(operands.filled, device_.create_event(EventUse::order));
  EGT_TRY(device_.record(*operands.filled, in_flight_->stream()));
  operands_.push_back(std::move(operands));
  EGT_TRY(turn_all(block, stop));
  return turn_window(block, stop);
}

/// Where extreme terms lead: is there device time left for one more product, by their duty? What a small fill
/// has taken before is used up.
bool MemoryPatrol::may_multiply() {
  constexpr double most_credit_ms = 250;  ///< so long is a burst
  const double duty = environment_.load.products_duty();
  const double since_ms = 1e3 * seconds_since(std::exchange(credited_, Clock::now()));
  if (duty >= 1 || environment_.load.lead() == LoadLead::products || operands_.size() > most_operands()) {
    products_credit_ms_ = 0;
    return true;
  }
  products_credit_ms_ = std::min(products_credit_ms_ + duty * since_ms, most_credit_ms);
  const auto enqueued = static_cast<double>(products_->submitted() - products_->judged());
  return products_credit_ms_ > enqueued * product_ms_;
}

/// Enqueues products as long as that is no wait.
Status MemoryPatrol::feed_products(const std::stop_token& stop) {
  for (std::size_t i = 0; i < operands_.size();) {
    EGT_TRY_ASSIGN(const bool full, products_->is_full());
    while (!operands_.empty() && operands_.front().judged == operands_.front().planned()) {
      operands_.pop_front();
      i = 0;
    }
    if (full || i >= operands_.size() || !may_multiply()) return {};
    if (operands_[i].enqueued == operands_[i].planned())
      ++i;
    else
      EGT_TRY(multiply(operands_[i], stop));
  }
  return {};
}

/// The result's memory holds another pair's product before, or other words: a product that is not made shows.
Status MemoryPatrol::multiply(Operands& operands, const std::stop_token& stop) {
  const ElementType type = storage_type(precision_);
  const std::int64_t rows = operands.rows;
  const std::size_t pair = operands.enqueued % operands.digests.size();
  const std::uint64_t round = operands.enqueued / operands.digests.size();
  const std::uint64_t matrix_bytes = static_cast<std::uint64_t>(rows * rows) * size_of(type);
  char* const a = blocks_[operands.block].buffer.as<char>() + 2 * pair * matrix_bytes;
  const Gemm gemm{.precision = precision_,
                  .a = {a, type, rows, rows},
                  .b = {a + matrix_bytes, type, rows, rows},
                  .d = {product_.data(), ElementType::f32, rows, rows},
                  .b_transposed = true};
  const WordsView result{product_.as<std::uint32_t>(), static_cast<std::uint64_t>(rows * rows)};
  const bool overwrites = operands.digests.size() == 1;
  if (operands.enqueued == 0) EGT_TRY(device_.wait(products_->stream(), *operands.filled));
  ++operands.enqueued;
  return products_->submit(
      [&](Stream& stream, Evidence* on_device) -> Status {
        if (overwrites) {
          const Pattern leftover{.kind = PatternKind::random, .seed = environment_.seed + round};
          EGT_TRY(device_.fill(result, leftover, stream));
        }
        EGT_TRY(device_.gemm(gemm, stream));
        return device_.digest(result, &on_device->first, stream);
      },
      [this, pair](const Evidence& evidence, double device_ms) {
        worked_ms_ += device_ms;
        products_credit_ms_ -= product_ms_ = device_ms;
        judge_product(pair, evidence.first, device_ms);
        return Status();
      },
      stop);
}

void MemoryPatrol::judge_product(std::size_t pair, const Digest& digest, double device_ms) {
  Operands& operands = operands_[operands_.front().judged == operands_.front().planned() ? 1 : 0];
  const bool is_first = operands.judged++ < operands.digests.size();
  Digest& expected = operands.digests[pair];
  const bool as_another = is_first && pair > 0 && digest == operands.digests[pair - 1];
  if (is_first) expected = digest;
  const bool agrees = !as_another && digest != Digest{} && digest == expected;
  {
    const std::lock_guard lock(mutex_);
    const double rows = static_cast<double>(operands.rows);
    figures_.gemm_ms += device_ms;
    if (agrees) figures_.gemm_flops += 2 * rows * rows * rows;
  }
  if (agrees) return;
  const MemoryBlock& block = blocks_[operands.block];
  const std::uint64_t bytes = 2 * static_cast<std::uint64_t>(operands.rows * operands.rows) *
                              size_of(storage_type(precision_)) * pair;
  Evidence evidence;
  evidence.first = expected;
  evidence.second = digest;
  tell_disagreement("gemm", block.offset + bytes, evidence,
                    fmt::format("{}, {} product {} x {} x {}", place(operands.block), to_string(precision_),
                                operands.rows, operands.rows, operands.rows));
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

/// Whole quanta, for the device's sake.
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
