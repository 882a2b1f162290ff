#include "workload/memory/repeated_gemm.hpp"

#include <algorithm>
#include <vector>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

/// A distinct result.
struct Answer {
  Digest digest;
  bool is_right = false;  ///< every element was verified
  int count = 0;
};

Status unknown(const char* key) {
  return {StatusCode::invalid_argument, fmt::format("is no reproducer: '{}' has an unknown value", key)};
}

}  // namespace

Gemm BlockGemm::on(void* words, void* d) const {
  const ElementType type = storage_type(precision);
  char* const a = static_cast<char*>(words) + 2 * static_cast<std::uint64_t>(pair) * matrix_bytes();
  return {.precision = precision,
          .a = {a, type, rows, inner},
          .b = {a + matrix_bytes(), type, rows, inner},
          .d = {d, sum_type(precision), rows, rows},
          .b_transposed = true};
}

Json to_json(const BlockGemm& gemm) {
  return {{"precision", to_string(gemm.precision)},
          {"rows", gemm.rows},
          {"inner", gemm.inner},
          {"pair", gemm.pair},
          {"pattern", to_string(gemm.operands.kind)},
          {"seed", gemm.operands.seed}};
}

Result<BlockGemm> parse_block_gemm(const Json& call) {
  constexpr std::int64_t max_rows = 1 << 17;
  BlockGemm gemm;
  const auto precision = parse_precision(text_at(call, "precision"));
  if (!precision) return unknown("precision");
  gemm.precision = *precision;
  EGT_TRY_ASSIGN(gemm.rows, number_in_call(call, "rows", 1, max_rows));
  EGT_TRY_ASSIGN(gemm.inner, number_in_call(call, "inner", 1, max_rows));
  EGT_TRY_ASSIGN(gemm.pair, number_in_call(call, "pair", 0, max_rows));
  EGT_TRY_ASSIGN(gemm.operands.seed, seed_in_call(call));
  gemm.operands.kind = PatternKind::finite;  // the only pattern of operands
  if (text_at(call, "pattern") != to_string(gemm.operands.kind)) return unknown("pattern");
  return gemm;
}

Result<Repetitions> repeat_gemm(Device& device, const Gemm& gemm, OperationPipeline& pipeline,
                                const RepetitionLimits& limits, const std::stop_token& stop) {
  const WordsView result{
      static_cast<std::uint32_t*>(gemm.d.data),
      static_cast<std::uint64_t>(gemm.d.count()) * size_of(gemm.d.type) / sizeof(std::uint32_t)};
  Evidence found;
  const auto run = [&](const OperationPipeline::Enqueue& enqueue) -> Status {
    EGT_TRY(pipeline.submit(
        enqueue, [&found](const Evidence& evidence, double) { return found = evidence, Status(); }, stop));
    return pipeline.judge_first(pipeline.submitted(), stop);
  };
  std::vector<Answer> answers;
  EGT_TRY_ASSIGN(Repetitions counts, repeat(limits, [&]() -> Result<bool> {
                   EGT_TRY(run([&](Stream& stream, Evidence* on_device) -> Status {
                     EGT_TRY(device.set_zero(result.data, result.bytes(), stream));
                     EGT_TRY(device.gemm(gemm, stream));
                     return device.digest(result, &on_device->first, stream);
                   }));
                   const Digest digest = found.first;
                   auto answer = std::find_if(answers.begin(), answers.end(),
                                              [&](const Answer& one) { return one.digest == digest; });
                   if (answer == answers.end()) {
                     EGT_TRY(run([&](Stream& stream, Evidence* on_device) {
                       return device.verify_gemm(gemm, &on_device->gemm, stream);
                     }));
                     const GemmMismatches& verified = found.gemm;
                     const bool is_right = verified.wrong == 0 && verified.undecided == 0 &&
                                           verified.compared == static_cast<std::uint64_t>(gemm.d.count());
                     answer = answers.insert(answers.end(), {.digest = digest, .is_right = is_right});
                   }
                   ++answer->count;
                   return true;
                 }));
  int right = 0;
  for (const Answer& one : answers)
    if (one.is_right) right = std::max(right, one.count);
  counts.failed = counts.of - right;
  return counts;
}

}  // namespace egt
