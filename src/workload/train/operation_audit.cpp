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
#include "workload/common/findings.hpp"

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
/// Relative error of a function in the load's chains: 4 ulp, the max that CUDA documents for them. glibc: 2.
constexpr double function_error = 0x1p-21;

using Expected = ExpectedElement;

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
/// The error is propagated by the max slopes. A constant bound would be too small near the root of u, because
/// the square root amplifies errors. Elsewhere it would miss small errors of a function.
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

/// Input of an operation: the elements at the place of the sample, or the whole row. A matrix of one row is
/// the same for all rows. The first operand has the shape of the result.
struct Operand {
  MatrixView matrix;
  bool is_whole_row = false;
};

std::vector<Operand> operands_of(const Activation& operation) {
  return {{operation.h}, {as_row(operation.bias, ElementType::f32, operation.h.columns)}};
}
std::vector<Operand> operands_of(const LossGradient& operation) {
  return {{operation.z},
          {as_row(operation.bias, ElementType::f32, operation.z.columns)},
          {.matrix = operation.x, .is_whole_row = true}};
}
std::vector<Operand> operands_of(const ActivationGradient& operation) {
  return {{operation.gradient}, {operation.h}};
}
/// Operations that are not sampled.
std::vector<Operand> operands_of(const auto&) {
  return {};
}
std::vector<Operand> operands_of(const OptimizerStep& operation) {
  const ParameterRange& range = operation.range;
  return {{as_row(range.weights, ElementType::f32, range.count)},
          {as_row(operation.first, ElementType::f32, range.count)},
          {as_row(operation.second, ElementType::f32, range.count)},
          {as_row(range.gradient.data, range.gradient.type, range.count)}};
}

}  // namespace

double OperationAudit::cheap_terms(const DeviceInfo& device) {
  const double per_unit = device.backend == "host" ? 0x1p25 : 0x1p28;
  return per_unit * std::max(1, device.multiprocessors);
}

