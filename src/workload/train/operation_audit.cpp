#include "workload/train/operation_audit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "egt/core/math/half.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/wait.hpp"

namespace egt {
namespace {

/// Elements per sample. A chain of 200 iterations costs the host about 20 us.
constexpr std::int64_t sample_elements = 16;
/// Alignment of each sample's copy, in bytes.
constexpr std::size_t alignment = 16;
/// Max copies per operation, in addition to the row of the network's input.
constexpr std::size_t copies_per_operation = 9;
/// fp8 needs blocks of this many rows.
constexpr std::int64_t rows_unit = 16;
/// Relative error of a function in the load's chains: 4 ulp, the most that CUDA documents for them. glibc: 2.
constexpr double function_error = 0x1p-21;

struct Expected {
  double value = 0, tolerance = 0;
};

double load(const std::byte* data, ElementType type, std::int64_t i) {
  const auto at = [&]<typename T>(T value) {
    std::memcpy(&value, data + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return static_cast<double>(Element<T>::load(value));
  };
  switch (type) {
    case ElementType::f64:
      return at(double{});
    case ElementType::f16:
      return at(Half{});
    case ElementType::bf16:
      return at(Bfloat16{});
    default:
      return at(float{});
  }
}

/// Rounded once to the type. Values below `smallest` may be flushed to zero.
Expected rounded(ElementType type, double value, double error) {
  const double smallest = type == ElementType::f16 ? 0x1p-24 : 0x1p-126;
  const double reach = std::fabs(value) + error;
  if (reach >= largest_finite(type)) return {value, std::numeric_limits<double>::infinity()};
  return {value, error + 1.01 * unit_roundoff(type) * reach + smallest};
}

bool is_right(double actual, const Expected& expected) {
  if (std::isnan(expected.value)) return std::isnan(actual);
  return actual == expected.value || std::fabs(actual - expected.value) <= expected.tolerance;
}

/// Compares `count` elements with `expected(i)`.
template <typename F>
std::optional<OperationFinding> compare(const std::string& what, const std::byte* actual, ElementType type,
                                        std::int64_t first, std::int64_t count, const F& expected) {
  std::optional<OperationFinding> found;
  for (std::int64_t i = 0; i < count; ++i) {
    const Expected one = expected(i);
    const double got = load(actual, type, i);
    if (is_right(got, one)) continue;
    if (found) {
      ++found->count;
      continue;
    }
    found = OperationFinding{.kind = "replay",
                             .detector = "host sample",
                             .where = fmt::format("{}: element {} is {:.9g}, not {:.9g} +- {:.3g}", what,
                                                  first + i, got, one.value, one.tolerance),
                             .expected = one.value,
                             .actual = got};
  }
  return found;
}

/// Value of a chain on the host, and how far the load's value may be off.
struct ChainValue {
  float value = 0;
  double error = 0;
};

/// math::extreme_turn with functions in double. On the host backend the load calls those of libm in float, so
/// a sample that called them as well would repeat their errors. Operands are rounded as the load rounds them.
/// The error is propagated by the largest slopes: a constant bound would be too small near the root of u,
/// where the square root amplifies, and would miss small errors of a function elsewhere.
ChainValue independent_turn(const ChainValue& chain) {
  const auto wide = [](float operand) { return static_cast<double>(operand); };
  const float s = static_cast<float>(std::sin(wide(chain.value * 1.1f)) * std::cos(wide(chain.value * 0.9f)));
  const double s_error = 1.1 * chain.error + function_error;
  const float t = static_cast<float>(std::tan(wide(s * 0.1f)) + std::atan(wide(s * 2.0f)));
  const double t_error = 2.2 * s_error + 2 * function_error;
  const double power = std::exp(wide(t * 0.01f)), logarithm = std::log(std::fabs(wide(t * 10.0f)) + 1);
  const float u = std::fabs(static_cast<float>(power - logarithm));
  const double u_error =
      (0.02 + 10 / (10 * std::fabs(wide(t)) + 1)) * t_error + function_error * (power + logarithm);
  const double root = std::sqrt(wide(u)), factor = std::pow(wide(u) + 0.1, 0.33);
  const double v_error =
      factor * u_error * (1 / std::sqrt(std::max(wide(u), u_error)) + 0.33 * root / (wide(u) + 0.1));
  const float v = static_cast<float>(root * factor);
  const float value = static_cast<float>(std::sinh(wide(v * 0.1f)) * std::cosh(wide(v * 0.1f)));
  return {value, 0.12 * v_error + function_error * wide(value)};
}

/// T: float or double.
template <typename T>
Expected expect_activation(T z, std::uint64_t place, int iterations, ElementType type) {
  if (iterations == 0 || z != z) return rounded(type, static_cast<double>(math::activation(z)), 0);
  double sum = 0, error = 0;
  ChainValue chain{.value = std::fabs(static_cast<float>(z))};
  float phase = math::extreme_phase(place);
  for (int i = 0; i < iterations; ++i) {
    chain.value += phase;
    chain = independent_turn(chain);
    sum += static_cast<double>(chain.value);
    error += chain.error;
    chain.error += function_error;  // the next phase is added with a rounding
    phase = math::next_phase(phase);
  }
  // The load adds the iterations' values in fp32.
  const double weight = static_cast<double>(math::extreme_weight) / iterations,
               term_error = weight * (error + unit_roundoff(ElementType::f32) * (iterations + 1) * sum);
  return rounded(type, z > T(0) ? static_cast<double>(z) + weight * sum : -weight * sum, term_error);
}

MatrixView as_row(const void* data, ElementType type, std::int64_t count) {
  return {const_cast<void*>(data), type, 1, count};
}

/// Sampled weights and moments of some parameters, before and after an update.
struct SampledStep {
  OptimizerStep step;
  const std::byte *weights = nullptr, *gradient = nullptr, *first = nullptr, *second = nullptr;
  const std::byte *new_weights = nullptr, *new_first = nullptr, *new_second = nullptr, *copy = nullptr;

  /// Applies the update rule to parameter i. Returns weight, first and second moment.
  std::array<float, 3> apply(std::int64_t i) const {
    const auto at = [&](const std::byte* data) {
      return data ? static_cast<float>(load(data, ElementType::f32, i)) : 0.0f;
    };
    std::array<float, 3> state{at(weights), at(first), at(second)};
    const auto g = static_cast<float>(load(gradient, step.range.gradient.type, i));
    if (const auto* sgd = std::get_if<math::Sgd>(&step.rule))
      (*sgd)(state[0], state[1], g);
    else
      std::get<math::Adam>(step.rule)(state[0], state[1], state[2], g);
    return state;
  }
};

}  // namespace

double OperationAudit::cheap_terms(const DeviceInfo& device) {
  const double per_unit = device.backend == "host" ? 0x1p25 : 0x1p28;
  return per_unit * std::max(1, device.multiprocessors);
}

Result<std::unique_ptr<OperationAudit>> OperationAudit::create(Device& device, const Config& config) {
  std::unique_ptr<OperationAudit> made(new OperationAudit(device, config));
  EGT_TRY(made->allocate());
  return made;
}

Status OperationAudit::allocate() {
  const std::size_t copy_bytes = sample_elements * sizeof(double);
  const std::size_t row_bytes = static_cast<std::size_t>(config_.widest_layer) * sizeof(double) + alignment;
  const std::size_t reports = config_.gemms * sizeof(GemmMismatches);
  EGT_TRY_ASSIGN(reports_, device_.allocate(reports));
  EGT_TRY_ASSIGN(pinned_reports_, device_.allocate_pinned(reports));
  EGT_TRY_ASSIGN(samples_, device_.allocate_pinned(
                               config_.other_operations * copies_per_operation * copy_bytes + row_bytes));
  const auto rows = static_cast<std::size_t>(config_.max_rows);
  EGT_TRY_ASSIGN(ones_, device_.allocate(rows * sizeof(float)));
  EGT_TRY_ASSIGN(short_ones_, device_.allocate(rows * sizeof(float)));
  EGT_TRY_ASSIGN(done_, device_.create_event(EventUse::order));
  return {};
}

void OperationAudit::begin(Precision precision, const Selection& selection) {
  abort();
  std::memset(pinned_reports_.data(), 0, pinned_reports_.bytes());  // compared: none
  precision_ = precision;
  selection_ = selection;
}

void OperationAudit::abort() {
  gemms_.clear();
  judges_.clear();
  gemms_seen_ = used_bytes_ = 0;
}

std::uint64_t OperationAudit::draw() {
  return mix64(config_.seed ^ ++draws_ * 0x9E3779B97F4A7C15ull);
}

OperationAudit::Place OperationAudit::place_in(std::int64_t rows, std::int64_t columns) {
  const std::int64_t count = std::min(columns, sample_elements);
  return {.row = static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>(rows)),
          .column = static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>(columns - count + 1)),
          .count = count};
}

