#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/mlp_config.hpp"
#include "workload/bench/bench_operation.hpp"

namespace egt {

/// What a network gets of robots' sensors: their streams fused on this device (as `multimodal` does), the
/// values of one robot's timeline behind the other's, cut into samples of as many as the network has inputs.
/// One thread.
class FusedInput {
 public:
  /// For batches of `network.batch.global` samples. Takes memory and makes the streams; waits.
  static Result<std::unique_ptr<FusedInput>> create(Device& device, std::uint64_t seed,
                                                    const MlpConfig& network);
  /// Fills `input`, which is packed, with samples of a batch from the first one on, and fuses that batch
  /// unless the call before did: the same on every device for the same sequence. One stream.
  Status make(std::uint64_t sequence, std::int64_t first_sample, MatrixView input, Stream& stream);
  /// Milliseconds that the device takes to fuse a batch, with nothing beside it (rate_alone). Waits.
  Result<double> measure();

 private:
  FusedInput(Device& device, std::unique_ptr<BenchOperation> fusion)
      : device_(device), fusion_(std::move(fusion)) {}
  Status fuse(std::uint64_t sequence, Stream& stream);

  Device& device_;
  std::vector<Buffer> timelines_;  ///< of each generation
  std::unique_ptr<BenchOperation> fusion_;
  std::optional<std::uint64_t> fused_;  ///< the sequence whose batch it is
};

}  // namespace egt
