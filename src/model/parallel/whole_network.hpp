#pragma once

#include <cstdint>
#include <memory>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/mlp_pass.hpp"
#include "model/parameter_layout.hpp"

namespace egt {

/// A whole network on one device, as it is before its first step: what parts of it are held against. Lives no
/// longer than its stream's next synchronization allows.
class WholeNetwork {
 public:
  /// `network`: of which all samples of a pass are the first `samples` of a sequence.
  WholeNetwork(Device& device, const MlpConfig& network, std::int64_t samples);

  /// Takes memory, and enqueues a pass forward and backward; out_of_memory where there is none.
  Status enqueue_pass(std::uint64_t sequence, Stream& stream);
  /// The largest over the part's layers of ||gradient - whole|| / ||whole||; infinity where one is not
  /// finite. Waits.
  Result<double> difference(const NetworkPart& part, const ParameterLayout& layout, VectorView gradient,
                            Stream& stream, double timeout_seconds);

 private:
  struct Norms {
    double difference = 0, whole = 0;
  };
  /// Adds rows of `columns`, which lie `whole_stride` apart in the whole.
  Status add(const float* own, const float* whole, std::int64_t rows, std::int64_t columns,
             std::int64_t whole_stride, Norms& norms, Stream& stream, double timeout_seconds);

  Device& device_;
  MlpConfig config_;
  const ParameterLayout layout_;
  mlp::ParameterSet parameters_;
  mlp::Workspace workspace_;
  Buffer loss_, pinned_;
  std::unique_ptr<mlp::Pass> pass_;
};

}  // namespace egt
