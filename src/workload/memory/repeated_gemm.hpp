#pragma once

#include <stop_token>

#include "egt/core/operand_bands.hpp"
#include "egt/core/operations.hpp"
#include "egt/device/device.hpp"
#include "workload/common/operation_pipeline.hpp"
#include "workload/common/reproducer.hpp"

namespace egt {

/// A memory-resident GEMM in a reproducer. Its operands are the matrix pair `pair` of a block that is filled
/// with a band: a and b^T of rows x inner elements each.
struct BlockGemm {
  Precision precision = Precision::fp32;
  std::int64_t rows = 0, inner = 0, pair = 0;
  std::size_t band = 0;  ///< index in operand_bands()
  std::uint64_t seed = 0;
  Flip fault = {.count = 0};  ///< injected into the result

  std::uint64_t matrix_bytes() const {
    return static_cast<std::uint64_t>(rows * inner) * size_of(storage_type(precision));
  }
  std::uint64_t matrix_words() const { return matrix_bytes() / sizeof(std::uint32_t); }
  /// Pattern of the block.
  Pattern operands() const { return {PatternKind::operands, operand_parameter(band, matrix_words()), seed}; }
  /// On the block at `words`; `d`: device memory for the result.
  Gemm on(void* words, void* d) const;
};
Json to_json(const BlockGemm& gemm);
Result<BlockGemm> parse_block_gemm(const Json& call);

/// Repeats the GEMM, with its injected fault, in the pipeline. See repeat_digest; a result is right if no
/// element is wrong. Max `limits.seconds` plus one verification.
Result<Repetitions> repeat_gemm(Device& device, const BlockGemm& call, const Gemm& gemm,
                                OperationPipeline& pipeline, const RepetitionLimits& limits,
                                const std::stop_token& stop);

}  // namespace egt