std::string OperationAudit::name_of(const PassTensor& tensor) const {
  return fmt::format("{}, {}", to_string(tensor), to_string(precision_));
}

Result<const std::byte*> OperationAudit::take(const void* data, std::size_t bytes, Stream& stream) {
  const std::size_t room = (bytes + alignment - 1) / alignment * alignment;
  if (used_bytes_ + room > samples_.bytes()) return Status(StatusCode::internal, "no room for a sample");
  std::byte* const to = samples_.as<std::byte>() + std::exchange(used_bytes_, used_bytes_ + room);
  EGT_TRY(device_.copy(to, data, bytes, stream));
  return static_cast<const std::byte*>(to);
}

Result<const std::byte*> OperationAudit::take(const MatrixView& m, const Place& place, Stream& stream) {
  return take(m.row_range(place.row, 1).column_range(place.column, place.count).data,
              static_cast<std::size_t>(place.count) * size_of(m.type), stream);
}

Status OperationAudit::before(const Operation& operation, Stream& stream) {
  operands_.clear();
  return std::visit([&](const auto& one) { return take_operands(one, stream); }, operation);
}

Status OperationAudit::after(const Operation& operation, const PassTensor& tensor, Stream& stream) {
  EGT_TRY(std::visit([&](const auto& one) { return take_result(one, tensor, stream); }, operation));
  return device_.record(*done_, stream);
}

