#pragma once

#include <cstdint>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/parameter_layout.hpp"

/// Private to the trainer: the sums of gradients over ranks.
namespace egt::mlp {

/// Sums buckets whole by all-reduce, or with MlpConfig::top_k_share the largest elements of each rank's, by
/// all-gather, with error feedback (Stich et al., "Sparsified SGD with memory", 2018): what a rank does not
/// send it adds to its gradient of the next step. All ranks make the same sums, in the order of the ranks.
class GradientSums {
 public:
  /// All must outlive it.
  GradientSums(Device& device, Communicator& communicator, const MlpConfig& config,
               const ParameterLayout& layout)
      : device_(device), communicator_(communicator), config_(config), layout_(layout) {}

  /// invalid_argument: a share of gradients that are not fp32.
  Status allocate();
  /// The bucket of the flat `gradient` becomes its sum over ranks. `residual`: flat, too; read and written
  /// with a share only.
  Status sum(const GradientBucket& bucket, const Workspace& workspace, float* residual, Stream& stream);
  /// With a share: two digests a bucket, as Pass::tensors tells them, of what this rank would send of twice
  /// the gradient in the workspace, and of that put back to what would be left.
  Status answer(const Workspace& workspace, Digest* answers, Stream& stream);
  /// That each rank sends in a step, where sums and gathers go round a ring.
  double sent_bytes() const;

 private:
  /// Of a bucket; its place is that of all buckets'.
  SparseView selected(const GradientBucket& bucket) const;
  TopKSelection selection(const GradientBucket& bucket, const Workspace& workspace, float* residual) const;

  Device& device_;
  Communicator& communicator_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  Buffer selected_, gathered_, scratch_;
  Buffer known_;  ///< a residual of known answers, of the largest bucket
};

}  // namespace egt::mlp
