#include "workload/memory/memory_patrol.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "workload/common/findings.hpp"

namespace egt {
namespace {

constexpr double operation_ms = 5;  ///< target duration of an operation (two runs of it)
/// Blocks per multiprocessor for memory test operations, as measured on H200s. More of them concurrently with
/// transcendental chains reduce the power. Concurrently with GEMMs (in tf32), two draw 4 W more than 1.5 and
/// verify 10 % more.
double patrol_width(const LoadControl& load) {
  return load.lead() == LoadLead::products ? 2 : 1.5;
}

constexpr double fill_deadline_seconds = 300;
constexpr std::size_t diagnosis_bytes =
    std::max(sizeof(CellProbe), Mismatches::max_samples * sizeof(std::uint32_t));

std::uint64_t bytes_of(const std::vector<MemoryBlock>& blocks) {
  return blocks.empty() ? 0 : blocks.back().offset + blocks.back().words.bytes();
}

}  // namespace

MemoryPatrol::MemoryPatrol(Environment& environment, std::vector<MemoryBlock> blocks,
                           std::unique_ptr<OperationPipeline> in_flight, std::unique_ptr<GemmLane> products,
                           int buffer_iterations)
    : environment_(environment),
      device_(environment.device),
      blocks_(std::move(blocks)),
      planned_bytes_(bytes_of(blocks_)),
      held_bytes_(planned_bytes_),
      buffer_iterations_(buffer_iterations),
      turn_pace_(operation_ms),
      in_flight_(std::move(in_flight)),
      products_(std::move(products)) {
  figures_.verifications.resize(blocks_.size());
  figures_.passes.resize(memory_suite().size());
  for (std::size_t block = 0; block < blocks_.size(); ++block)
    courses_.emplace_back(memory_suite(), block, blocks_.size(),
                          pattern_seed(environment_, PatternPurpose::memory, block, 0));
}

Status MemoryPatrol::prepare() {
  EGT_TRY_ASSIGN(probe_, device_.allocate_pinned(diagnosis_bytes));
  for (std::size_t block = 0; block < blocks_.size(); ++block)
    EGT_TRY(device_.fill(blocks_[block].words, courses_[block].pattern(), in_flight_->stream()));
  return device_.synchronize(in_flight_->stream(), fill_deadline_seconds);
}

/// The first verification, which may load code, is not timed.
Result<double> MemoryPatrol::measure_rate_alone() {
  constexpr double enough_ms = 10;
  EGT_TRY(verify(0, {}));
  EGT_TRY(settle(OperationPipeline::deadline_seconds));
  const PatrolFigures before = figures();
  for (std::size_t block = 0; block < blocks_.size() && figures().verify_ms - before.verify_ms < enough_ms;
       ++block)
    EGT_TRY(verify(block, {}));
  EGT_TRY(settle(OperationPipeline::deadline_seconds));
  const PatrolFigures after = figures();
  {
    const std::lock_guard lock(mutex_);  // mismatches stay counted
    figures_.verifications.assign(blocks_.size(), 0);
    figures_.bytes_enqueued = figures_.bytes_verified = figures_.bytes_right = 0;
    figures_.verify_ms = 0;
  }
  return static_cast<double>(after.bytes_verified - before.bytes_verified) /
         (after.verify_ms - before.verify_ms) * 1e3;
}

Status MemoryPatrol::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    for (std::size_t block = 0; block < blocks_.size() && !stop.stop_requested(); ++block) {
      in_flight_->stream().set_width(patrol_width(environment_.load));
      EGT_TRY(products_->feed(step_, blocks_.size(), stop));
      EGT_TRY(take_next_operand(stop));
      EGT_TRY(visit(block, stop));
      EGT_TRY(keep_to_share(stop));
    }
    const std::lock_guard lock(mutex_);
    ++figures_.sweeps;
    figures_.rounds = courses_.back().round();
  }
  return {};
}

