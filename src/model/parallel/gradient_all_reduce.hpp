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

/// Private to the trainer: the gradient all-reduce.
namespace egt::mlp {

/// Output of a bucket's all-reduce verification, in device memory.
struct AllReduceEvidence {
  Digest* result = nullptr;  ///< digest of the whole result on this rank
  Mismatches* wrong =
      nullptr;  ///< elements of this rank's slice that differ from the sum of all ranks' gradients
};

/// Reduces buckets by a full all-reduce. With MlpConfig::top_k_share, it all-gathers the top-k elements of
/// each rank by magnitude with error feedback (Stich et al., "Sparsified SGD with memory", 2018). Elements
/// that a rank does not send are added to its next gradient. All ranks accumulate in rank order.
///
/// Full all-reduces can be verified. Each rank receives one slice of all ranks' gradients before the
/// all-reduce and adds it up. Together with the digests of all ranks' results, this checks each element of
/// each result, to one rounding per addition.
class GradientAllReduce {
 public:
  /// All arguments must outlive it.
  GradientAllReduce(Device& device, Communicator& communicator, const MlpConfig& config,
                    const ParameterLayout& layout)
      : device_(device), communicator_(communicator), config_(config), layout_(layout) {}

  /// invalid_argument: top_k_share with gradients that are not fp32.
  Status allocate();
  /// All-reduces the bucket of the workspace's flat gradient in place. `residual`: flat as well; used only
  /// with top_k_share.
  Status sum(const GradientBucket& bucket, const Workspace& workspace, float* residual, Stream& stream);
  /// If true, each bucket needs `exchange_terms`, `sum` and `verify`, in this order.
  bool are_verified() const { return config_.has_second_pass && slices() > 1 && config_.top_k_share == 0; }
  Status exchange_terms(const GradientBucket& bucket, const Workspace& workspace, Stream& stream);
  Status verify(const GradientBucket& bucket, const Workspace& workspace, const AllReduceEvidence& evidence,
                Stream& stream);
  /// Elements per slice of a bucket. The last slice may have fewer or none.
  static std::int64_t slice_elements(const GradientBucket& bucket, int ranks) {
    return (bucket.count + ranks - 1) / ranks;
  }
  /// Applies to all-reduces enqueued from now on. Other tensors are ignored.
  void set_tensor_faults(std::vector<TensorFault> tensor_faults) {
    tensor_faults_ = std::move(tensor_faults);
  }
  /// Known-answer test of top_k_share, with the gradient as residual. Writes two digests per bucket, as in
  /// Pass::tensors: of the elements that this rank would send, and of these merged with the unsent ones.
  Status answer(const Workspace& workspace, Digest* answers, Stream& stream);
  /// Bytes that each rank sends per step, if all-reduces and all-gathers use a ring algorithm.
  double sent_bytes() const;

 private:
  /// Selected elements of a bucket. All buckets use the same memory, one after the other.
  SparseView selected(const GradientBucket& bucket) const;
  int slices() const { return communicator_.size(); }
  /// The given rank's slice of the bucket; empty past the last element.
  VectorView slice_of(int rank, const GradientBucket& bucket, const Workspace& workspace) const;
  Status tamper(TensorKind kind, const GradientBucket& bucket, const VectorView& gradient, Stream& stream);
  TopKSelection selection(const GradientBucket& bucket, const Workspace& workspace, float* residual) const;

  Device& device_;
  Communicator& communicator_;
  const MlpConfig& config_;
  const ParameterLayout& layout_;
  Buffer selected_, gathered_, scratch_;
  Buffer terms_;  ///< all ranks' gradients of this rank's slice, for the bucket in progress
  std::vector<TensorFault> tensor_faults_;
  Buffer known_;  ///< residual of known-answer tests, sized for the max bucket
};

}  // namespace egt::mlp