// GEMMs

/// Selects a random block of rows if the whole GEMM is too expensive.
Status OperationAudit::take_result(const Gemm& operation, const PassTensor& tensor, Stream& stream) {
  const std::size_t number = gemms_seen_++;
  if (number < selection_.first || (number - selection_.first) % selection_.every != 0) return {};
  const std::int64_t m = operation.d.rows,
                     k = operation.a_transposed ? operation.a.rows : operation.a.columns;
  const double terms_of_row = static_cast<double>(operation.d.columns) * static_cast<double>(k);
  const double affordable = std::min(static_cast<double>(m), selection_.terms / terms_of_row);
  std::int64_t rows =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(affordable) / rows_unit) * rows_unit;
  std::int64_t first = 0;
  if (rows >= m)
    rows = m;
  else
    first = static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>((m - rows) / rows_unit + 1)) *
            rows_unit;
  Gemm block = operation;
  block.d = operation.d.row_range(first, rows);
  block.a =
      operation.a_transposed ? operation.a.column_range(first, rows) : operation.a.row_range(first, rows);
  return verify(block, "gemm", name_of(tensor), first, stream);
}

Status OperationAudit::verify(const Gemm& gemm, const char* kind, std::string name, std::int64_t first_row,
                              Stream& stream) {
  if (gemms_.size() == config_.gemms) return {StatusCode::internal, "no room for another GEMM"};
  GemmMismatches* const report = reports_.as<GemmMismatches>() + gemms_.size();
  EGT_TRY(device_.set_zero(report, sizeof *report, stream));
  EGT_TRY(device_.verify_gemm(gemm, report, stream));
  EGT_TRY(device_.copy(pinned_reports_.as<GemmMismatches>() + gemms_.size(), report, sizeof *report, stream));
  gemms_.push_back({.kind = kind,
                    .name = std::move(name),
                    .first_row = first_row,
                    .columns = gemm.d.columns,
                    .elements = static_cast<std::uint64_t>(gemm.d.count())});
  return {};
}