Status MemoryPatrol::submit(const OperationPipeline::Enqueue& enqueue, OperationPipeline::Judge judge,
                            const std::stop_token& stop) {
  if (stop.stop_requested()) return {StatusCode::stopped, "the memory test was stopped"};
  EGT_TRY(in_flight_->submit(
      enqueue,
      [this, judge = std::move(judge)](const Evidence& evidence, double device_ms) {
        worked_ms_ += device_ms;
        return judge(evidence, device_ms);
      },
      stop));
  EGT_TRY(products_->feed(step_, blocks_.size(), stop));
  return rest(stop);
}

Status MemoryPatrol::settle(double seconds) {
  const auto begun = Clock::now();
  EGT_TRY(products_->drain(seconds));
  return in_flight_->drain(seconds - seconds_since(begun));
}

/// Pauses for the duty cycle. Drains the operations first, because enqueued work would run during the pause.
/// The final verification of all blocks has no stop token and does not pause, since all other load has ended.
Status MemoryPatrol::rest(const std::stop_token& stop) {
  if (!stop.stop_possible() || environment_.load.duty() >= 1) {
    worked_ms_ = 0;
    products_->take_worked_ms();
    return {};
  }
  Status drained = in_flight_->drain(OperationPipeline::deadline_seconds, stop);
  if (drained.ok()) drained = products_->drain(OperationPipeline::deadline_seconds, stop);
  // The operation is enqueued and its write is recorded; the caller stops before its next one.
  if (drained.code() == StatusCode::stopped) return {};
  EGT_TRY(drained);
  const double worked_ms = std::exchange(worked_ms_, 0) + products_->take_worked_ms();
  environment_.load.rest(worked_ms * 1e-3, [&] { return stop.stop_requested(); });
  return {};
}

/// Frees the last blocks if the memory exceeds its share, except one block to test.
Status MemoryPatrol::keep_to_share(const std::stop_token& stop) {
  const double share = environment_.load.memory_share();
  const auto most = static_cast<std::uint64_t>(share * static_cast<double>(planned_bytes_));
  if (held_bytes_ <= most || blocks_.size() <= 1) return {};
  EGT_TRY(in_flight_->drain(OperationPipeline::deadline_seconds, stop));
  EGT_TRY(products_->drain(OperationPipeline::deadline_seconds, stop));
  while (held_bytes_ > most && blocks_.size() > 1) give_back_last();
  {
    const std::lock_guard lock(mutex_);
    figures_.verifications.resize(blocks_.size());
    figures_.freed_bytes = planned_bytes_ - held_bytes_;
  }
  environment_.records.warning(fmt::format("memory: less memory is filled: {} of {} are still verified",
                                           format_bytes(held_bytes_), format_bytes(planned_bytes_)));
  return {};
}

/// Frees the last block; nothing may be enqueued. An injection pending for it moves to another block.
void MemoryPatrol::give_back_last() {
  if (look_ && look_->block + 1 == blocks_.size()) look_.reset();
  products_->drop(blocks_.size() - 1);
  held_bytes_ -= blocks_.back().words.bytes();
  blocks_.pop_back();
  courses_.pop_back();
  for (Strike& one : strikes_)
    if (one.block >= blocks_.size()) one = aim(one.injection);
}

Status MemoryPatrol::verify_all() {
  take_strikes();
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    EGT_TRY(strike(block));
    EGT_TRY(verify(block, {}));
  }
  return settle(OperationPipeline::deadline_seconds);
}

PatrolFigures MemoryPatrol::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

std::string MemoryPatrol::place(std::size_t block) const {
  const BlockCourse& course = courses_[block];
  return fmt::format("block {} of {}, generation {}, pattern {}", block + 1, blocks_.size(),
                     course.generation(), describe(course.pattern()));
}

WordsView MemoryPatrol::word(std::size_t block, std::uint64_t index) const {
  return {blocks_[block].words.data + index, 1};
}

