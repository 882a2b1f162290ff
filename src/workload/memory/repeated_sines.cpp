#include "workload/memory/repeated_sines.hpp"

#include <cmath>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

/// math::sine_exponential with the host library's functions.
double sine_exponential_on_host(double v, int iterations) {
  double sum = 0;
  for (int i = 0; i < iterations; ++i) {
    v = std::sin(v * static_cast<double>(1.7f) + i) + std::exp(-std::fabs(v));
    sum += v;
  }
  return sum;
}

}  // namespace

Status BlockSines::enqueue(Device& device, const WordsView& block, Stream& stream,
                           Evidence* on_device) const {
  const WordsView words{block.data + first, count};
  const std::uint64_t last = count - 1;
  EGT_TRY(device.sine_exponential(words, iterations, &on_device->first, stream));
  if (last > 0) EGT_TRY(device.sine_exponential({words.data, last}, iterations, &on_device->second, stream));
  return device.sine_exponential({words.data + last, 1}, iterations, &on_device->sample, stream);
}

std::optional<float> BlockSines::last_value(Evidence& evidence) const {
  const auto word = only_word(evidence.sample);
  if (word) add_to_digest(evidence.second.a, evidence.second.b, count - 1, *word);
  return word && evidence.runs_agree() ? std::optional(float_from_bits(*word)) : std::nullopt;
}

std::optional<double> BlockSines::host_value_unlike(float value) const {
  /// With more iterations, rounding differs too much between device and host.
  constexpr int comparable_iterations = 2;
  constexpr double tolerance = 1e-5;
  if (iterations > comparable_iterations) return std::nullopt;
  const double expected =
      sine_exponential_on_host(static_cast<double>(float_from_bits(last_operand())), iterations);
  return std::fabs(static_cast<double>(value) - expected) <= tolerance ? std::nullopt
                                                                       : std::optional(expected);
}

Json to_json(const BlockSines& call) {
  return {{"seed", call.seed}, {"first", call.first}, {"count", call.count}, {"iterations", call.iterations}};
}

Result<BlockSines> parse_block_sines(const Json& call) {
  constexpr std::int64_t max_words = std::int64_t{1} << 35, max_iterations = 1'000'000;
  BlockSines sines;
  EGT_TRY_ASSIGN(sines.seed, seed_in_call(call));
  EGT_TRY_ASSIGN(const std::int64_t first, number_in_call(call, "first", 0, max_words));
  EGT_TRY_ASSIGN(const std::int64_t count, number_in_call(call, "count", 1, max_words));
  EGT_TRY_ASSIGN(const std::int64_t iterations, number_in_call(call, "iterations", 1, max_iterations));
  sines.first = static_cast<std::uint64_t>(first);
  sines.count = static_cast<std::uint64_t>(count);
  sines.iterations = static_cast<int>(iterations);
  return sines;
}

Result<Repetitions> repeat_sines(Device& device, const BlockSines& call, const WordsView& block,
                                 OperationPipeline& pipeline, const RepetitionLimits& limits,
                                 const std::stop_token& stop) {
  EGT_TRY(device.fill({block.data, call.end()}, call.operands(), pipeline.stream()));
  std::optional<float> last;
  return repeat_digest(
      limits,
      [&]() -> Result<Digest> {
        EGT_TRY_ASSIGN(Evidence found, pipeline.run(
                                           [&](Stream& stream, Evidence* on_device) {
                                             return call.enqueue(device, block, stream, on_device);
                                           },
                                           stop));
        last = call.last_value(found);
        return last ? found.first : Digest();
      },
      [&]() -> Result<bool> { return last && !call.host_value_unlike(*last); });
}

}  // namespace egt
