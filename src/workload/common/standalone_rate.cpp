#include "workload/common/standalone_rate.hpp"

#include <algorithm>
#include <memory>

namespace egt {
namespace {

constexpr double one_operation = 0, shortest_ms = 1e-3, deadline_seconds = 60;
constexpr int max_repeats = 1 << 16;
constexpr int max_windows = 5;
constexpr double enough_ms = 100;             ///< total of all windows; slow operations have fewer windows
constexpr double long_enough_seconds = 2e-4;  ///< per operation: launch overhead is negligible
constexpr std::int64_t fewest_rows = 256, max_rows = 8192;
constexpr std::int64_t columns_of_chains = 1024, fewest_chain_rows = 4, max_chain_rows = 8192;
constexpr double growth_of_full = 1.1;  ///< max rate gain of four times the chains on a full device
/// Limit per operation: no larger chain count is tried beyond it. On a busy CPU, noise looks like a gain, and
/// a rank that measures for half a minute delays its peers in their first collective.
constexpr double too_long_seconds = 0.25;
constexpr std::uint64_t scratch_divisor = 64;

Result<double> product_rate(Device& device, Stream& stream, Precision precision, std::int64_t rows,
                            double min_ms) {
  const ElementType type = storage_type(precision);
  const std::size_t bytes = static_cast<std::size_t>(rows * rows) * size_of(type);
  EGT_TRY_ASSIGN(const Buffer a, device.allocate(bytes));
  EGT_TRY_ASSIGN(const Buffer b, device.allocate(bytes));
  const ElementType sums = sum_type(precision);
  EGT_TRY_ASSIGN(const Buffer d, device.allocate(static_cast<std::size_t>(rows * rows) * size_of(sums)));
  EGT_TRY(device.fill(a.words(), {.kind = PatternKind::finite, .seed = 1}, stream));
  EGT_TRY(device.fill(b.words(), {.kind = PatternKind::finite, .seed = 2}, stream));
  const Gemm gemm{.precision = precision,
                  .a = {a.data(), type, rows, rows},
                  .b = {b.data(), type, rows, rows},
                  .d = {d.data(), sums, rows, rows},
                  .b_transposed = true};
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(rows * rows);
  return rate_alone(
      device, stream, flops, [&] { return device.gemm(gemm, stream); }, min_ms);
}

Result<double> chain_rate(Device& device, Stream& stream, int iterations, std::int64_t rows, double min_ms) {
  const std::size_t elements = static_cast<std::size_t>(rows * columns_of_chains);
  EGT_TRY_ASSIGN(const Buffer data, device.allocate(elements * sizeof(float)));
  EGT_TRY_ASSIGN(const Buffer bias, device.allocate(columns_of_chains * sizeof(float)));
  EGT_TRY(device.fill(data.words(), {.kind = PatternKind::finite, .seed = 1}, stream));
  EGT_TRY(device.set_zero(bias.data(), bias.bytes(), stream));
  const MatrixView h{data.data(), ElementType::f32, rows, columns_of_chains};
  const double turns = static_cast<double>(elements) * iterations;
  return rate_alone(
      device, stream, turns,
      [&] { return device.activate(h, bias.as<float>(), {.iterations = iterations}, stream); }, min_ms);
}

}  // namespace

Result<double> rate_alone(Device& device, Stream& stream, double units,
                          const std::function<Status()>& enqueue, double min_ms) {
  EGT_TRY_ASSIGN(const std::unique_ptr<Event> begin, device.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(const std::unique_ptr<Event> end, device.create_event(EventUse::timing));
  EGT_TRY(enqueue());
  EGT_TRY(device.synchronize(stream, deadline_seconds));
  double fastest = 0, spent_ms = 0;
  const int wanted = min_ms > 0 ? max_windows : 1;
  for (int repeats = 1, windows = 0; windows < wanted && (windows == 0 || spent_ms < enough_ms);) {
    EGT_TRY(device.record(*begin, stream));
    for (int i = 0; i < repeats; ++i) EGT_TRY(enqueue());
    EGT_TRY(device.record(*end, stream));
    EGT_TRY(device.synchronize(stream, deadline_seconds));
    EGT_TRY_ASSIGN(const double ms, device.elapsed_ms(*begin, *end));
    spent_ms += ms;
    if (ms >= min_ms || repeats >= max_repeats) {
      fastest = std::max(fastest, units * repeats / std::max(ms, shortest_ms) * 1e3);
      ++windows;
    } else {
      repeats *= 2;
    }
  }
  return fastest;
}

Result<double> product_rate_alone(Device& device, Stream& stream, Precision precision, double min_ms) {
  EGT_TRY_ASSIGN(const MemoryInfo memory, device.memory());
  const std::uint64_t max_bytes = std::min(memory.total_bytes / scratch_divisor, memory.free_bytes);
  for (std::int64_t rows = fewest_rows;; rows *= 2) {
    EGT_TRY_ASSIGN(const double rate, product_rate(device, stream, precision, rows, one_operation));
    if (min_ms == one_operation) return rate;
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(rows * rows);
    const std::uint64_t next_bytes =
        3 * static_cast<std::uint64_t>(4 * rows * rows) * size_of(storage_type(precision));
    if (rows == max_rows || flops >= rate * long_enough_seconds || next_bytes > max_bytes)
      return product_rate(device, stream, precision, rows, min_ms);
  }
}

/// Long chains alone do not fill the device, so their number grows until the rate no longer does.
Result<double> extreme_rate_alone(Device& device, Stream& stream, int iterations, double min_ms) {
  double last_rate = 0;
  for (std::int64_t rows = fewest_chain_rows;; rows *= 4) {
    EGT_TRY_ASSIGN(const double rate, chain_rate(device, stream, iterations, rows, one_operation));
    if (min_ms == one_operation) return rate;
    const double turns = static_cast<double>(rows * columns_of_chains) * iterations;
    const bool is_long = turns >= rate * long_enough_seconds, fills = rate < growth_of_full * last_rate;
    if (4 * rows > max_chain_rows || (is_long && fills) || turns >= rate * too_long_seconds)
      return chain_rate(device, stream, iterations, rows, min_ms);
    last_rate = rate;
  }
}

Result<double> read_rate_alone(Device& device, Stream& stream, WordsView words) {
  EGT_TRY_ASSIGN(const Buffer sums, device.allocate(sizeof(Digest)));
  return rate_alone(device, stream, static_cast<double>(words.bytes()),
                    [&] { return device.sum(words, sums.as<Digest>(), stream); });
}

}  // namespace egt