/// Enqueues the next block's verification before waiting for this one's, so that the device stays busy.
Status MemoryPatrol::visit(std::size_t block, const std::stop_token& stop) {
  if (products_->holds(block)) {
    const bool is_all_there_is = products_->held() == blocks_.size();
    return is_all_there_is ? products_->judge_one(stop) : Status();
  }
  if (!courses_[block].held()) {
    if (!look_) {
      EGT_TRY_ASSIGN(look_, look(block, stop));
    }
    const Look own = *std::exchange(look_, std::nullopt);
    if (const std::size_t next = (block + 1) % blocks_.size(); next != block && !is_away(next)) {
      EGT_TRY_ASSIGN(look_, look(next, stop));
    }
    EGT_TRY(await(own, stop));
    EGT_TRY(repeat_faulty(block, stop));
    EGT_TRY(run_test(block, stop));
    blocks_[block].was_visited = true;
    count_visit();
  }
  courses_[block].leave();
  return {};
}

Result<MemoryPatrol::Look> MemoryPatrol::look(std::size_t block, const std::stop_token& stop) {
  take_strikes();
  EGT_TRY(strike(block));
  EGT_TRY(verify(block, stop));
  return Look{block, in_flight_->submitted()};
}

/// Judges the retained content before the block is used and rewritten. A wrong word must still be present for
/// its second read, and a wrong operand would put the blame on the multiplier.
Status MemoryPatrol::await(const Look& look, const std::stop_token& stop) {
  EGT_TRY(in_flight_->judge_first(look.operations, stop));
  MemoryBlock& block = blocks_[look.block];
  if (block.right) ledger_.was_right(block.offset);
  block.right = true;
  return {};
}

void MemoryPatrol::count_visit() {
  const std::lock_guard lock(mutex_);
  ++figures_.visits;
}

Status MemoryPatrol::verify(std::size_t block, const std::stop_token& stop) {
  Check check{.block = block,
              .expected = courses_[block].pattern(),
              .place = fmt::format("{}, at rest after test {}", place(block), courses_[block].written_by()),
              .rewritten = false,
              .test = {}};
  const Flip fault = due_miscomputation(block);
  return submit(
      [&](Stream& stream, Evidence* on_device) {
        count_enqueued(check);
        return device_.verify(blocks_[block].words, check.expected, &on_device->mismatches, stream, fault);
      },
      [this, check](const Evidence& evidence, double device_ms) {
        blocks_[check.block].clean = evidence.mismatches.count == 0;
        return judge(check, evidence.mismatches, device_ms);
      },
      stop);
}

Status MemoryPatrol::run_test(std::size_t block, const std::stop_token& stop) {
  const std::size_t passes = courses_[block].test().passes.size();
  for (std::size_t number = 0; number < passes; ++number) EGT_TRY(apply(block, number, stop));
  return {};
}

/// Mismatches reported by the retention verification are not reported again: the first pass then only fills.
Status MemoryPatrol::apply(std::size_t block, std::size_t number, const std::stop_token& stop) {
  const BlockCourse& course = courses_[block];
  const Check check{
      .block = block,
      .expected = course.pattern(),
      .place = fmt::format("{}, in pass {} of test {}", place(block), number + 1, course.test().name),
      .rewritten = true,
      .test = course.test_index()};
  return rewrite(check, course.test().passes[number], number == 0 && !blocks_[block].clean, stop);
}

/// Records the written pattern as soon as the pass is enqueued, because `submit` may judge this pass or an
/// earlier one by the block's later content.
Status MemoryPatrol::rewrite(const Check& check, const MemoryPass& pass, bool only_fill,
                             const std::stop_token& stop) {
  BlockCourse& course = courses_[check.block];
  const WordsView words = blocks_[check.block].words;
  const Pattern next = course.next(pass);
  return submit(
      [&](Stream& stream, Evidence* on_device) {
        if (!only_fill) count_enqueued(check);
        EGT_TRY(only_fill ? device_.fill(words, next, stream)
                          : device_.verify_and_fill(words, check.expected, next, pass.direction,
                                                    &on_device->mismatches, stream));
        course.wrote(pass);
        return Status();
      },
      [this, check, only_fill](const Evidence& evidence, double device_ms) {
        if (only_fill) return Status();
        if (check.test) {
          const std::lock_guard lock(mutex_);
          ++figures_.passes[*check.test];
        }
        return judge(check, evidence.mismatches, device_ms);
      },
      stop);
}

