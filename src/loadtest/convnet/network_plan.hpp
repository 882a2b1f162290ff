#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "egt/device/dnn.hpp"

namespace egt {

/// simple_cnn: three 3 x 3 convolutions with 32, 64 and 128 outputs, then 512 hidden neurons with ReLU. Each
/// convolution has bias, ReLU and 2 x 2 max pooling. resnet18: He et al., "Deep residual learning for image
/// recognition", 2015, table 1, with batch normalization; 1 x 1 convolutions if a block changes shape.
enum class NetworkKind { simple_cnn, resnet18 };
const char* to_string(NetworkKind kind);

enum class LayerKind { convolution, batch_norm, pooling, linear };

/// One step of the forward pass, from tensor x to tensor y. Offsets count elements of the flat parameters.
struct NetworkLayer {
  LayerKind kind = LayerKind::convolution;
  std::string name;  ///< as in PyTorch's networks: "layer2.0.conv1"
  int x = 0, y = 0;
  int skip = -1;      ///< index of the tensor that is added to y before its ReLU; -1: none
  bool relu = false;  ///< applies y = max(0, y) at the end of the layer
  Window window;      ///< window of a convolution or pooling
  PoolingKind pooling = PoolingKind::maximum;
  std::int64_t weights = 0, weight_count = 0;  ///< filter KRSC; W row-major outputs x inputs; or scale
  std::int64_t bias = 0, bias_count = 0;       ///< bias, or shift of a batch normalization; count 0: none
  std::int64_t statistics = 0;  ///< offset of a batch normalization's running statistics, in elements

  bool has_parameters() const { return weight_count > 0; }
  /// One past the layer's parameters and their padding.
  std::int64_t end() const;
};

/// A convolutional network on square images. Tensors and layers are in the order of the forward pass.
struct NetworkPlan {
  std::vector<ImageShape>
      tensors;  ///< first: the images; last: the logits, 1 x 1 pixels of `classes` channels
  std::vector<NetworkLayer> layers;
  std::int64_t parameters = 0;  ///< elements of the flat parameters, including padding
  std::int64_t statistics = 0;  ///< elements of all means; variances have as many

  const ImageShape& x_of(const NetworkLayer& layer) const {
    return tensors[static_cast<std::size_t>(layer.x)];
  }
  const ImageShape& y_of(const NetworkLayer& layer) const {
    return tensors[static_cast<std::size_t>(layer.y)];
  }
  /// Floating-point operations of the GEMMs and convolutions of a forward pass, or of forward and backward.
  /// The backward pass computes no gradient of the images.
  double flops(bool with_backward) const;
};

/// Min image side in pixels. Smaller images leave no pixels for the last layers.
std::int64_t min_pixels(NetworkKind kind);

/// `images`: images x pixels x pixels x 3, with at least `min_pixels` pixels.
NetworkPlan plan_network(NetworkKind kind, const ImageShape& images, std::int64_t classes);

}  // namespace egt