Status OperationAudit::verify_sums(const VectorView& sums, const MatrixView& gradient,
                                   const PassTensor& tensor, Stream& stream) {
  const ElementType type = gradient.type;
  if (type == ElementType::f64 || (sums.type != ElementType::f32 && sums.type != type)) return {};
  const std::int64_t rows = gradient.rows;
  EGT_TRY(device_.fill({ones_.as<std::uint32_t>(), static_cast<std::uint64_t>(rows)},
                       {.kind = PatternKind::solid, .parameter = float_bits(1.0f)}, stream));
  MatrixView ones = as_row(ones_.data(), ElementType::f32, rows);
  if (type != ElementType::f32) {
    ones = as_row(short_ones_.data(), type, rows);
    EGT_TRY(device_.cast({ones.data, type, rows}, {ones_.data(), ElementType::f32, rows}, stream));
  }
  const Precision precision = type == ElementType::f16    ? Precision::fp16
                              : type == ElementType::bf16 ? Precision::bf16
                                                          : Precision::fp32;
  return verify(
      {.precision = precision, .a = ones, .b = gradient, .d = as_row(sums.data, sums.type, sums.count)},
      "replay", fmt::format("bias gradient by the {}", name_of(tensor)), 0, stream);
}

std::optional<OperationFinding> OperationAudit::finding_of(const VerifiedGemm& gemm,
                                                           const GemmMismatches& found) const {
  OperationFinding finding{.kind = gemm.kind, .detector = "GEMM verification", .where = {}};
  if (found.compared != gemm.elements) {
    finding.where = fmt::format("{}: the verification compared {} of {} elements", gemm.name, found.compared,
                                gemm.elements);
    finding.expected = static_cast<double>(gemm.elements);
    finding.actual = static_cast<double>(found.compared);
    return finding;
  }
  if (found.wrong == 0) return {};
  const auto index = static_cast<std::int64_t>(found.index);
  finding.where = fmt::format("{}: element {}, {} is {:.9g}, not {:.9g} +- {:.3g} ({} wrong)", gemm.name,
                              gemm.first_row + index / gemm.columns, index % gemm.columns, found.actual,
                              found.expected, found.bound, found.wrong);
  finding.expected = found.expected;
  finding.actual = found.actual;
  finding.count = found.wrong;
  return finding;
}

// Samples of the other operations

Status OperationAudit::take_operands(const Activation& operation, Stream& stream) {
  place_ = place_in(operation.h.rows, operation.h.columns);
  EGT_TRY_ASSIGN(operands_.emplace_back(), take(operation.h, place_, stream));
  EGT_TRY_ASSIGN(
      operands_.emplace_back(),
      take(operation.bias + place_.column, static_cast<std::size_t>(place_.count) * sizeof(float), stream));
  return {};
}

