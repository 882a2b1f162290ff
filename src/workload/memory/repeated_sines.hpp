#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>

#include "egt/core/pattern.hpp"
#include "egt/device/device.hpp"
#include "workload/common/operation_pipeline.hpp"
#include "workload/common/reproducer.hpp"

namespace egt {

/// Sines and exponentials of a window of a block, which is filled with `operands`.
struct BlockSines {
  std::uint64_t seed = 0;              ///< of the block
  std::uint64_t first = 0, count = 1;  ///< words of the window
  int iterations = 1;

  Pattern operands() const { return {.kind = PatternKind::finite, .seed = seed}; }
  std::uint64_t end() const { return first + count; }
  std::uint32_t last_operand() const { return PatternFunction(operands())(end() - 1); }
  /// Two runs. The second one computes the last word separately.
  Status enqueue(Device& device, const WordsView& block, Stream& stream, Evidence* on_device) const;
  /// Adds the last word to the digest of the second run, and returns it if both runs agree.
  std::optional<float> last_value(Evidence& evidence) const;
  /// The host's value of the last word, if `value` differs from it. With many iterations they are not
  /// compared.
  std::optional<double> host_value_unlike(float value) const;
};
Json to_json(const BlockSines& call);
Result<BlockSines> parse_block_sines(const Json& call);

/// Fills the block with the operands and repeats both runs in the pipeline. See repeat_digest; a result is
/// right if the runs agree with each other and with the host.
Result<Repetitions> repeat_sines(Device& device, const BlockSines& call, const WordsView& block,
                                 OperationPipeline& pipeline, const RepetitionLimits& limits,
                                 const std::stop_token& stop);

}  // namespace egt
