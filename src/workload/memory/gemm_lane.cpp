#include "workload/memory/gemm_lane.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/core/operand_bands.hpp"
#include "workload/common/findings.hpp"
#include "workload/memory/memory_findings.hpp"

namespace egt {
namespace {

/// Max duration of a GEMM at its standalone rate, so that other work and a stop are not delayed.
constexpr double longest_product_s = 0.01;
constexpr std::int64_t fewest_rows = 64;  ///< even on a slow device
constexpr std::int64_t min_rows = 16;     ///< even for a small block: 8-bit tensor core operations need 16
/// Numbering of operands restarts after this many steps, so that fast and slow ranks realign.
constexpr std::int64_t period_steps = 256;
constexpr std::uint64_t names_of_a_period = 1 << 16;
constexpr std::uint64_t seed_salt = 0x6F706572616E64;

/// Inner dimension. 8-bit GEMMs are so fast that digesting a result would otherwise add 10 % to their time.
std::int64_t inner(std::int64_t rows, Precision precision) {
  return is_narrow(precision) ? 2 * rows : rows;
}

bool repeats(const Injection& injection) {
  return injection.lasting.value_or(Lasting::once) != Lasting::once;
}

double flops(std::int64_t rows, std::int64_t inner) {
  return 2 * static_cast<double>(rows) * static_cast<double>(rows) * static_cast<double>(inner);
}

}  // namespace

Result<std::unique_ptr<GemmLane>> GemmLane::create(Environment& environment, ProductRates rates,
                                                   std::unique_ptr<OperationPipeline> pipeline,
                                                   std::int64_t max_rows) {
  std::unique_ptr<GemmLane> lane(new GemmLane(environment, std::move(rates), std::move(pipeline), max_rows));
  EGT_TRY(lane->prepare());
  return lane;
}

GemmLane::GemmLane(Environment& environment, ProductRates rates, std::unique_ptr<OperationPipeline> pipeline,
                   std::int64_t max_rows)
    : environment_(environment),
      device_(environment.device),
      rates_(std::move(rates)),
      max_rows_(max_rows),
      pipeline_(std::move(pipeline)) {
  for (const auto& [precision, rate] : rates_)
    if (is_narrow(precision)) narrow_.push_back(precision);
}

Status GemmLane::prepare() {
  EGT_TRY_ASSIGN(results_, device_.allocate(bytes_for(max_rows_)));
  return try_bands();
}

/// Finds the bands that are exact with this library, which may flush or align small numbers, or keep fewer
/// bits of its sums. If nearly every element is wrong, the band is left out. A faulty device has few wrong
/// elements, so the band stays. int8 is always exact. All rows fit VerifyExactGemm::max_located_rows, so
/// every wrong element counts.
Status GemmLane::try_bands() {
  constexpr double max_wrong_share = 0.125;
  static_assert(fewest_rows <= VerifyExactGemm::max_located_rows);
  const auto terms = [this](Precision precision) { return inner(max_rows_, precision); };
  std::uint64_t words_bytes = 0;
  for (const auto& [precision, rate] : rates_)
    words_bytes = std::max(words_bytes, 2 * static_cast<std::uint64_t>(fewest_rows * terms(precision)) *
                                            size_of(storage_type(precision)));
  EGT_TRY_ASSIGN(const Buffer words, device_.allocate(words_bytes));
  for (std::size_t index = 0; index < operand_bands().size(); ++index) {
    const OperandBand& band = operand_bands()[index];
    if (!rates_.contains(band.precision) || !band.is_exact || band.precision == Precision::int8) continue;
    if (band.is_slow_on_cpus && device_.info().backend == "host") {
      left_out_.insert(index);
      continue;
    }
    const BlockGemm trial{.precision = band.precision,
                          .rows = fewest_rows,
                          .inner = terms(band.precision),
                          .band = index,
                          .seed = environment_.seed};
    const Gemm gemm = trial.on(words.data(), results_.data());
    EGT_TRY(pipeline_->submit(
        [&](Stream& stream, Evidence* on_device) -> Status {
          EGT_TRY(
              device_.fill({words.as<std::uint32_t>(), 2 * trial.matrix_words()}, trial.operands(), stream));
          EGT_TRY(device_.gemm(gemm, stream));
          return device_.verify_exact_gemm(gemm, band.granule, &on_device->gemm, stream);
        },
        [this, index, all = static_cast<double>(gemm.d.count())](const Evidence& evidence, double) {
          const GemmMismatches& found = evidence.gemm;
          if (static_cast<double>(found.wrong) > max_wrong_share * all) left_out_.insert(index);
          if (found.wrong == 0 || left_out_.contains(index)) return Status();
          Fault fault = fault_of(environment_, "gemm", "GEMM verification", "memory", -1);
          const OperandBand& tried = operand_bands()[index];
          fault.where =
              fmt::format("trial, {} product {} x {} x {}, operands \"{}\"", to_string(tried.precision),
                          fewest_rows, fewest_rows, inner(max_rows_, tried.precision), tried.name);
          {
            const std::lock_guard lock(mutex_);
            ++figures_.disagreements;
          }
          show_mismatches(fault, found, 0, ElementType::f64);
          environment_.records.emit(fault);
          return Status();
        },
        {}));
  }
  return pipeline_->drain(OperationPipeline::deadline_seconds);
}

std::size_t GemmLane::wanted(std::size_t blocks) const {
  constexpr std::size_t most = 6, sparing = 16;
  if (environment_.load.lead() == LoadLead::products) return std::clamp<std::size_t>(blocks / 4, 1, most);
  return std::min(most, blocks / sparing);
}

bool GemmLane::holds(std::size_t block) const {
  return std::any_of(operands_.begin(), operands_.end(),
                     [&](const Operands& operands) { return operands.block == block; });
}

/// Max rows of a result whose operands fit; 0 if none fits.
std::int64_t GemmLane::rows_in(std::uint64_t bytes, Precision precision) const {
  const auto elements = static_cast<std::int64_t>(bytes / size_of(storage_type(precision)));
  const auto lasts_too_long = [&](std::int64_t rows) {
    return flops(rows, inner(rows, precision)) > rates_.at(precision) * longest_product_s;
  };
  std::int64_t rows = max_rows_;
  while (rows > fewest_rows && lasts_too_long(rows)) rows /= 2;
  const auto fit = [&](std::int64_t of) {
    const auto result_bytes = static_cast<std::uint64_t>(of * of) * size_of(sum_type(precision));
    return 2 * of * inner(of, precision) <= elements &&
           result_bytes <= static_cast<std::uint64_t>(max_rows_ * max_rows_) * sizeof(float);
  };
  while (rows > 0 && !fit(rows)) rows /= 2;
  return rows >= min_rows ? rows : 0;
}

std::optional<GemmLane::Plan> GemmLane::plan(std::uint64_t bytes, std::int64_t step) const {
  const auto period = static_cast<std::uint64_t>(std::max<std::int64_t>(step, 0) / period_steps);
  const std::uint64_t number = period == period_ ? begun_in_period_ % names_of_a_period : 0;
  const bool is_narrow = number % 2 == 1 && !narrow_.empty();
  // Device models alternate with 8-bit precisions or do not, so half of the number counts.
  const std::uint64_t turn = period + number / 2;
  Precision precision = is_narrow ? narrow_[turn % narrow_.size()] : environment_.load.precision();
  if (!rates_.contains(precision)) precision = rates_.begin()->first;
  Plan plan{
      .precision = precision, .rows = rows_in(bytes, precision), .name = period * names_of_a_period + number};
  if (plan.rows == 0) return std::nullopt;
  plan.band = band_in_turn(precision, is_narrow ? turn / narrow_.size() : turn, left_out_);
  plan.seed = mix64((environment_.seed ^ seed_salt) + plan.name * 0x9E3779B97F4A7C15ull);
  return plan;
}

std::uint32_t GemmLane::Plan::parameter() const {
  return BlockGemm{.precision = precision, .rows = rows, .inner = inner(rows, precision), .band = band}
      .operands()
      .parameter;
}

Status GemmLane::begin(std::size_t block, WordsView words, std::uint64_t offset, std::string place,
                       const Plan& plan, Stream& filled_by) {
  const std::uint64_t matrix_bytes =
      static_cast<std::uint64_t>(plan.rows * inner(plan.rows, plan.precision)) *
      size_of(storage_type(plan.precision));
  Operands operands{.block = block,
                    .words = words,
                    .offset = offset,
                    .place = std::move(place),
                    .plan = plan,
                    .filled = {},
                    .digests = std::vector<Digest>(words.bytes() / (2 * matrix_bytes))};
  EGT_TRY_ASSIGN(operands.filled, device_.create_event(EventUse::order));
  EGT_TRY(device_.record(*operands.filled, filled_by));
  operands_.push_back(std::move(operands));
  period_ = plan.name / names_of_a_period;
  begun_in_period_ = plan.name % names_of_a_period + 1;
  return {};
}

/// True if the duty cycle leaves device time for another GEMM. Always true if GEMMs are the leading load, or
/// if more blocks are operands than wanted, so that they are released soon.
bool GemmLane::may_multiply(std::size_t blocks) {
  constexpr double max_credit_ms = 250;  ///< max length of a burst
  const double duty = environment_.load.products_duty();
  const double since_ms = 1e3 * seconds_since(std::exchange(credited_, Clock::now()));
  if (duty >= 1 || environment_.load.lead() == LoadLead::products || operands_.size() > wanted(blocks)) {
    credit_ms_ = 0;
    return true;
  }
  credit_ms_ = std::min(credit_ms_ + duty * since_ms, max_credit_ms);
  const auto enqueued = static_cast<double>(pipeline_->submitted() - pipeline_->judged());
  return credit_ms_ > enqueued * product_ms_;
}

void GemmLane::count_work(double device_ms) {
  worked_ms_ += device_ms;
  credit_ms_ -= device_ms;
}

Status GemmLane::feed(std::int64_t step, std::size_t blocks, const std::stop_token& stop) {
  step_ = step;
  EGT_TRY(repeat_faulty(stop));
  while (true) {
    EGT_TRY_ASSIGN(const bool full, pipeline_->is_full());
    while (!operands_.empty() && operands_.front().judged == operands_.front().planned()) {
      if (operands_.front().wrong_pairs.empty()) keep_answer(operands_.front());
      operands_.pop_front();
    }
    Operands* const operands = next();
    if (full || !operands || !may_multiply(blocks)) return {};
    EGT_TRY(multiply(*operands, stop));
  }
}

/// Repeats faulty GEMMs whose operands are still held. Not while they are judged, since their results may
/// wait for a verification then.
Status GemmLane::repeat_faulty(const std::stop_token& stop) {
  while (!faulty_.empty()) {
    const Faulty one = std::move(faulty_.back());
    faulty_.pop_back();
    if (!holds(one.block) || operands_of(one.block).plan.name != one.name) continue;
    EGT_TRY_ASSIGN(const Repetitions counts,
                   repeat_gemm(device_, block_gemm(operands_of(one.block), one.pair),
                               product_of(operands_of(one.block), one.pair), *pipeline_,
                               {.is_stopped = [&] { return stop.stop_requested(); }}, stop));
    report_repetitions(environment_, one.file, counts);
  }
  return {};
}

void GemmLane::emit(const Fault& fault, const Operands& operands, std::size_t pair) {
  std::string file = reproducers_.emit(fault, Gemm::name, to_json(block_gemm(operands, pair)));
  if (!file.empty()) faulty_.push_back({operands.block, pair, operands.plan.name, std::move(file)});
}

GemmLane::Operands* GemmLane::next() {
  Operands* chosen = nullptr;
  for (Operands& one : operands_) {
    if (one.enqueued == one.planned()) continue;
    if (!chosen || (one.are_beside(*chosen) && one.are_behind(*chosen))) chosen = &one;
  }
  return chosen;
}

GemmLane::Operands& GemmLane::operands_of(std::size_t block) {
  return *std::find_if(operands_.begin(), operands_.end(),
                       [&](const Operands& one) { return one.block == block; });
}

void GemmLane::drop(std::size_t block) {
  std::erase_if(operands_, [&](const Operands& operands) { return operands.block == block; });
}

BlockGemm GemmLane::block_gemm(const Operands& operands, std::size_t pair) {
  const auto& [precision, rows, name, seed, band] = operands.plan;
  return {.precision = precision,
          .rows = rows,
          .inner = inner(rows, precision),
          .pair = static_cast<std::int64_t>(pair),
          .band = band,
          .seed = seed,
          .fault = pair == operands.struck_pair ? operands.struck : Flip{.count = 0}};
}

Gemm GemmLane::product_of(const Operands& operands, std::size_t pair) const {
  float* const result =
      results_.as<float>() + operands.plan.name % results * static_cast<std::uint64_t>(max_rows_ * max_rows_);
  return block_gemm(operands, pair).on(operands.words.data, result);
}

std::uint64_t GemmLane::offset_of(const Operands& operands, const Gemm& gemm) {
  const auto* const first = reinterpret_cast<const char*>(operands.words.data);
  return operands.offset + static_cast<std::uint64_t>(static_cast<const char*>(gemm.a.data) - first);
}

/// The result buffer holds another pair's result or other words before, so that a skipped GEMM is detected.
Status GemmLane::multiply(Operands& operands, const std::stop_token& stop) {
  const std::size_t pair = operands.enqueued % operands.digests.size();
  const std::uint64_t round = operands.enqueued / operands.digests.size();
  const Gemm gemm = product_of(operands, pair);
  const WordsView result{
      static_cast<std::uint32_t*>(gemm.d.data),
      static_cast<std::uint64_t>(gemm.d.count()) * size_of(gemm.d.type) / sizeof(std::uint32_t)};
  const bool overwrites = operands.digests.size() == 1;
  const Flip fault = due_fault(operands, pair, gemm);
  if (operands.enqueued == 0) EGT_TRY(device_.wait(pipeline_->stream(), *operands.filled));
  ++operands.enqueued;
  {
    const std::lock_guard lock(mutex_);
    figures_.enqueued_flops[operands.plan.precision] +=
        flops(operands.plan.rows, inner(operands.plan.rows, operands.plan.precision));
  }
  EGT_TRY(pipeline_->submit(
      [&](Stream& stream, Evidence* on_device) -> Status {
        if (overwrites) {
          const Pattern leftover{.kind = PatternKind::random, .seed = environment_.seed + round};
          EGT_TRY(device_.fill(result, leftover, stream));
        }
        EGT_TRY(device_.gemm(gemm, stream));
        if (fault.count > 0) EGT_TRY(device_.flip(result, fault, stream));
        return device_.digest(result, &on_device->first, stream);
      },
      [this, pair, block = operands.block](const Evidence& evidence, double device_ms) {
        judge(operands_of(block), pair, evidence.first, device_ms);
        return Status();
      },
      stop));
  return round == 0 ? verify(operands, pair, gemm, stop) : Status();
}

/// The injected fault of the next GEMM, of no words if there is none. One that repeats has the same bits in
/// every repetition, so that only the verification of an exact band can detect it. Another one strikes a GEMM
/// that has a result to be compared with. A pair is struck once, since it has one fault record.
Flip GemmLane::due_fault(Operands& operands, std::size_t pair, const Gemm& gemm) {
  const std::uint64_t words =
      static_cast<std::uint64_t>(gemm.d.count()) * size_of(gemm.d.type) / sizeof(std::uint32_t);
  const bool is_first = operands.enqueued < operands.digests.size(),
             can_begin =
                 operand_bands()[operands.plan.band].is_exact && is_first && operands.struck.count == 0;
  const auto can_strike = [&](const Injection& one) {
    return !operands.struck_pairs.contains(pair) && (repeats(one) ? can_begin : !is_first);
  };
  const auto due = environment_.injector.take(InjectionKind::memory_gemm, step_, can_strike);
  if (!due && can_begin && lasting_fault_.count > 0) {
    operands.struck_pair = pair;
    operands.struck = fitted(lasting_fault_, words);
  }
  if (due) {
    operands.struck_pairs.insert(pair);
    const Flip flip = choose_flip(*due, words, environment_.seed);
    const auto element = static_cast<std::int64_t>(flip.first * sizeof(std::uint32_t) / size_of(gemm.d.type));
    environment_.injector.report(*due, step_, flip,
                                 fmt::format("{}, row {}, column {}", where(operands),
                                             element / gemm.d.columns, element % gemm.d.columns));
    if (!repeats(*due)) return flip;
    operands.struck_pair = pair;
    operands.struck = flip;
    if (*due->lasting == Lasting::always) lasting_fault_ = flip;
  }
  return pair == operands.struck_pair ? operands.struck : Flip{.count = 0};
}

/// Verifies every element of an exact band. In other bands, verifies random rows of one pair. `cheap_terms`:
/// fp64 multiply-adds that a device does in about a millisecond.
Status GemmLane::verify(const Operands& operands, std::size_t pair, const Gemm& gemm,
                        const std::stop_token& stop) {
  if (const OperandBand& band = operand_bands()[operands.plan.band]; band.is_exact)
    return pipeline_->submit(
        [&](Stream& stream, Evidence* on_device) {
          return device_.verify_exact_gemm(gemm, band.granule, &on_device->gemm, stream);
        },
        [this, pair, gemm, block = operands.block](const Evidence& evidence, double device_ms) {
          count_work(device_ms);
          judge_rows(operands_of(block), pair, 0, gemm, evidence.gemm);
          return Status();
        },
        stop);
  if (pair != operands.plan.seed % operands.digests.size()) return {};
  const DeviceInfo& info = device_.info();
  const double cheap_terms = (info.backend == "host" ? 0x1p22 : 0x1p25) * std::max(1, info.multiprocessors);
  const auto terms_of_row = static_cast<double>(gemm.d.columns * gemm.a.columns);
  const auto cheap_rows = static_cast<std::int64_t>(cheap_terms / terms_of_row) / min_rows * min_rows;
  const std::int64_t count = std::clamp(cheap_rows, min_rows, gemm.d.rows);
  const auto starts = static_cast<std::uint64_t>((gemm.d.rows - count) / min_rows + 1);
  const std::uint64_t random =
      (operands.plan.seed >> 32) + static_cast<std::uint64_t>(environment_.place.rank);
  const auto first = static_cast<std::int64_t>(random % starts) * min_rows;
  Gemm rows = gemm;
  rows.a = gemm.a.row_range(first, count);
  rows.d = gemm.d.row_range(first, count);
  return pipeline_->submit(
      [&](Stream& stream, Evidence* on_device) -> Status {
        return device_.verify_gemm(rows, &on_device->gemm, stream);
      },
      [this, pair, first, rows, block = operands.block](const Evidence& evidence, double device_ms) {
        count_work(device_ms);
        judge_rows(operands_of(block), pair, first, rows, evidence.gemm);
        return Status();
      },
      stop);
}

void GemmLane::judge(Operands& operands, std::size_t pair, const Digest& digest, double device_ms) {
  count_work(product_ms_ = device_ms);
  const bool is_first = operands.judged++ < operands.digests.size();
  Digest& expected = operands.digests[pair];
  const bool as_another = is_first && pair > 0 && digest == operands.digests[pair - 1];
  if (is_first) expected = digest;
  const bool agrees = !as_another && digest != Digest{} && digest == expected,
             is_known = operands.wrong_pairs.contains(pair);
  {
    const std::lock_guard lock(mutex_);
    figures_.milliseconds += device_ms;
    const double done = flops(operands.plan.rows, inner(operands.plan.rows, operands.plan.precision));
    figures_.judged_flops[operands.plan.precision] += done;
    if (agrees) {
      figures_.flops[operands.plan.precision] += done;
      figures_.band_flops[operands.plan.band] += done;
    }
  }
  if (agrees) return;
  {
    const std::lock_guard lock(mutex_);
    ++figures_.disagreements;
  }
  operands.wrong_pairs.insert(pair);
  if (is_known) return;  // one record for the pair, which its verification may have written
  Evidence evidence;
  evidence.first = expected;
  evidence.second = digest;
  Fault fault = fault_of(environment_, "gemm", "repetition", "memory", step_);
  show_disagreement(fault, offset_of(operands, product_of(operands, pair)), evidence, where(operands));
  emit(fault, operands, pair);
}

void GemmLane::judge_rows(Operands& operands, std::size_t pair, std::int64_t first_row, const Gemm& rows,
                          const GemmMismatches& found) {
  // The operands are finite and small, so sums cannot overflow. An undecided element is therefore wrong too.
  const std::uint64_t decided = found.compared - found.undecided;
  const bool is_whole = decided == static_cast<std::uint64_t>(rows.d.count());
  const bool is_right = is_whole && found.wrong == 0;
  {
    const std::lock_guard lock(mutex_);
    figures_.verified += is_whole;
    figures_.disagreements += !is_right;
  }
  if (is_right || !operands.wrong_pairs.insert(pair).second) return;
  Fault fault = fault_of(environment_, "gemm", "GEMM verification", "memory", step_);
  fault.where = where(operands);
  fault.offset = offset_of(operands, rows);
  if (found.wrong > 0) {
    show_mismatches(fault, found, first_row, rows.d.type);
  } else {
    fault.where += fmt::format(": {} of {} elements were verified", decided, rows.d.count());
  }
  emit(fault, operands, pair);
}

/// Combines the pairs' digests into one.
void GemmLane::keep_answer(const Operands& operands) {
  OperandAnswer answer{.name = operands.plan.name,
                       .precision = static_cast<std::uint32_t>(operands.plan.precision),
                       .rows = static_cast<std::uint32_t>(operands.plan.rows),
                       .pairs = static_cast<std::uint32_t>(operands.digests.size()),
                       .digest = {}};
  std::uint64_t index = 0;
  for (const Digest& digest : operands.digests)
    for (const std::uint64_t part : {digest.a, digest.b})
      for (const std::uint64_t word : {part, part >> 32})
        add_to_digest(answer.digest.a, answer.digest.b, index++, static_cast<std::uint32_t>(word));
  const std::lock_guard lock(mutex_);
  answers_.push_back(answer);
  if (answers_.size() > max_operand_answers) answers_.pop_front();
}

std::vector<OperandAnswer> GemmLane::answers() const {
  const std::lock_guard lock(mutex_);
  return {answers_.begin(), answers_.end()};
}

GemmFigures GemmLane::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

std::string GemmLane::where(const Operands& operands) const {
  const GemmLane::Plan& plan = operands.plan;
  return fmt::format("{}, {} product {} x {} x {}, operands \"{}\"", operands.place,
                     to_string(plan.precision), plan.rows, plan.rows, inner(plan.rows, plan.precision),
                     operand_bands()[plan.band].name);
}

}  // namespace egt