/// Each due injection gets its location now, and is applied before the next verification of its block.
void MemoryPatrol::take_strikes() {
  while (const auto injection = environment_.injector.take(InjectionKind::memory, step_))
    strikes_.push_back(aim(*injection));
}

/// Uses one block's words, so that it is one incident, and avoids held blocks, which detect it much later.
MemoryPatrol::Strike MemoryPatrol::aim(const Injection& injection) {
  const MemoryBlock& last = blocks_.back();
  const std::uint64_t region_words = last.offset / sizeof(std::uint32_t) + last.words.count;
  Flip flip = choose_flip(injection, region_words, environment_.seed + strikes_taken_++);
  const std::uint64_t offset = flip.first * sizeof(std::uint32_t);
  std::size_t block = blocks_.size() - 1;
  while (blocks_[block].offset > offset) --block;
  const std::uint64_t first = (offset - blocks_[block].offset) / sizeof(std::uint32_t);
  for (std::size_t tried = 0; is_away(block) && tried < blocks_.size(); ++tried)
    block = (block + 1) % blocks_.size();
  const std::uint64_t words = blocks_[block].words.count;
  flip.first = first;
  return {injection, block, fitted(flip, words)};
}

/// Applies the pending injections of a block directly before its retention verification.
Status MemoryPatrol::strike(std::size_t block) {
  for (const Strike& one : strikes_) {
    if (one.block != block) continue;
    EGT_TRY(device_.flip(blocks_[block].words, one.flip, in_flight_->stream()));
    environment_.injector.report(one.injection, step_, one.flip,
                                 fmt::format("{}, offset {}", place(block),
                                             blocks_[block].offset + one.flip.first * sizeof(std::uint32_t)));
  }
  std::erase_if(strikes_, [&](const Strike& one) { return one.block == block; });
  return {};
}

/// The injected fault of the block's next verification, of no words if there is none.
Flip MemoryPatrol::due_miscomputation(std::size_t block) {
  const std::uint64_t words = blocks_[block].words.count;
  const auto due = environment_.injector.take(InjectionKind::multiprocessor, step_, [](const Injection& one) {
    return one.layer == layer_of_pattern;
  });
  if (!due) return fitted(lasting_miscomputation_, words);
  const Flip fault = choose_flip(*due, words, environment_.seed);
  environment_.injector.report(*due, step_, fault, place(block));
  if (due->lasting == Lasting::always) lasting_miscomputation_ = fault;
  return fault;
}

Status MemoryPatrol::judge(const Check& check, const Mismatches& found, double device_ms) {
  count_verification(check, found, device_ms);
  if (found.count == 0) return {};
  blocks_[check.block].right = false;
  if (found.samples == 0) {
    Fault fault = fault_of(environment_, "memory", "pattern", "memory", step_);
    fault.where = check.place;
    show_mismatches(fault, found);
    environment_.records.emit(fault);
    return {};
  }
  const auto news = ledger_.news(blocks_[check.block].offset, found);
  return news ? report_mismatch(check, found, *news) : Status();
}

void MemoryPatrol::count_enqueued(const Check& check) {
  const std::lock_guard lock(mutex_);
  figures_.bytes_enqueued += blocks_[check.block].words.bytes();
}

