#pragma once

#include <cstdint>
#include <vector>

namespace egt {

/// One fully connected layer: z = h W^T + b, W row-major outputs x inputs. Offsets count elements of the flat
/// buffers.
struct LinearLayer {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t weights = 0;  ///< offset of W
  std::int64_t bias = 0;     ///< offset of b, after W
  std::int64_t end = 0;      ///< one past b and its padding
};

/// A part of a layer's weight gradient, computed by one GEMM: rows [first_row, first_row + rows) of W.
struct GradientPiece {
  int layer = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
};

/// A range of the flat gradient that is all-reduced in one call, and the pieces that fill it.
struct GradientBucket {
  std::int64_t offset = 0;
  std::int64_t count = 0;
  std::vector<GradientPiece> pieces;
};

/// The layer whose weight gradient is computed last in a pass, after the first layer's. Its all-reduce can
/// then overlap with the next step's first GEMM, which needs the first layer's update but not this one's.
constexpr int late_layer = 1;

/// An all-reduce occupies multiprocessors that concurrent GEMMs need, and is waited for in the end. A few
/// large all-reduces cost less than many small ones. Step time of the default network in tf32 on two H200s:
/// 19.4 ms with such buckets, 19.6 with a quarter, 19.9 with an eighth (18.5 on one GPU).
constexpr std::int64_t usual_bucket_elements = 64 << 20;

/// Offsets of all parameters in flat buffers (weights, gradients, optimizer state), and the gradient buckets.
/// The backward pass delivers the last layer first, except for the late layer, and high rows before low ones.
/// Each bucket is a contiguous range. A bucket of several layers ends with its lowest.
class ParameterLayout {
 public:
  /// `neurons`: input first, at least two entries, each at least 1. A bucket closes once it has half of
  /// `bucket_elements`. A layer with more than `bucket_elements` weights is split by rows, so that its
  /// all-reduce begins before its last GEMM.
  explicit ParameterLayout(const std::vector<std::int64_t>& neurons,
                           std::int64_t bucket_elements = usual_bucket_elements);

  const std::vector<LinearLayer>& layers() const { return layers_; }
  /// In the order in which backward fills them.
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  /// Elements of a flat buffer, including padding.
  std::int64_t size() const { return layers_.back().end; }
  /// Number of weights and biases.
  std::int64_t parameter_count() const { return parameter_count_; }

 private:
  void plan_buckets(std::int64_t bucket_elements);

  std::vector<LinearLayer> layers_;
  std::vector<GradientBucket> buckets_;
  std::int64_t parameter_count_ = 0;
};

}  // namespace egt