Status OperationAudit::prepare(const Config& config) {
  config_ = config;
  const std::size_t copy_bytes = sample_elements * sizeof(double);
  const std::size_t row_bytes = static_cast<std::size_t>(config_.widest_layer) * sizeof(double) + alignment;
  const std::size_t reports = config_.gemms * sizeof(GemmMismatches);
  EGT_TRY_ASSIGN(reports_, device_.allocate(reports));
  EGT_TRY_ASSIGN(pinned_reports_, device_.allocate_pinned(reports));
  EGT_TRY_ASSIGN(elements_, device_.allocate_pinned(
                                config_.other_operations * copies_per_operation * copy_bytes + row_bytes));
  EGT_TRY_ASSIGN(ones_, device_.allocate(static_cast<std::size_t>(config_.max_rows) * sizeof(float)));
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
  samples_.clear();
  gemms_seen_ = used_bytes_ = sampled_operations_ = 0;
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

Result<const std::byte*> OperationAudit::take(const MatrixView& m, const Place& place, Stream& stream) {
  if (m.data == nullptr) return static_cast<const std::byte*>(nullptr);
  const std::size_t bytes = static_cast<std::size_t>(place.count) * size_of(m.type);
  const std::size_t room = (bytes + alignment - 1) / alignment * alignment;
  if (used_bytes_ + room > elements_.bytes()) return Status(StatusCode::internal, "no room for a sample");
  std::byte* const to = elements_.as<std::byte>() + std::exchange(used_bytes_, used_bytes_ + room);
  const MatrixView row = m.row_range(m.rows > 1 ? place.row : 0, 1);
  EGT_TRY(device_.copy(to, row.column_range(place.column, place.count).data, bytes, stream));
  return static_cast<const std::byte*>(to);
}

Result<const std::byte*> OperationAudit::sample(const MatrixView& result, std::string name,
                                                std::function<ExpectedElement(std::int64_t)> expected,
                                                Stream& stream) {
  EGT_TRY_ASSIGN(const std::byte* const actual, take(result, place_, stream));
  if (actual != nullptr)
    samples_.push_back([=, name = std::move(name), expected = std::move(expected), place = place_] {
      return compare(name, actual, result.type, place.row * result.columns + place.column, place.count,
                     expected);
    });
  return actual;
}

Status OperationAudit::before(const Operation& operation, Stream& stream) {
  operands_.clear();
  const auto operands = std::visit([](const auto& one) { return operands_of(one); }, operation);
  if (operands.empty()) return {};
  place_ = place_in(operands.front().matrix.rows, operands.front().matrix.columns);
  for (const auto& [matrix, is_whole_row] : operands) {
    const Place whole_row{.row = place_.row, .column = 0, .count = matrix.columns};
    EGT_TRY_ASSIGN(operands_.emplace_back(), take(matrix, is_whole_row ? whole_row : place_, stream));
  }
  return {};
}

Status OperationAudit::after(const Operation& operation, const PassTensor& tensor, Stream& stream) {
  if (!operands_.empty()) ++sampled_operations_;
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
  GemmMismatches* const pinned = pinned_reports_.as<GemmMismatches>() + gemms_.size();
  EGT_TRY(device_.set_zero(report, sizeof *report, stream));
  EGT_TRY(device_.verify_gemm(gemm, report, stream));
  EGT_TRY(device_.copy(pinned, report, sizeof *report, stream));
  const ElementType type = gemm.d.type;
  const auto elements = static_cast<std::uint64_t>(gemm.d.count());
  gemms_.push_back([=, name = std::move(name)]() -> std::optional<OperationFinding> {
    OperationFinding finding{.kind = kind, .detector = "GEMM verification", .where = {}};
    const GemmMismatches& found = *pinned;
    if (found.compared != elements) {
      finding.where =
          fmt::format("{}: the verification compared {} of {} elements", name, found.compared, elements);
      finding.expected = static_cast<double>(elements);
      finding.actual = static_cast<double>(found.compared);
      return finding;
    }
    if (found.wrong == 0) return {};
    const GemmMismatches::Sample one = found.samples().front();
    finding.where =
        fmt::format("{}: element {}, {} is {:.9g}, not {:.9g} +- {:.3g} ({} wrong)", name,
                    first_row + one.row, one.column, one.actual, one.expected, one.bound, found.wrong);
    finding.expected = one.expected;
    finding.actual = one.actual;
    finding.count = found.wrong;
    finding.map = error_map(found, first_row, type);
    return finding;
  });
  return {};
}

/// A bias gradient is a GEMM of the gradient with a row of ones; a word holds two of a 16-bit type.
Status OperationAudit::verify_sums(const VectorView& sums, const MatrixView& gradient,
                                   const PassTensor& tensor, Stream& stream) {
  const ElementType type = gradient.type;
  if (type == ElementType::f64 || (sums.type != ElementType::f32 && sums.type != type)) return {};
  const std::int64_t rows = gradient.rows;
  const bool is_f16 = type == ElementType::f16, is_bf16 = type == ElementType::bf16;
  const std::uint32_t one = is_f16 ? 0x3c003c00 : is_bf16 ? 0x3f803f80 : float_bits(1.0f);
  EGT_TRY(device_.fill({ones_.as<std::uint32_t>(), static_cast<std::uint64_t>(rows)},
                       {.kind = PatternKind::solid, .parameter = one}, stream));
  const MatrixView ones = as_row(ones_.data(), is_f16 || is_bf16 ? type : ElementType::f32, rows);
  const Precision precision = is_f16 ? Precision::fp16 : is_bf16 ? Precision::bf16 : Precision::fp32;
  return verify(
      {.precision = precision, .a = ones, .b = gradient, .d = as_row(sums.data, sums.type, sums.count)},
      "replay", fmt::format("bias gradient by the {}", name_of(tensor)), 0, stream);
}

// Samples of the other operations

Status OperationAudit::take_result(const Activation& operation, const PassTensor& tensor, Stream& stream) {
  const auto& [h, unused, extreme] = operation;
  const auto first = static_cast<std::uint64_t>((extreme.first_row + place_.row) * h.columns + place_.column);
  const auto expected = [=, type = h.type, iterations = extreme.iterations, z = operands_[0],
                         bias = operands_[1]](std::int64_t i) {
    const double x = load(z, type, i), b = load(bias, ElementType::f32, i);
    const std::uint64_t at = first + static_cast<std::uint64_t>(i);
    if (type == ElementType::f64) return expect_activation(x + b, at, iterations, type);
    return expect_activation(static_cast<float>(x) + static_cast<float>(b), at, iterations, type);
  };
  return sample(h, name_of(tensor), expected, stream).status();
}

Status OperationAudit::take_result(const LossGradient& operation, const PassTensor& tensor, Stream& stream) {
  EGT_TRY(verify_sums(operation.bias_gradient, operation.z, tensor, stream));
  const auto expected = [=, column = place_.column, z = operands_[0], bias = operands_[1],
                         x = operands_[2]](std::int64_t i) {
    const ElementType type = operation.z.type;
    const auto output = static_cast<std::uint32_t>(column + i);
    const double offset = math::target_offset(operation.target_seed, output);
    double sum = load(z, type, i) + load(bias, ElementType::f32, i) - offset;
    double magnitude =
        std::fabs(load(z, type, i)) + std::fabs(load(bias, ElementType::f32, i)) + std::fabs(offset);
    for (int t = 0; t < math::target_taps; ++t) {
      const math::TargetTap tap =
          math::target_tap(operation.target_seed, output, t, static_cast<std::uint32_t>(operation.x.columns));
      const double term = tap.weight * load(x, type, tap.input);
      sum -= term;
      magnitude += std::fabs(term);
    }
    const double scale = operation.gradient_scale;
    return rounded(type, scale * sum, 0x1p-20 * scale * magnitude);  // 16 fp32 roundings
  };
  return sample(operation.z, name_of(tensor), expected, stream).status();
}

Status OperationAudit::take_result(const ActivationGradient& operation, const PassTensor& tensor,
                                   Stream& stream) {
  EGT_TRY(verify_sums(operation.bias_gradient, operation.gradient, tensor, stream));
  const auto expected = [type = operation.gradient.type, before = operands_[0],
                         h = operands_[1]](std::int64_t i) {
    return Expected{math::activation_gradient(load(before, type, i), load(h, type, i)), 0};
  };
  return sample(operation.gradient, name_of(tensor), expected, stream).status();
}

Status OperationAudit::take_result(const OptimizerStep& operation, const PassTensor& tensor, Stream& stream) {
  const auto apply = [operation, operands = operands_](std::int64_t i) {
    std::array<float, 3> state{};  // weight, first and second moment
    for (std::size_t part = 0; part < state.size(); ++part)
      if (operands[part] != nullptr)
        state[part] = static_cast<float>(load(operands[part], ElementType::f32, i));
    const auto g = static_cast<float>(load(operands[3], operation.range.gradient.type, i));
    if (const auto* sgd = std::get_if<math::Sgd>(&operation.rule))
      (*sgd)(state[0], state[1], g);
    else
      std::get<math::Adam>(operation.rule)(state[0], state[1], state[2], g);
    return state;
  };
  const ParameterRange& range = operation.range;
  const std::string name = "update by the " + to_string(tensor);
  const float* const states[] = {range.weights, operation.first, operation.second};
  constexpr const char* names[] = {"weights", "first moment", "second moment"};
  const std::byte* taken[3] = {};
  for (std::size_t part = 0; part < 3; ++part) {
    const auto expected = [=, before = operands_[part]](std::int64_t i) {
      const double now = apply(i)[part], was = load(before, ElementType::f32, i);
      // Tolerance: four ulp of the old value; of the update more, since Adam divides small numbers.
      return Expected{now, 0x1p-21 * std::fabs(was) + 1e-4 * std::fabs(now - was) + 0x1p-126};
    };
    EGT_TRY_ASSIGN(taken[part], sample(as_row(states[part], ElementType::f32, range.count),
                                       fmt::format("{}: {}", name, names[part]), expected, stream));
  }
  const auto [copy, type, count] = range.compute_copy;
  const auto expected = [type = type, weights = taken[0]](std::int64_t i) {
    return rounded(type, load(weights, ElementType::f32, i), 0);
  };
  return sample(as_row(copy, type, range.count), name + ": copy of the weights", expected, stream).status();
}

Result<OperationAuditReport> OperationAudit::collect(double timeout_seconds) {
  OperationAuditReport report;
  report.gemms = gemms_.size();
  report.samples = sampled_operations_;
  if (gemms_.empty() && samples_.empty()) return report;
  EGT_TRY(wait_until([&] { return device_.done(*done_); },
                     {.seconds = timeout_seconds, .what = "the audit of the operations"}));
  for (std::size_t i = 0; i < gemms_.size(); ++i) {
    const GemmMismatches& found = pinned_reports_.as<GemmMismatches>()[i];
    report.gemm_elements += found.compared;
    report.largest_share = std::max(report.largest_share, found.largest_share());
  }
  for (const std::vector<Judge>* judges : {&gemms_, &samples_})
    for (const Judge& judge : *judges)
      if (auto finding = judge()) report.findings.push_back(std::move(*finding));
  abort();
  return report;
}

}  // namespace egt