void MemoryPatrol::count_verification(const Check& check, const Mismatches& found, double device_ms) {
  const std::uint64_t bytes = blocks_[check.block].words.bytes();
  const std::lock_guard lock(mutex_);
  ++figures_.verifications[check.block];
  figures_.bytes_verified += bytes;
  figures_.bytes_right += bytes - found.count * sizeof(std::uint32_t);
  if (check.rewritten) figures_.bytes_written += bytes;
  figures_.verify_ms += device_ms;
  figures_.mismatches += found.count;
}

/// If a multiprocessor computed the pattern wrong, the memory is right. It may also be at fault for words
/// without a sample.
Status MemoryPatrol::report_mismatch(const Check& check, Mismatches found, Mismatches::Sample sample) {
  for (auto& [reader, miscomputed] : take_miscomputed(found, check.expected)) {
    if (found.samples == 0 && check.rewritten) miscomputed.count += std::exchange(found.count, 0);
    report_reader(check, reader, miscomputed, ": pattern computed wrong");
  }
  if (found.count == 0) return {};
  return report_words(check, found, found.samples > 0 ? lowest_sample(found) : sample);
}

/// Diagnoses one wrong word: stored or only read wrong, and whether the cell holds both values. Words that a
/// faulty multiprocessor read wrong are reported separately. Other words in the same block may be bad memory.
/// If the device fails during the diagnosis, the words are reported all the same.
Status MemoryPatrol::report_words(const Check& check, Mismatches found, Mismatches::Sample sample) {
  const MemoryBlock& block = blocks_[check.block];
  WrongWords words;
  std::optional<CellProbe> probe;
  const std::uint64_t first = found.first_index;
  // Final content of the word after all work enqueued so far.
  const auto content = [&] { return PatternFunction(courses_[check.block].pattern())(sample.index); };
  const auto diagnose = [&]() -> Status {
    Stream& stream = in_flight_->stream();
    if (!check.rewritten) {
      EGT_TRY_ASSIGN(const SecondReads again, read_again(device_, stream, probe_, block.words, found));
      if (const auto reader = faulty_reader(again.read_wrong, device_.info().multiprocessors)) {
        report_reader(check, *reader, again.read_wrong, ": stored right, read wrong");
        found = again.others;
      }
      if (found.count > samples_of(found).size()) {
        EGT_TRY_ASSIGN(words, words_stored_wrong(device_, stream, block.words, check.expected, first));
      }
      if (found.samples == 0 && words.empty()) return {};
      if (found.samples == 0) add_sample(found, words.begin()->second);
      sample = lowest_sample(found);
    }
    EGT_TRY_ASSIGN(probe, probe_cell(device_, stream, probe_, word(check.block, sample.index), content()));
    return {};
  };
  const Status diagnosed = diagnose();
  if (diagnosed.ok() && !probe) return {};  // all wrong words were those of a multiprocessor
  for (const Mismatches::Sample& one : samples_of(found)) words[one.index] = one;
  Fault fault = fault_of(environment_, "memory", "pattern", "memory", step_);
  fault.where = fmt::format("{}, {}", check.place, describe_bits(found));
  if (probe)
    fault.where += fmt::format(
        ", {}, {}",
        check.rewritten ? describe_rewritten(*probe, content()) : describe_second_read(*probe, sample),
        describe_cell(*probe));
  else
    fault.where += fmt::format(", not diagnosed: {}", diagnosed.what());
  fault.offset = block.offset + sample.index * sizeof(std::uint32_t);
  show_difference(fault, sample.expected, sample.actual);
  fault.count = found.count;
  fault.map = error_map(words, block.offset);
  environment_.records.emit(fault);
  return diagnosed;
}

void MemoryPatrol::report_reader(const Check& check, int reader, const Mismatches& found, const char* how) {
  Fault fault = fault_of(environment_, "multiprocessor", "pattern", "memory", step_);
  fault.where = fmt::format("{}, {}, {}", multiprocessor_place(device_.info(), std::array{reader}, how),
                            check.place, describe_bits(found));
  show_mismatches(fault, found, blocks_[check.block].offset);
  environment_.records.emit(fault);
}

}  // namespace egt
