#pragma once

#include <stop_token>

#include "egt/core/operations.hpp"
#include "egt/device/device.hpp"
#include "workload/common/operation_pipeline.hpp"
#include "workload/common/reproducer.hpp"

namespace egt {

/// A memory-resident GEMM in a reproducer. Its operands are the matrix pair `pair` of a block that is filled
/// with a pattern: a and b^T of rows x inner elements each.
struct BlockGemm {
  Precision precision = Precision::fp32;
  std::int64_t rows = 0, inner = 0, pair = 0;
  Pattern operands;

  std::uint64_t matrix_bytes() const {
    return static_cast<std::uint64_t>(rows * inner) * size_of(storage_type(precision));
  }
  /// On the block at `words`; `d`: device memory for the result.
  Gemm on(void* words, void* d) const;
};
Json to_json(const BlockGemm& gemm);
Result<BlockGemm> parse_block_gemm(const Json& call);

/// Repeats the GEMM in the pipeline. Each distinct result is verified in fp64. Of those without a wrong
/// element, the most frequent one is right. All others failed. Max `limits.seconds` plus one verification.
Result<Repetitions> repeat_gemm(Device& device, const Gemm& gemm, OperationPipeline& pipeline,
                                const RepetitionLimits& limits, const std::stop_token& stop);

}  // namespace egt
