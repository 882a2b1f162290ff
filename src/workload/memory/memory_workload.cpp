#include "workload/memory/memory_workload.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/core/operand_bands.hpp"
#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"
#include "workload/common/standalone_rate.hpp"

namespace egt {
namespace {

constexpr double stop_seconds = 10;

std::uint64_t min_verifications(const PatrolFigures& figures) {
  const auto least = std::min_element(figures.verifications.begin(), figures.verifications.end());
  return least == figures.verifications.end() ? 0 : *least;
}

/// Passes over a block, by test name.
Json passes_by_name(const PatrolFigures& figures) {
  Json passes = Json::object();
  for (std::size_t test = 0; test < memory_suite().size(); ++test)
    passes[memory_suite()[test].name] = figures.passes[test];
  return passes;
}

/// The share of each precision's FLOP by band of operands.
Json shares_of_bands(const GemmFigures& products) {
  Json shares = Json::object();
  for (const auto& [index, done] : products.band_flops) {
    const OperandBand& band = operand_bands()[index];
    shares[std::string(to_string(band.precision))][band.name] = done / products.flops.at(band.precision);
  }
  return shares;
}

std::string wrong_in(const PatrolFigures& figures, const GemmFigures& products) {
  if (figures.mismatches) return counted(figures.mismatches, "wrong word") + " in memory";
  if (const std::uint64_t wrong = figures.disagreements + products.disagreements)
    return fmt::format("{} operations were wrong, or gave other bits when they were repeated", wrong);
  return {};
}

}  // namespace

Status MemoryWorkload::prepare() {
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(filled_, device.memory());
  if (options_.fill.is_zero()) return {};
  EGT_TRY_ASSIGN(auto in_flight,
                 OperationPipeline::create(device, StreamPriority::background, StreamUse::all,
                                           "the memory test", MemoryPatrol::operations_in_flight));
  EGT_TRY_ASSIGN(auto pipeline, OperationPipeline::create(device, StreamPriority::low, StreamUse::all,
                                                          "the memory-resident GEMMs", GemmLane::in_flight));
  EGT_TRY_ASSIGN(product_rates_, product_rates(pipeline->stream()));
  EGT_TRY_ASSIGN(filled_, device.memory());
  const SizeOrShare fill = fill_within(options_.fill, filled_.total_bytes, options_.limit);
  report_smaller_fill(fill);
  EGT_TRY_ASSIGN(plan_, plan_memory(filled_, fill));
  if (plan_.block_bytes.empty())
    return {
        StatusCode::out_of_memory,
        fmt::format("memory: {} are wanted in use and {} are used already, so none would be tested; ask for "
                    "more with --memory, or for none (--memory 0)",
                    format_bytes(plan_.wanted_bytes), format_bytes(plan_.used_bytes))};
  EGT_TRY_ASSIGN(auto products,
                 GemmLane::create(environment_, product_rates_, std::move(pipeline), plan_.product_rows));
  EGT_TRY_ASSIGN(std::vector<MemoryBlock> blocks, allocate_blocks(plan_));
  patrol_ = std::make_unique<MemoryPatrol>(environment_, std::move(blocks), std::move(in_flight),
                                           std::move(products), options_.buffer_iterations);
  EGT_TRY(patrol_->prepare());
  EGT_TRY_ASSIGN(verify_rate_, patrol_->measure_rate_alone());
  EGT_TRY_ASSIGN(const auto stream,
                 device.create_stream(StreamPriority::normal, StreamUse::without_products));
  EGT_TRY_ASSIGN(read_rate_, read_rate_alone(device, *stream, patrol_->blocks().front().words));
  EGT_TRY_ASSIGN(filled_, device.memory());
  return {};
}

/// Rates of training's precisions and of those that only the memory-resident GEMMs use.
Result<ProductRates> MemoryWorkload::product_rates(Stream& stream) {
  Device& device = environment_.device;
  ProductRates rates = trained_ ? trained_() : ProductRates();
  for (const Precision precision : {environment_.load.precision(), Precision::fp8, Precision::int8}) {
    if (rates.contains(precision) || !device.supports(precision).yes()) continue;
    EGT_TRY_ASSIGN(rates[precision], product_rate_alone(device, stream, precision));
  }
  return rates;
}

void MemoryWorkload::report_smaller_fill(const SizeOrShare& fill) const {
  const std::uint64_t asked = options_.fill.of(filled_.total_bytes), taken = fill.of(filled_.total_bytes);
  if (taken < asked)
    environment_.records.warning(
        fmt::format("memory: the {} asked for with --memory would exceed the limit of {:.0f} % "
                    "(--memory-limit): the fill is made smaller, to {} in use",
                    format_bytes(asked), 100 * options_.limit, format_bytes(taken)));
}

Result<std::vector<MemoryBlock>> MemoryWorkload::allocate_blocks(const MemoryPlan& plan) const {
  std::vector<MemoryBlock> blocks;
  std::uint64_t offset = 0;
  for (const std::uint64_t bytes : plan.block_bytes) {
    Result<Buffer> buffer = environment_.device.allocate(bytes);
    if (!buffer.ok())
      return Status(
          buffer.status().code(),
          fmt::format("memory: {} are wanted in use and {} were used before, but after {} more: {}; "
                      "ask for less with --memory",
                      format_bytes(plan.wanted_bytes), format_bytes(plan.used_bytes), format_bytes(offset),
                      buffer.status().what()),
          buffer.status().native());
    MemoryBlock block{.buffer = std::move(buffer.value()), .words = {}, .offset = offset};
    block.words = {block.buffer.as<std::uint32_t>(), bytes / sizeof(std::uint32_t)};
    offset += bytes;
    blocks.push_back(std::move(block));
  }
  return blocks;
}

Status MemoryWorkload::start() {
  if (!patrol_) return {};
  last_retired_ = clock_();
  return thread_.start([this](std::stop_token stop) { return patrol_->run(stop); });
}

Status MemoryWorkload::enqueue(const Step& step) {
  if (patrol_) patrol_->set_step(step.index);
  return {};
}

Status MemoryWorkload::retire(std::int64_t, StepOutcome&) {
  look_for_starvation();
  return thread_.failure();
}

/// GPU memory must be verified continuously under any other load. The host backend is exempt, because its CPU
/// cores are shared with other processes.
void MemoryWorkload::look_for_starvation() {
  constexpr double min_share = 0.01;
  // A longer interval between two steps means that the process, and thus its memory test, was stopped.
  constexpr double longest_step_s = 1;
  if (!verify_rate_ || starvation_told_ || environment_.device.info().backend != "cuda") return;
  const double now = clock_();
  window_seconds_ += std::min(now - std::exchange(last_retired_, now), longest_step_s);
  if (window_seconds_ < options_.starvation_seconds) return;
  const PatrolFigures figures = patrol_->figures();
  const auto bytes = static_cast<double>(figures.bytes_verified + figures.bytes_written);
  const double seconds = std::exchange(window_seconds_, 0);
  const double share = (bytes - std::exchange(window_bytes_, bytes)) / seconds / *verify_rate_;
  if (share >= min_share || environment_.load.duty() < 1) return;
  starvation_told_ = true;
  Finding finding;
  finding.kind = "starved";
  finding.rank = environment_.place.rank;
  finding.hostname = environment_.place.hostname;
  finding.device_uuid = environment_.device.info().uuid;
  finding.where = "memory";
  finding.actual = share * *verify_rate_ * 1e-9;
  finding.expected = min_share * *verify_rate_ * 1e-9;
  finding.text = fmt::format(
      "the memory test starves: {:.3g} GB/s over {:.0f} s, less than 1 % of the "
      "{:.3g} "
      "GB/s that they reach alone",
      *finding.actual, seconds, *verify_rate_ * 1e-9);
  environment_.records.emit(finding);
}

Status MemoryWorkload::finish(const Shutdown& ending) {
  finished_ = true;
  hurried_ = ending.hurry;
  const Status stopped = thread_.stop(ending.seconds(stop_seconds));
  if (ending.hurry && !stopped.ok()) return {};  // the thread is still running
  EGT_TRY(stopped);
  EGT_TRY(thread_.failure());
  if (!patrol_) return {};
  // Waits for enqueued operations, but not if a signal ends the run early.
  const Status settled = patrol_->settle(ending.seconds(OperationPipeline::deadline_seconds));
  if (ending.hurry && settled.code() == StatusCode::timeout) return {};
  EGT_TRY(settled);
  return ending.hurry ? Status() : verify_all();
}

/// All other load has ended, so this measures the standalone rate again.
Status MemoryWorkload::verify_all() {
  const PatrolFigures before = patrol_->figures();
  EGT_TRY(patrol_->verify_all());
  const PatrolFigures after = patrol_->figures();
  const auto bytes = static_cast<double>(after.bytes_verified - before.bytes_verified);
  if (const double ms = after.verify_ms - before.verify_ms; verify_rate_ && ms > 0)
    verify_rate_ = std::max(*verify_rate_, bytes / ms * 1e3);
  return {};
}

std::string MemoryWorkload::undone(const PatrolFigures& figures) const {
  if (const Status status = thread_.failure(); !status.ok()) return status.what();
  if (finished_ && !hurried_ && min_verifications(figures) == 0) return "not all of the memory was verified";
  return {};
}

PartReport MemoryWorkload::report() const {
  PartReport report;
  report.name = name();
  report.description = "memory filled, verified, used as operands and rewritten";
  const std::uint64_t used = filled_.used_bytes();
  report.figures = {
      {"planned", patrol_ != nullptr},
      {"filled_bytes", plan_.fill_bytes()},
      {"freed_bytes", 0},
      {"used_bytes", used},
      {"total_bytes", filled_.total_bytes},
      {"filled_fraction", ratio_or_null(static_cast<double>(used), static_cast<double>(filled_.total_bytes))},
      {"blocks", plan_.block_bytes.size()}};
  if (!patrol_) {
    note_not_run(report, "memory test", "--memory 0");
    return report;
  }
  const PatrolFigures figures = patrol_->figures();
  const GemmFigures products = patrol_->products().figures();
  double flops = 0;
  Json by_precision = Json::object();
  for (const auto& [precision, done] : products.flops) {
    flops += done;
    by_precision[std::string(to_string(precision))] = done * 1e-12;
  }
  put_outcome(report, wrong_in(figures, products), undone(figures));
  report.figures.update(
      {{"filled_bytes", plan_.fill_bytes() - figures.freed_bytes},
       {"freed_bytes", figures.freed_bytes},
       {"blocks", figures.verifications.size()},
       {"sweeps", figures.sweeps},
       {"rounds", figures.rounds},
       {"passes", passes_by_name(figures)},
       {"visits", figures.visits},
       {"minimum_visits", min_verifications(figures)},
       {"bytes_verified", figures.bytes_verified},
       {"bytes_written", figures.bytes_written},
       {"verify_gb_per_s",
        ratio_or_null(static_cast<double>(figures.bytes_verified) * 1e-9, figures.verify_ms * 1e-3)},
       {"memory_gb_per_s",
        ratio_or_null(static_cast<double>(figures.bytes_verified + figures.bytes_written) * 1e-9,
                      figures.verify_ms * 1e-3)},
       {"gemm_tflops", ratio_or_null(flops * 1e-12, products.milliseconds * 1e-3)},
       {"gemm_tflop", by_precision},
       {"products_verified", products.verified},
       {"operand_bands", shares_of_bands(products)},
       {"sine_exponential_turns", figures.turns},
       {"sine_exponential_turns_per_second", ratio_or_null(figures.turns, figures.turns_ms * 1e-3)},
       {"mismatches", figures.mismatches},
       {"disagreements", figures.disagreements + products.disagreements}});
  for (const std::size_t index : patrol_->products().left_out()) {
    const OperandBand& band = operand_bands()[index];
    if (!band.is_slow_on_cpus || environment_.device.info().backend != "host")
      note_not_run(report, fmt::format("exact {} operands \"{}\"", to_string(band.precision), band.name),
                   "this library's GEMMs are not exact with them");
  }
  if (figures.rounds < 1) note_not_run(report, "all memory patterns on every block", "the run ended before");
  if (figures.rounds < 2)
    note_not_run(report, "memory retention test",
                 figures.verifications.size() > 1
                     ? "the run ended before a block had rested for a whole round"
                     : "one block cannot rest");
  if (verify_rate_) {
    report.load.memory = static_cast<double>(figures.bytes_verified + figures.bytes_written) / *verify_rate_;
    report.load.alone["verify_gb_per_s"] = *verify_rate_ * 1e-9;
    report.load.alone["ratio_read_bandwidth"] = ratio_or_null(*verify_rate_, read_rate_);
  }
  report.load.products = 0;
  ProductRates rates = product_rates_;
  if (trained_)
    for (const auto& [precision, rate] : trained_()) rates[precision] = rate;  // training may correct it
  for (const auto& [precision, rate] : rates) {
    const auto done = products.flops.find(precision);
    if (done != products.flops.end()) *report.load.products += done->second / rate;
    if (is_narrow(precision))
      report.load.alone["narrow_tflops"][std::string(to_string(precision))] = rate * 1e-12;
  }
  report.work.gemm_flops = flops;
  report.work.bytes_patrolled = figures.bytes_right;
  report.shares = {{.kind = WorkKind::memory,
                    .done = static_cast<double>(figures.bytes_enqueued),
                    .verified = static_cast<double>(figures.bytes_verified)},
                   {.kind = WorkKind::transcendental,
                    .precision = std::string(to_string(Precision::fp32)),
                    .done = figures.turns,
                    .verified = figures.turns}};
  for (const auto& [precision, enqueued] : products.enqueued_flops) {
    const auto judged = products.judged_flops.find(precision);
    report.shares.push_back({.kind = WorkKind::gemm,
                             .precision = std::string(to_string(precision)),
                             .done = enqueued,
                             .verified = judged != products.judged_flops.end() ? judged->second : 0});
  }
  return report;
}

std::vector<OperandAnswer> MemoryWorkload::answers() const {
  return patrol_ ? patrol_->products().answers() : std::vector<OperandAnswer>();
}

std::vector<WordsView> MemoryWorkload::blocks() const {
  std::vector<WordsView> views;
  if (!patrol_) return views;
  for (const MemoryBlock& block : patrol_->blocks()) views.push_back(block.words);
  return views;
}

}  // namespace egt
