#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <vector>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

/// Rows of an operand, and terms, that a task converts to fp64 at a time.
constexpr std::int64_t lines_per_task = 16, terms_per_block = 64;

/// to = elements [first, first + count) of a row, as fp64.
void load_row(const MatrixView& m, std::int64_t r, std::int64_t first, std::int64_t count, double* to) {
  const auto load = [&]<typename T>(std::type_identity<T>) {
    const T* const from = row<const T>(m, r) + first;
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<double>(Element<T>::load(from[i]));
  };
  if (m.type == ElementType::f8) return load(std::type_identity<Float8>{});
  if (m.type == ElementType::f8_e5m2) return load(std::type_identity<Float8E5m2>{});
  if (m.type == ElementType::i8) return load(std::type_identity<std::int8_t>{});
  if (m.type == ElementType::i32)
    return std::copy_n(row<const std::int32_t>(m, r) + first, count, to), void();
  with_type(m.type, load);
}

/// Loads rows [first, first + rows) and columns [column, column + columns) of op(m) as fp64.
void load_block(const MatrixView& m, bool transposed, std::int64_t first, std::int64_t rows,
                std::int64_t column, std::int64_t columns, std::vector<double>& to) {
  to.resize(static_cast<std::size_t>(rows * columns));
  if (!transposed) {
    for (std::int64_t r = 0; r < rows; ++r) load_row(m, first + r, column, columns, to.data() + r * columns);
    return;
  }
  std::vector<double> line(static_cast<std::size_t>(rows));
  for (std::int64_t c = 0; c < columns; ++c) {
    load_row(m, column + c, first, rows, line.data());
    for (std::int64_t r = 0; r < rows; ++r)
      to[static_cast<std::size_t>(r * columns + c)] = line[static_cast<std::size_t>(r)];
  }
}

/// sums and magnitudes (n each) += a term of one row of op(a) times the same term of op(b).
EGT_FOR_EVERY_CPU void add_terms(double a, const double* __restrict b, std::int64_t n,
                                 double* __restrict sums, double* __restrict magnitudes) {
  const double magnitude = std::fabs(a);
  for (std::int64_t j = 0; j < n; ++j) {
    sums[j] += a * b[j];
    magnitudes[j] += magnitude * std::fabs(b[j]);
  }
}

double scale_of(const Gemm& g) {
  return (g.a_scale ? double{*g.a_scale} : 1.0) * (g.b_scale ? double{*g.b_scale} : 1.0);
}

void extend(GemmMismatches::Range& range, const GemmMismatches::Range& by) {
  range.last = std::max(range.last, by.last);
  range.complement_of_first = std::max(range.complement_of_first, by.complement_of_first);
}

void add_wrong(GemmMismatches& found, std::int64_t row, std::int64_t column, double expected, double actual,
               double bound) {
  extend(found.rows, GemmMismatches::Range::of(row));
  extend(found.columns, GemmMismatches::Range::of(column));
  if (const std::uint64_t place = found.wrong++; place < GemmMismatches::max_samples)
    found.sample[place] = {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(column), expected,
                           actual, bound};
}

/// Verifies rows [begin, end) of d.
GemmMismatches verify_rows(const Gemm& g, const GemmRounding& rounding, std::int64_t k, std::int64_t begin,
                           std::int64_t end) {
  const std::int64_t n = g.d.columns, rows = end - begin;
  std::vector<double> a, b, sums(static_cast<std::size_t>(rows * n)), magnitudes(sums.size());
  std::vector<double> of_a(static_cast<std::size_t>(rows)), of_b(static_cast<std::size_t>(n));
  for (std::int64_t first = 0; first < k; first += terms_per_block) {
    const std::int64_t terms = std::min(terms_per_block, k - first);
    load_block(g.a, g.a_transposed, begin, rows, first, terms, a);
    load_block(g.b, g.b_transposed, first, terms, 0, n, b);
    for (std::int64_t p = 0; p < terms; ++p)
      for (std::int64_t j = 0; j < n; ++j)
        of_b[static_cast<std::size_t>(j)] += std::fabs(b[static_cast<std::size_t>(p * n + j)]);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t p = 0; p < terms; ++p) {
        of_a[static_cast<std::size_t>(r)] += std::fabs(a[static_cast<std::size_t>(r * terms + p)]);
        add_terms(a[static_cast<std::size_t>(r * terms + p)], b.data() + p * n, n, sums.data() + r * n,
                  magnitudes.data() + r * n);
      }
  }
  const double scale = scale_of(g);
  std::vector<double> actual(static_cast<std::size_t>(n)), bias(static_cast<std::size_t>(n));
  if (g.relu_bias.data != nullptr) load_row({g.relu_bias.data, g.relu_bias.type, 1, n}, 0, 0, n, bias.data());
  GemmMismatches found{};
  found.compared = static_cast<std::uint64_t>(rows * n);
  double share = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    load_row(g.d, begin + r, 0, n, actual.data());
    for (std::size_t j = 0; j < actual.size(); ++j) {
      const std::size_t i = static_cast<std::size_t>(r * n) + j;
      const double plain = scale * sums[i] + bias[j],
                   all = scale * rounding.magnitude(magnitudes[i], of_a[static_cast<std::size_t>(r)], of_b[j],
                                                    k) +
                         std::fabs(bias[j]);
      const double expected = rounding.has_relu && plain < 0 ? 0.0 : plain;
      const double bound = rounding.bound(actual[j], all, bias[j]), off = std::fabs(actual[j] - expected);
      const ElementVerdict verdict = rounding.judge(actual[j], expected, all, bias[j]);
      if (verdict == ElementVerdict::undecided) ++found.undecided;
      if (verdict == ElementVerdict::right && off > 0 && off <= bound) share = std::max(share, off / bound);
      if (verdict == ElementVerdict::wrong)
        add_wrong(found, begin + r, static_cast<std::int64_t>(j), expected, actual[j], bound);
    }
  }
  found.largest = std::bit_cast<std::uint64_t>(share);
  return found;
}

