#include "workload/train/gemm_audit.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "egt/core/math/half.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/wait.hpp"

namespace egt {
namespace {

/// x begins at any multiple of `alignment` among the first factors, so many.
constexpr std::size_t factor_offsets = 1 << 16;
/// The elements of x are below, and 1 or above.
constexpr double largest_factor = 1.25;
/// Elements: vectors and groups of columns begin where a device's widest loads can.
constexpr std::int64_t alignment = 32;
/// Narrower groups of columns would cost more than they find.
constexpr std::int64_t narrowest_group = 2 * alignment;
/// So that the bounds keep a meaning: 2^20 terms of 2^-22 each.
constexpr std::int64_t most_terms = 1 << 20;
constexpr double create_seconds = 60;

/// What the checksum leaves for each row of d and group of columns.
enum Quantity : std::size_t { sum_of_d, sum_expected, magnitude_of_d, magnitude_expected, quantities };

/// A part of a stored matrix, and whether the operation sees it transposed.
struct Operand {
  MatrixView stored;
  bool transposed;
};

Operand columns_of(const MatrixView& m, bool transposed, std::int64_t first, std::int64_t count) {
  return {transposed ? m.row_range(first, count) : m.column_range(first, count), transposed};
}

/// k u / (1 - k u): the bound for sums of k products in any order, each operation off by u at most (Higham,
/// "Accuracy and stability of numerical algorithms", 2002, section 3.1).
double gamma(std::int64_t k, double unit_roundoff) {
  const double error = static_cast<double>(k) * unit_roundoff;
  return error / (1 - error);
}

double unit_roundoff(ElementType type) {
  switch (type) {
    case ElementType::f64:
      return 0x1p-53;
    case ElementType::f16:
      return 0x1p-11;
    case ElementType::bf16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

/// Of numbers below the normal ones: half their spacing, or all of the smallest normal number where they may
/// be flushed to zero (fp16's are kept by every converter).
double underflow_error(ElementType type) {
  return type == ElementType::f64 ? DBL_MIN : type == ElementType::f16 ? 0x1p-25 : 0x1p-126;
}

double largest_finite(ElementType type) {
  switch (type) {
    case ElementType::f64:
      return DBL_MAX;
    case ElementType::f16:
      return 65504;
    case ElementType::bf16:
      return 0x1.FEp127;
    default:
      return FLT_MAX;
  }
}

double load_element(const std::byte* at, ElementType type) {
  switch (type) {
    case ElementType::f64: {
      double value;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    case ElementType::f16: {
      Half value;
      std::memcpy(&value, at, sizeof value);
      return static_cast<double>(to_float(value));
    }
    case ElementType::bf16: {
      Bfloat16 value;
      std::memcpy(&value, at, sizeof value);
      return static_cast<double>(to_float(value));
    }
    default: {
      float value;
      std::memcpy(&value, at, sizeof value);
      return static_cast<double>(value);
    }
  }
}

}  // namespace

/// A sum of elements of d times those of x, or one element, and what it should be.
struct GemmAudit::Comparison {
  bool is_element = false;  ///< by itself, without a factor
  std::int64_t elements = 1;
  double actual = 0, expected = 0;
  double magnitude_of_d = 0;      ///< sum of |d| |x|
  double magnitude_expected = 0;  ///< sum of |op(a)| |op(b)| |x|
};

namespace {

enum class Judgement { right, wrong, not_finite, undecided };

}  // namespace

/// Decides comparisons of one product of k terms.
class GemmAudit::Judge {
 public:
  Judge(const GemmRounding& rounding, std::int64_t k) : rounding_(rounding), k_(k) {}

  /// The rounding of the product, and of the audit's own sums in fp64; at last that of this very formula.
  double bound(const Comparison& c) const {
    const double audit = static_cast<double>(k_ + c.elements + 2) * 0x1p-53;
    return (1 + 0x1p-20) *
           ((rounding_.terms + audit) * c.magnitude_expected + (rounding_.stored + audit) * c.magnitude_of_d +
            static_cast<double>(c.elements) * largest_factor * rounding_.quantum);
  }

  /// Of the bound, that a right comparison is off.
  double share(const Comparison& c) const {
    const double error = std::fabs(c.actual - c.expected);
    return error > 0 && std::isfinite(error) ? error / bound(c) : 0;
  }

  Judgement operator()(const Comparison& c) const {
    if (!std::isfinite(c.magnitude_expected)) return with_infinite_operands(c);
    if (std::isfinite(c.magnitude_of_d))
      return std::fabs(c.actual - c.expected) <= bound(c) ? Judgement::right : Judgement::wrong;
    if (c.magnitude_expected * (1 + 2 * rounding_.terms) >= rounding_.largest_sum)
      return Judgement::undecided;  // a sum may have become infinite on its way, and even a difference of two
    if (std::isnan(c.magnitude_of_d)) return Judgement::not_finite;
    if (!c.is_element)
      return reach_of_sums(c) < rounding_.largest ? Judgement::not_finite : Judgement::undecided;
    return reach_of_element(c) < rounding_.largest ? Judgement::not_finite : Judgement::right;
  }

 private:
  /// NaN or infinity in an operand makes every element that it enters one or the other. But fp64 sums may be
  /// infinite by overflow of the audit's.
  Judgement with_infinite_operands(const Comparison& c) const {
    if (rounding_.largest_sum == DBL_MAX) return Judgement::undecided;
    return std::isfinite(c.magnitude_of_d) ? Judgement::wrong : Judgement::right;
  }
  /// No element can be above.
  double reach_of_sums(const Comparison& c) const {
    return c.magnitude_expected * (1 + 2 * rounding_.terms) + rounding_.quantum;
  }
  /// How far to the side of the infinity that is there this element can be.
  double reach_of_element(const Comparison& c) const {
    Comparison largest = c;
    largest.magnitude_of_d = rounding_.largest;
    return std::copysign(1.0, c.actual) * c.expected + bound(largest);
  }

  const GemmRounding& rounding_;
  const std::int64_t k_;
};

/// Sums: fp32 units round by 2^-24 each, or cut off by 2^-23. Tensor cores multiply exactly, align the terms
/// of a block of four or more with the largest and cut them off at 2^-23 of it or below, then normalize: for
/// blocks of four, 6 errors of 2^-23 for 4 products, below 2^-22 a product (Fasi, Higham, Mikaitis, Pranesh,
/// "Numerical behavior of NVIDIA tensor cores", PeerJ CS, 2021; Blanchard et al., "Mixed precision block
/// fused multiply-add", SIAM J. Sci. Comput., 2020). They keep subnormal operands. tf32 keeps 11 bits of each
/// operand, rounded or cut off: 2^-10 each; operands that this rounds to infinity (above 2^128 - 2^116) are
/// not foreseen. fp8's terms, 32 at a time and with the sum so far, are cut off at 2^-13 of the largest, and
/// such sums of 128 are added in fp32 (DeepSeek-V3, 2024): below 37 errors of 2^-13.
GemmRounding GemmRounding::of(Precision precision, ElementType stored_as, std::int64_t k) {
  const bool fp64 = precision == Precision::fp64;
  const ElementType sums = fp64 ? ElementType::f64 : ElementType::f32;
  const double sum_error = gamma(k, fp64                           ? 0x1p-53
                                    : precision == Precision::fp32 ? 0x1p-23
                                                                   : 0x1p-22) +
                           (precision == Precision::fp8 ? 37 * 0x1p-13 : 0);
  const double operand_error = precision == Precision::tf32 ? 2 * 0x1p-10 + 0x1p-20 : 0;
  return {.terms = operand_error + (1 + operand_error) * sum_error,
          .stored = unit_roundoff(stored_as),
          .quantum = underflow_error(stored_as) + static_cast<double>(2 * k) * underflow_error(sums),
          .largest = largest_finite(stored_as),
          .largest_sum = largest_finite(sums)};
}

std::string GemmFinding::text() const {
  const std::string where =
      columns == 1 ? fmt::format("element {}, {}", row, first_column)
                   : fmt::format("row {}, columns {} to {}", row, first_column, first_column + columns - 1);
  const std::string count = rows_wrong == 1 ? "1 row" : fmt::format("{} rows", rows_wrong);
  if (not_finite) return fmt::format("{}: {}: NaN or infinity in {} ({})", name, check, where, count);
  return fmt::format("{}: {} of {} is {:.9g}, not {:.9g} +- {:.3g} ({} wrong)", name, check, where, actual,
                     expected, bound, count);
}

Result<std::unique_ptr<GemmAudit>> GemmAudit::create(Device& device, const GemmAuditConfig& config) {
  if (config.largest_dimension < 1 || config.largest_dimension > most_terms || config.slots < 1 ||
      config.column_groups < 1)
    return Status(StatusCode::invalid_argument,
                  fmt::format("an audit of products up to {} with {} slots and {} groups of columns: each is "
                              "at least 1, the first at most {}",
                              config.largest_dimension, config.slots, config.column_groups, most_terms));
  std::unique_ptr<GemmAudit> made(new GemmAudit(device, config));
  EGT_TRY(made->allocate());
  EGT_TRY(made->upload_vectors());
  return made;
}

Status GemmAudit::allocate() {
  const auto largest = static_cast<std::size_t>(config_.largest_dimension);
  const std::size_t checksum = quantities * static_cast<std::size_t>(config_.column_groups) * largest;
  const std::size_t sample = (sample_rows + sample_columns) * largest + sample_rows * sample_columns;
  const std::size_t bytes = std::max(checksum, sample) * sizeof(double);
  EGT_TRY_ASSIGN(vectors_, device_.allocate((2 * factor_count() + 1) * sizeof(double)));
  EGT_TRY_ASSIGN(intermediate_, device_.allocate(largest * sizeof(double)));
  EGT_TRY_ASSIGN(evidence_, device_.allocate(bytes));
  slots_.resize(config_.slots);
  for (Slot& slot : slots_) {
    EGT_TRY_ASSIGN(slot.pinned, device_.allocate_pinned(bytes + 2 * sizeof(float)));
    EGT_TRY_ASSIGN(slot.done, device_.create_event(EventUse::order));
  }
  return {};
}

std::size_t GemmAudit::factor_count() const {
  const std::int64_t largest = (config_.largest_dimension + alignment - 1) / alignment * alignment;
  return static_cast<std::size_t>(largest) + factor_offsets;
}

Status GemmAudit::upload_vectors() {
  EGT_TRY_ASSIGN(const Buffer pinned, device_.allocate_pinned(vectors_.bytes()));
  double* const values = pinned.as<double>();
  for (std::size_t i = 0; i < factor_count(); ++i) {
    const std::uint64_t word = mix64(config_.seed + i * 0x9E3779B97F4A7C15ull);
    const double magnitude = 1 + (largest_factor - 1) * 0x1p-8 * static_cast<double>(word >> 56);
    values[i] = word & 1u ? -magnitude : magnitude;
    values[factor_count() + i] = magnitude;
  }
  values[2 * factor_count()] = 1;
  EGT_TRY_ASSIGN(const auto stream,
                 device_.create_stream(StreamPriority::normal, StreamUse::without_products));
  EGT_TRY(device_.copy(vectors_.data(), values, vectors_.bytes(), *stream));
  return device_.synchronize(*stream, create_seconds);
}

Status GemmAudit::admit(const Gemm& gemm, const Stream& stream) const {
  const auto refuse = [](std::string why) {
    return Status(StatusCode::invalid_argument, "audit of a product: " + why);
  };
  const GemmShape shape(gemm);
  if (gemm.alpha != 1 || gemm.beta != 0) return refuse("alpha is not 1 or beta is not 0");
  const auto [smallest, largest] = std::minmax({shape.m, shape.n, shape.k});
  if (smallest < 1 || largest > config_.largest_dimension)
    return refuse(fmt::format("{} x {} x {} is not within 1 and {}", shape.m, shape.n, shape.k,
                              config_.largest_dimension));
  if (used_ == slots_.size()) return refuse("all slots are in use: collect first");
  if (used_ > 0 && stream_ != &stream) return refuse("another stream than since the last collect");
  return {};
}

GemmAudit::Slot& GemmAudit::prepare_slot(Check check, const Gemm& gemm, std::string name) {
  ++audits_;
  const GemmShape shape(gemm);
  Slot& slot = slots_[used_];
  slot.check = check;
  slot.name = std::move(name);
  slot.shape = shape;
  slot.rounding = GemmRounding::of(gemm.precision, gemm.d.type, shape.k);
  slot.type = gemm.d.type;
  return slot;
}

Status GemmAudit::finish_slot(Slot& slot, const Gemm& gemm, std::size_t bytes, Stream& stream) {
  const float* const scales[] = {gemm.a_scale, gemm.b_scale};
  for (std::size_t i = 0; i < std::size(scales); ++i) {
    slot.scales()[i] = 1;
    if (scales[i]) EGT_TRY(device_.copy(slot.scales() + i, scales[i], sizeof(float), stream));
  }
  EGT_TRY(device_.copy(slot.pinned.data(), evidence_.data(), bytes, stream));
  EGT_TRY(device_.record(*slot.done, stream));
  stream_ = &stream;
  ++used_;
  return {};
}

std::uint64_t GemmAudit::draw(std::uint64_t index) const {
  return mix64(mix64(config_.seed ^ audits_ * 0x9E3779B97F4A7C15ull) + index);
}

std::vector<GemmAudit::Columns> GemmAudit::column_groups(std::int64_t n) const {
  const std::int64_t groups = std::clamp<std::int64_t>(n / narrowest_group, 1, config_.column_groups);
  const auto begin = [&](std::int64_t g) { return g == groups ? n : g * n / groups / alignment * alignment; };
  std::vector<Columns> made;
  for (std::int64_t g = 0; g < groups; ++g) made.push_back({begin(g), begin(g + 1) - begin(g)});
  return made;
}

Status GemmAudit::enqueue_checksum(const Gemm& gemm, std::string name, Stream& stream) {
  EGT_TRY(admit(gemm, stream));
  Slot& slot = prepare_slot(Check::checksum, gemm, std::move(name));
  slot.columns = column_groups(slot.shape.n);
  for (std::size_t group = 0; group < slot.columns.size(); ++group)
    EGT_TRY(enqueue_group(gemm, slot, group, stream));
  const std::size_t sums = quantities * slot.columns.size() * static_cast<std::size_t>(slot.shape.m);
  return finish_slot(slot, gemm, sums * sizeof(double), stream);
}

Status GemmAudit::enqueue_group(const Gemm& gemm, const Slot& slot, std::size_t group, Stream& stream) {
  const Columns columns = slot.columns[group];
  const MatrixView d = gemm.d.column_range(columns.first, columns.count);
  const Operand b = columns_of(gemm.b, gemm.b_transposed, columns.first, columns.count);
  const std::size_t offset = draw(group) % factor_offsets / alignment * alignment;
  const double *const x = factors() + offset, *const x_magnitudes = magnitudes() + offset;
  double* const b_x = intermediate_.as<double>();
  const auto out = [&](Quantity quantity) {
    return evidence_.as<double>() +
           (quantity * slot.columns.size() + group) * static_cast<std::size_t>(slot.shape.m);
  };
  EGT_TRY(device_.multiply_vector(d, false, false, x, out(sum_of_d), stream));
  EGT_TRY(device_.multiply_vector(d, false, true, x_magnitudes, out(magnitude_of_d), stream));
  EGT_TRY(device_.multiply_vector(b.stored, b.transposed, false, x, b_x, stream));
  EGT_TRY(device_.multiply_vector(gemm.a, gemm.a_transposed, false, b_x, out(sum_expected), stream));
  EGT_TRY(device_.multiply_vector(b.stored, b.transposed, true, x_magnitudes, b_x, stream));
  return device_.multiply_vector(gemm.a, gemm.a_transposed, true, b_x, out(magnitude_expected), stream);
}

/// A row or column as fp64: its product with 1, the only element of the vector.
Status GemmAudit::enqueue_line(MatrixView line, bool row, double* values, Stream& stream) {
  return device_.multiply_vector(line, row, false, one(), values, stream);
}

Status GemmAudit::enqueue_host_sample(const Gemm& gemm, std::string name, Stream& stream) {
  EGT_TRY(admit(gemm, stream));
  Slot& slot = prepare_slot(Check::host_sample, gemm, std::move(name));
  const auto [m, n, k] = std::tuple(slot.shape.m, slot.shape.n, slot.shape.k);
  slot.rows.clear();
  slot.columns.clear();
  double* out = evidence_.as<double>();
  for (std::uint64_t i = 0; i < sample_rows; ++i, out += k) {
    const std::int64_t row = slot.rows.emplace_back(draw(i) % static_cast<std::uint64_t>(m));
    const bool at = gemm.a_transposed;
    EGT_TRY(enqueue_line(at ? gemm.a.column_range(row, 1) : gemm.a.row_range(row, 1), !at, out, stream));
  }
  for (std::uint64_t i = 0; i < sample_columns; ++i, out += k) {
    const auto column = static_cast<std::int64_t>(draw(sample_rows + i) % static_cast<std::uint64_t>(n));
    slot.columns.push_back({column, 1});
    const Operand b = columns_of(gemm.b, gemm.b_transposed, column, 1);
    EGT_TRY(enqueue_line(b.stored, b.transposed, out, stream));
  }
  for (const std::int64_t row : slot.rows)
    for (const Columns& column : slot.columns)
      EGT_TRY(device_.copy(out++, gemm.d.row_range(row, 1).column_range(column.first, 1).data,
                           size_of(gemm.d.type), stream));
  return finish_slot(slot, gemm, static_cast<std::size_t>(out - evidence_.as<double>()) * sizeof(double),
                     stream);
}

GemmAudit::Comparison GemmAudit::checksum(const Slot& slot, std::int64_t row, std::size_t group) {
  const auto value = [&](Quantity quantity) {
    const std::size_t line = quantity * slot.columns.size() + group;
    return slot.pinned
        .as<double>()[line * static_cast<std::size_t>(slot.shape.m) + static_cast<std::size_t>(row)];
  };
  return {.elements = slot.columns[group].count,
          .actual = value(sum_of_d),
          .expected = slot.scale() * value(sum_expected),
          .magnitude_of_d = value(magnitude_of_d),
          .magnitude_expected = slot.scale() * value(magnitude_expected)};
}

GemmAudit::Comparison GemmAudit::sample(const Slot& slot, std::size_t row, std::size_t column) {
  const auto k = static_cast<std::size_t>(slot.shape.k);
  const double* const a = slot.pinned.as<double>() + row * k;
  const double* const b = slot.pinned.as<double>() + (sample_rows + column) * k;
  const double* const d = slot.pinned.as<double>() + (sample_rows + sample_columns) * k;
  Comparison c{.is_element = true};
  c.actual = load_element(reinterpret_cast<const std::byte*>(d + row * sample_columns + column), slot.type);
  c.magnitude_of_d = std::fabs(c.actual);
  for (std::size_t p = 0; p < k; ++p) {
    c.expected += a[p] * b[p];
    c.magnitude_expected += std::fabs(a[p] * b[p]);
  }
  c.expected *= slot.scale();
  c.magnitude_expected *= slot.scale();
  return c;
}

bool GemmAudit::judge_row(const Slot& slot, std::int64_t r, GemmFinding& finding, GemmAuditReport& report) {
  const bool sampled = slot.check == Check::host_sample;
  const Judge judge(slot.rounding, slot.shape.k);
  bool right = true;
  for (std::size_t i = 0; i < slot.columns.size(); ++i) {
    const Comparison c = sampled ? sample(slot, static_cast<std::size_t>(r), i) : checksum(slot, r, i);
    const Judgement judgement = judge(c);
    ++report.comparisons;
    if (judgement == Judgement::undecided) ++report.undecided;
    if (judgement == Judgement::right) report.largest_share = std::max(report.largest_share, judge.share(c));
    if (judgement == Judgement::right || judgement == Judgement::undecided) continue;
    if (std::exchange(right, false) && finding.rows_wrong == 0) {
      finding.row = sampled ? slot.rows[static_cast<std::size_t>(r)] : r;
      finding.first_column = slot.columns[i].first;
      finding.columns = slot.columns[i].count;
      finding.expected = c.expected;
      finding.actual = c.actual;
      finding.bound = judge.bound(c);
      finding.not_finite = judgement == Judgement::not_finite;
    }
  }
  return right;
}

void GemmAudit::judge(const Slot& slot, GemmAuditReport& report) {
  const bool sampled = slot.check == Check::host_sample;
  GemmFinding finding{.name = slot.name, .check = sampled ? "host sample" : "checksum"};
  const std::int64_t rows = sampled ? sample_rows : slot.shape.m;
  for (std::int64_t r = 0; r < rows; ++r)
    if (!judge_row(slot, r, finding, report)) ++finding.rows_wrong;
  ++report.products;
  if (finding.rows_wrong > 0) report.findings.push_back(std::move(finding));
}

Result<GemmAuditReport> GemmAudit::collect(double timeout_seconds) {
  GemmAuditReport report;
  if (used_ == 0) return report;
  const Event& last = *slots_[used_ - 1].done;  // of one stream, so after all others
  EGT_TRY(wait_until([&] { return device_.done(last); },
                     {.seconds = timeout_seconds, .what = "the audit of the products"}));
  for (std::size_t i = 0; i < used_; ++i) judge(slots_[i], report);
  used_ = 0;
  return report;
}

}  // namespace egt