Status OperationAudit::take_result(const Activation& operation, const PassTensor& tensor, Stream& stream) {
  EGT_TRY_ASSIGN(const std::byte* const result, take(operation.h, place_, stream));
  judges_.push_back([=, place = place_, z = operands_[0], bias = operands_[1], name = name_of(tensor)] {
    const auto& [h, unused, extreme] = operation;
    const auto first = static_cast<std::uint64_t>((extreme.first_row + place.row) * h.columns + place.column);
    return compare(name, result, h.type, place.row * h.columns + place.column, place.count,
                   [&](std::int64_t i) {
                     const double x = load(z, h.type, i), b = load(bias, ElementType::f32, i);
                     const std::uint64_t at = first + static_cast<std::uint64_t>(i);
                     if (h.type == ElementType::f64)
                       return expect_activation(x + b, at, extreme.iterations, h.type);
                     return expect_activation(static_cast<float>(x) + static_cast<float>(b), at,
                                              extreme.iterations, h.type);
                   });
  });
  return {};
}

Status OperationAudit::take_operands(const LossGradient& operation, Stream& stream) {
  place_ = place_in(operation.z.rows, operation.z.columns);
  EGT_TRY_ASSIGN(operands_.emplace_back(), take(operation.z, place_, stream));
  EGT_TRY_ASSIGN(
      operands_.emplace_back(),
      take(operation.bias + place_.column, static_cast<std::size_t>(place_.count) * sizeof(float), stream));
  EGT_TRY_ASSIGN(operands_.emplace_back(),
                 take(operation.x, {.row = place_.row, .column = 0, .count = operation.x.columns}, stream));
  return {};
}

Status OperationAudit::take_result(const LossGradient& operation, const PassTensor& tensor, Stream& stream) {
  EGT_TRY(verify_sums(operation.bias_gradient, operation.z, tensor, stream));
  EGT_TRY_ASSIGN(const std::byte* const result, take(operation.z, place_, stream));
  judges_.push_back([=, place = place_, z = operands_[0], bias = operands_[1], x = operands_[2],
                     name = name_of(tensor)] {
    const ElementType type = operation.z.type;
    return compare(
        name, result, type, place.row * operation.z.columns + place.column, place.count, [&](std::int64_t i) {
          const auto output = static_cast<std::uint32_t>(place.column + i);
          const double offset = math::target_offset(operation.target_seed, output);
          double sum = load(z, type, i) + load(bias, ElementType::f32, i) - offset;
          double magnitude =
              std::fabs(load(z, type, i)) + std::fabs(load(bias, ElementType::f32, i)) + std::fabs(offset);
          for (int t = 0; t < math::target_taps; ++t) {
            const math::TargetTap tap = math::target_tap(operation.target_seed, output, t,
                                                         static_cast<std::uint32_t>(operation.x.columns));
            const double term = tap.weight * load(x, type, tap.input);
            sum -= term;
            magnitude += std::fabs(term);
          }
          const double scale = operation.gradient_scale;
          return rounded(type, scale * sum, 0x1p-20 * scale * magnitude);  // 16 fp32 roundings
        });
  });
  return {};
}

Status OperationAudit::take_operands(const ActivationGradient& operation, Stream& stream) {
  place_ = place_in(operation.gradient.rows, operation.gradient.columns);
  EGT_TRY_ASSIGN(operands_.emplace_back(), take(operation.gradient, place_, stream));
  EGT_TRY_ASSIGN(operands_.emplace_back(), take(operation.h, place_, stream));
  return {};
}

Status OperationAudit::take_result(const ActivationGradient& operation, const PassTensor& tensor,
                                   Stream& stream) {
  EGT_TRY(verify_sums(operation.bias_gradient, operation.gradient, tensor, stream));
  EGT_TRY_ASSIGN(const std::byte* const result, take(operation.gradient, place_, stream));
  judges_.push_back([=, place = place_, before = operands_[0], h = operands_[1], name = name_of(tensor)] {
    const ElementType type = operation.gradient.type;
    return compare(name, result, type, place.row * operation.gradient.columns + place.column, place.count,
                   [&](std::int64_t i) {
                     return Expected{math::activation_gradient(load(before, type, i), load(h, type, i)), 0};
                   });
  });
  return {};
}

