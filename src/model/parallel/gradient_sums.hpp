#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/parameter_layout.hpp"
#include "model/pass_tensor.hpp"

/// Private to the trainer: the sums of gradients over ranks.
namespace egt::mlp {

/// Where the verification of a bucket's sum leaves what it finds: device memory.
struct SumEvidence {
  Digest* result = nullptr;  ///< of the whole sum, as this rank has it
  Mismatches* wrong =
      nullptr;  ///< elements of this rank's slice that are not the sum of all ranks' gradients
};

/// Sums buckets whole by all-reduce, or with MlpConfig::top_k_share the largest elements of each rank's, by
/// all-gather, with error feedback (Stich et al., "Sparsified SGD with memory", 2018): what a rank does not
/// send it adds to its gradient of the next step. All ranks make the same sums, in the order of the ranks.
///
/// Whole sums can be verified: each rank gets one slice of all ranks' gradients before they are summed, and
/// adds it up. With the digests of all ranks' results, each element of each result is then known to
/// be right, to a rounding of each addition.
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
  /// Are sums verified? Then each bucket goes through the next one, `sum` and `verify`, in this order.
  bool are_verified() const { return config_.has_second_pass && slices() > 1 && config_.top_k_share == 0; }
  Status exchange_terms(const GradientBucket& bucket, const Workspace& workspace, Stream& stream);
  Status verify(const GradientBucket& bucket, const Workspace& workspace, const SumEvidence& evidence,
                Stream& stream);
  /// Elements of a bucket's slices but the last, which may have less or none.
  static std::int64_t slice_elements(const GradientBucket& bucket, int ranks) {
    return (bucket.count + ranks - 1) / ranks;
  }
  /// In force for the sums enqueued from now on; of other tensors it has no effect.
  void set_tampering(std::vector<Tampering> tampering) { tampering_ = std::move(tampering); }
  /// With a share: two digests a bucket, as Pass::tensors tells them, of what this rank would send of twice
  /// the gradient in the workspace, and of that put back to what would be left.
  Status answer(const Workspace& workspace, Digest* answers, Stream& stream);
  /// That each rank sends in a step, where sums and gathers go round a ring.
  double sent_bytes() const;

 private:
  /// Of a bucket; its place is that of all buckets'.
  SparseView selected(const GradientBucket& bucket) const;
  int slices() const { return communicator_.size(); }
  /// This bucket's, of a rank; empty behind the last element.
  VectorView slice_of(int rank, const GradientBucket& bucket, const Workspace& workspace) const;
  Status tamper(TensorKind kind, const GradientBucket& bucket, const VectorView& gradient, Stream& stream);
  TopKSelection selection(const GradientBucket& bucket, const Workspace& workspace, float* residual) const;

  Device& device_;
  Communicator& communicator_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  Buffer selected_, gathered_, scratch_;
  Buffer terms_;  ///< all ranks' gradients of this rank's slice, of the bucket that is being summed
  std::vector<Tampering> tampering_;
  Buffer known_;  ///< a residual of known answers, of the largest bucket
};

}  // namespace egt::mlp