void add(const GemmMismatches& found, GemmMismatches& to) {
  const auto room =
      GemmMismatches::max_samples - std::min<std::uint64_t>(to.wrong, GemmMismatches::max_samples);
  std::copy_n(found.sample, std::min(found.wrong, room), to.sample + GemmMismatches::max_samples - room);
  to.compared += found.compared;
  to.wrong += found.wrong;
  to.undecided += found.undecided;
  to.largest = std::max(to.largest, found.largest);  // bit patterns of nonnegative numbers
  extend(to.rows, found.rows);
  extend(to.columns, found.columns);
}

/// d w - a (b^T w) of row `r`, in granules: 0 if it is right. NaN: an element is no multiple.
double excess_of_row(const VerifyExactGemm& call, std::int64_t r, const std::vector<double>& weighted) {
  const auto& [gemm, granule, report] = call;
  std::vector<double> line(static_cast<std::size_t>(std::max(gemm.a.columns, gemm.d.columns)));
  double excess = 0;
  load_row(gemm.a, r, 0, gemm.a.columns, line.data());
  for (std::int64_t p = 0; p < gemm.a.columns; ++p)
    excess -= line[static_cast<std::size_t>(p)] * weighted[static_cast<std::size_t>(p)];
  excess = std::ldexp(excess, -granule);
  load_row(gemm.d, r, 0, gemm.d.columns, line.data());
  for (std::int64_t j = 0; j < gemm.d.columns; ++j) {
    const double units = std::ldexp(line[static_cast<std::size_t>(j)], -granule);
    if (units != std::nearbyint(units)) return std::numeric_limits<double>::quiet_NaN();
    excess += math::exact_weight(j) * units;
  }
  return excess;
}

/// Computes the elements of a wrong row again.
GemmMismatches locate_in_row(const Gemm& gemm, std::int64_t r) {
  GemmMismatches found{};
  std::vector<double> a(static_cast<std::size_t>(gemm.a.columns)), b(a.size()),
      d(static_cast<std::size_t>(gemm.d.columns));
  load_row(gemm.a, r, 0, gemm.a.columns, a.data());
  load_row(gemm.d, r, 0, gemm.d.columns, d.data());
  for (std::size_t j = 0; j < d.size(); ++j) {
    load_row(gemm.b, static_cast<std::int64_t>(j), 0, gemm.b.columns, b.data());
    const double expected = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    if (d[j] == expected) continue;
    ++found.compared;
    add_wrong(found, r, static_cast<std::int64_t>(j), expected, d[j], 0);
  }
  return found;
}

}  // namespace

void run(const VerifyExactGemm& call, HostStream& stream) {
  const auto& [gemm, granule, report] = call;
  const std::int64_t k = gemm.b.columns;
  std::vector<double> weighted(static_cast<std::size_t>(k));
  for_ranges(stream, k, lines_per_task * 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> line(static_cast<std::size_t>(end - begin));
    for (std::int64_t j = 0; j < gemm.b.rows; ++j) {
      load_row(gemm.b, j, begin, end - begin, line.data());
      for (std::size_t p = 0; p < line.size(); ++p)
        weighted[static_cast<std::size_t>(begin) + p] += math::exact_weight(j) * line[p];
    }
  });
  std::mutex mutex;
  int located = 0;
  for_ranges(stream, gemm.d.rows, lines_per_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      GemmMismatches found{};
      const bool is_right = excess_of_row(call, r, weighted) == 0;
      if (is_right) found.compared = static_cast<std::uint64_t>(gemm.d.columns);
      const std::scoped_lock lock(mutex);
      if (!is_right && located++ < VerifyExactGemm::max_located_rows) found = locate_in_row(gemm, r);
      if (!is_right) extend(found.rows, GemmMismatches::Range::of(r));
      add(found, *report);
    }
  });
}

void run(const VerifyGemm& verification, HostStream& stream) {
  const auto& [call, report] = verification;
  const std::int64_t k = call.a_transposed ? call.a.rows : call.a.columns;
  const GemmRounding rounding =
      GemmRounding::of(call.precision, call.d.type, k, call.relu_bias.data != nullptr);
  std::mutex mutex;
  for_ranges(stream, call.d.rows, lines_per_task, [&](std::int64_t begin, std::int64_t end) {
    const GemmMismatches found = verify_rows(call, rounding, k, begin, end);
    const std::scoped_lock lock(mutex);
    add(found, *report);
  });
}

}  // namespace egt::host