Status OperationAudit::take_operands(const OptimizerStep& operation, Stream& stream) {
  const ParameterRange& range = operation.range;
  place_ = place_in(1, range.count);
  const MatrixView gradient = as_row(range.gradient.data, range.gradient.type, range.count);
  EGT_TRY_ASSIGN(operands_.emplace_back(), take(gradient, place_, stream));
  for (const float* state :
       {static_cast<const float*>(range.weights), static_cast<const float*>(operation.first),
        static_cast<const float*>(operation.second)}) {
    operands_.push_back(nullptr);
    if (state == nullptr) continue;
    EGT_TRY_ASSIGN(operands_.back(), take(as_row(state, ElementType::f32, range.count), place_, stream));
  }
  return {};
}

Status OperationAudit::take_result(const OptimizerStep& operation, const PassTensor& tensor, Stream& stream) {
  const ParameterRange& range = operation.range;
  SampledStep sample{.step = operation,
                     .weights = operands_[1],
                     .gradient = operands_[0],
                     .first = operands_[2],
                     .second = operands_[3]};
  const auto take_state = [&](const void* data, ElementType type, const std::byte*& to) -> Status {
    if (data == nullptr) return {};
    EGT_TRY_ASSIGN(to, take(as_row(data, type, range.count), place_, stream));
    return {};
  };
  EGT_TRY(take_state(range.weights, ElementType::f32, sample.new_weights));
  EGT_TRY(take_state(operation.first, ElementType::f32, sample.new_first));
  EGT_TRY(take_state(operation.second, ElementType::f32, sample.new_second));
  EGT_TRY(take_state(range.compute_copy.data, range.compute_copy.type, sample.copy));
  judges_.push_back([=, place = place_, name = "update by the " + to_string(tensor)]() {
    const auto of = [&](const std::byte* before, const std::byte* after, std::size_t part,
                        const char* what) -> std::optional<OperationFinding> {
      if (after == nullptr) return {};
      return compare(
          fmt::format("{}: {}", name, what), after, ElementType::f32, place.column, place.count,
          [&](std::int64_t i) {
            const double now = sample.apply(i)[part], was = load(before, ElementType::f32, i);
            // Tolerance: some roundings of the old value and of the update.
            return Expected{now, 0x1p-21 * std::fabs(was) + 1e-4 * std::fabs(now - was) + 0x1p-126};
          });
    };
    std::optional<OperationFinding> found = of(sample.weights, sample.new_weights, 0, "weights");
    if (!found) found = of(sample.first, sample.new_first, 1, "first moment");
    if (!found) found = of(sample.second, sample.new_second, 2, "second moment");
    if (found || sample.copy == nullptr) return found;
    return compare(name + ": copy of the weights", sample.copy, operation.range.compute_copy.type,
                   place.column, place.count, [&](std::int64_t i) {
                     return rounded(operation.range.compute_copy.type,
                                    load(sample.new_weights, ElementType::f32, i), 0);
                   });
  });
  return {};
}

Result<OperationAuditReport> OperationAudit::collect(double timeout_seconds) {
  OperationAuditReport report;
  if (gemms_.empty() && judges_.empty()) return report;
  EGT_TRY(wait_until([&] { return device_.done(*done_); },
                     {.seconds = timeout_seconds, .what = "the audit of the operations"}));
  for (std::size_t i = 0; i < gemms_.size(); ++i) {
    const GemmMismatches& found = pinned_reports_.as<GemmMismatches>()[i];
    if (auto finding = finding_of(gemms_[i], found)) report.findings.push_back(std::move(*finding));
    report.gemm_elements += found.compared;
    report.undecided += found.undecided;
    report.largest_share = std::max(report.largest_share, found.largest_share());
  }
  for (const Judge& judge : judges_)
    if (auto finding = judge()) report.findings.push_back(std::move(*finding));
  report.gemms = gemms_.size();
  report.samples = judges_.size();
  abort();
  return report;
}

}  // namespace egt
