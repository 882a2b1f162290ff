#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "egt/device/dnn.hpp"

namespace egt {

/// simple_cnn: three convolutions of 3 x 3 with 32, 64 and 128 outputs, each with bias, ReLU and maximum
/// pooling by 2, then 512 hidden neurons with ReLU. resnet18: He et al., "Deep residual learning for image
/// recognition", 2015, table 1, with batch normalization; 1 x 1 convolutions where a block changes its shape.
enum class NetworkKind { simple_cnn, resnet18 };
const char* to_string(NetworkKind kind);

enum class LayerKind { convolution, batch_norm, pooling, linear };

/// One step of the forward pass, from tensor x to tensor y. Offsets count elements of the flat parameters.
struct NetworkLayer {
  LayerKind kind = LayerKind::convolution;
  std::string name;  ///< as in PyTorch's networks: "layer2.0.conv1"
  int x = 0, y = 0;
  int skip = -1;      ///< the tensor that is added to y before its ReLU; -1: none
  bool relu = false;  ///< y = max(0, y), as the last of this layer's work
  Window window;      ///< of a convolution or a pooling
  PoolingKind pooling = PoolingKind::maximum;
  std::int64_t weights = 0, weight_count = 0;  ///< filter KRSC; W row-major outputs x inputs; scale
  std::int64_t bias = 0, bias_count = 0;       ///< bias, or a batch normalization's shift; count 0: none
  std::int64_t statistics = 0;  ///< of a batch normalization: where its running statistics begin, elements

  bool has_parameters() const { return weight_count > 0; }
  /// One past its parameters and the padding behind them.
  std::int64_t end() const;
};

/// A network of convolutions on square images, as tensors and layers in the order of the forward pass.
struct NetworkPlan {
  std::vector<ImageShape>
      tensors;  ///< 0: the images; the last: the logits, 1 x 1 pixels of `classes` channels
  std::vector<NetworkLayer> layers;
  std::int64_t parameters = 0;  ///< elements of the flat parameters, padding counted
  std::int64_t statistics = 0;  ///< elements of all means, and of all variances

  const ImageShape& x_of(const NetworkLayer& layer) const {
    return tensors[static_cast<std::size_t>(layer.x)];
  }
  const ImageShape& y_of(const NetworkLayer& layer) const {
    return tensors[static_cast<std::size_t>(layer.y)];
  }
  /// Floating-point operations of its products: of a forward pass; of one with backward, which makes no
  /// gradient of the images.
  double flops(bool with_backward) const;
};

/// Images of so many pixels a side at least; smaller ones leave nothing for the last layers.
std::int64_t least_pixels(NetworkKind kind);

/// `images`: images x pixels x pixels x 3, at least `least_pixels`.
NetworkPlan plan_network(NetworkKind kind, const ImageShape& images, std::int64_t classes);

}  // namespace egt
