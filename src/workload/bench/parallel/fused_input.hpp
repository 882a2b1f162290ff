#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/mlp_config.hpp"
#include "workload/bench/bench_operation.hpp"

namespace egt {

/// Network input from robots' sensors: their streams are fused on this device, as `multimodal` does. The
/// values of all robots' timelines are concatenated and cut into samples of the network's input size. One
/// thread.
class FusedInput {
 public:
  /// For batches of `network.batch.global` samples. Allocates and fills the streams. Blocks.
  static Result<std::unique_ptr<FusedInput>> create(Device& device, std::uint64_t seed,
                                                    const MlpConfig& network);
  /// Fills packed `input` with samples of a batch, starting at the first one given. Fuses the batch unless
  /// the previous call did. All devices get the same values for a sequence. Use one stream.
  Status make(std::uint64_t sequence, std::int64_t first_sample, MatrixView input, Stream& stream);
  /// Milliseconds to fuse a batch without concurrent work (rate_alone). Blocks until done.
  Result<double> measure();

 private:
  FusedInput(Device& device, std::unique_ptr<BenchOperation> fusion)
      : device_(device), fusion_(std::move(fusion)) {}
  Status fuse(std::uint64_t sequence, Stream& stream);

  Device& device_;
  std::vector<Buffer> timelines_;  ///< of each generation
  std::unique_ptr<BenchOperation> fusion_;
  std::optional<std::uint64_t> fused_;  ///< sequence of the fused batch
};

}  // namespace egt
