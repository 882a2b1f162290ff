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
  std::int64_t bias = 0;     ///< offset of b, behind W
  std::int64_t end = 0;      ///< one past b and the padding behind it
};

/// A part of a layer's weight gradient, made by one matrix product: rows [first, first + count) of W.
struct GradientPiece {
  int layer = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
};

/// A range of the flat gradient that is summed over ranks in one go, and the pieces that fill it.
struct GradientBucket {
  std::int64_t offset = 0;
  std::int64_t count = 0;
  std::vector<GradientPiece> pieces;
};

/// The layer whose weight gradient comes last in a pass, behind the first layer's: its sum over ranks can
/// then hide behind the next step's first product, which the first layer's could not.
constexpr int late_layer = 1;

/// A sum over ranks takes processors from the products beside it, and is waited for in the end: a few large
/// ones cost less than many. On two H200s a step of the default network in tf32 took 19.4 ms with such
/// buckets, 19.6 with those of a quarter, 19.9 with an eighth (18.5 on one).
constexpr std::int64_t usual_bucket_elements = 64 << 20;

/// Where every parameter of the network lies in flat buffers (weights, gradients, optimizer state), and in
/// which buckets backward hands the gradients over: last layer first, but for the late layer, and high rows
/// before low ones. Each bucket is a contiguous range; one of several layers ends with its lowest.
class ParameterLayout {
 public:
  /// `neurons`: input first, at least two entries, each at least 1. A bucket closes at half of
  /// `bucket_elements`; a layer larger than that is cut by rows, so that its sum begins before its last
  /// product.
  explicit ParameterLayout(const std::vector<std::int64_t>& neurons,
                           std::int64_t bucket_elements = usual_bucket_elements);

  const std::vector<LinearLayer>& layers() const { return layers_; }
  /// In the order in which backward fills them.
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  /// Elements of a flat buffer, padding counted.
  std::int64_t size() const { return layers_.back().end; }
  /// Weights and biases.
  std::int64_t parameter_count() const { return parameter_count_; }

 private:
  void plan_buckets(std::int64_t bucket_elements);

  std::vector<LinearLayer> layers_;
  std::vector<GradientBucket> buckets_;
  std::int64_t parameter_count_ = 0;
};

}  // namespace egt
