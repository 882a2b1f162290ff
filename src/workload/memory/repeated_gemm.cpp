#include "workload/memory/repeated_gemm.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

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
  Json json = {{"precision", to_string(gemm.precision)},
               {"rows", gemm.rows},
               {"inner", gemm.inner},
               {"pair", gemm.pair},
               {"operands", operand_bands()[gemm.band].name},
               {"seed", gemm.seed}};
  if (gemm.fault.count > 0)
    json["fault"] = {{"first", gemm.fault.first},
                     {"count", gemm.fault.count},
                     {"stride", gemm.fault.stride},
                     {"mask", gemm.fault.mask}};
  return json;
}

Result<BlockGemm> parse_block_gemm(const Json& call) {
  constexpr std::int64_t max_rows = 1 << 17, max_words = std::int64_t{1} << 35, max_flips = 1 << 24;
  BlockGemm gemm;
  const auto precision = parse_precision(text_at(call, "precision"));
  if (!precision) return unknown("precision");
  gemm.precision = *precision;
  EGT_TRY_ASSIGN(gemm.rows, number_in_call(call, "rows", 16, max_rows));
  EGT_TRY_ASSIGN(gemm.inner, number_in_call(call, "inner", 16, max_rows));
  EGT_TRY_ASSIGN(gemm.pair, number_in_call(call, "pair", 0, max_rows));
  if (gemm.rows % 16 != 0 || !std::has_single_bit(gemm.matrix_words())) return unknown("rows");
  EGT_TRY_ASSIGN(gemm.seed, seed_in_call(call));
  const auto bands = operand_bands();
  const auto band = std::find_if(bands.begin(), bands.end(), [&](const OperandBand& one) {
    return one.precision == gemm.precision && one.name == text_at(call, "operands");
  });
  if (band == bands.end()) return unknown("operands");
  gemm.band = static_cast<std::size_t>(band - bands.begin());
  const Json& fault = member(call, "fault");
  if (fault.is_null()) return gemm;
  EGT_TRY_ASSIGN(const std::int64_t first, number_in_call(fault, "first", 0, max_words));
  EGT_TRY_ASSIGN(const std::int64_t count, number_in_call(fault, "count", 1, max_flips));
  EGT_TRY_ASSIGN(const std::int64_t stride, number_in_call(fault, "stride", 1, max_words));
  EGT_TRY_ASSIGN(const std::int64_t mask, number_in_call(fault, "mask", 1, UINT32_MAX));
  gemm.fault = {.first = static_cast<std::uint64_t>(first),
                .count = static_cast<std::uint64_t>(count),
                .stride = static_cast<std::uint64_t>(stride),
                .mask = static_cast<std::uint32_t>(mask)};
  return gemm;
}

Result<Repetitions> repeat_gemm(Device& device, const BlockGemm& call, const Gemm& gemm,
                                OperationPipeline& pipeline, const RepetitionLimits& limits,
                                const std::stop_token& stop) {
  const WordsView result{
      static_cast<std::uint32_t*>(gemm.d.data),
      static_cast<std::uint64_t>(gemm.d.count()) * size_of(gemm.d.type) / sizeof(std::uint32_t)};
  const OperandBand& band = operand_bands()[call.band];
  const auto multiply = [&](Stream& stream, Evidence* on_device) -> Status {
    EGT_TRY(device.set_zero(result.data, result.bytes(), stream));
    EGT_TRY(device.gemm(gemm, stream));
    if (call.fault.count > 0) EGT_TRY(device.flip(result, call.fault, stream));
    return device.digest(result, &on_device->first, stream);
  };
  const auto verify = [&](Stream& stream, Evidence* on_device) {
    return band.is_exact ? device.verify_exact_gemm(gemm, band.granule, &on_device->gemm, stream)
                         : device.verify_gemm(gemm, &on_device->gemm, stream);
  };
  return repeat_digest(
      limits,
      [&]() -> Result<Digest> {
        EGT_TRY_ASSIGN(const Evidence found, pipeline.run(multiply, stop));
        return found.first;
      },
      [&]() -> Result<bool> {
        EGT_TRY_ASSIGN(const Evidence found, pipeline.run(verify, stop));
        const GemmMismatches& verified = found.gemm;
        return verified.wrong == 0 && verified.undecided == 0 &&
               verified.compared == static_cast<std::uint64_t>(gemm.d.count());
      });
}

}  // namespace egt
