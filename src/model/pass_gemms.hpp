#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "egt/device/device.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/parameter_layout.hpp"

/// Private to the trainer: the GEMMs of a pass.
namespace egt::mlp {

constexpr std::int64_t fp8_multiple = 16;  ///< every dimension of an fp8 GEMM is a multiple of this

/// Ok, or why this network and number of samples per rank do not allow fp8 GEMMs.
Status check_fp8_shapes(const std::vector<std::int64_t>& neurons, std::int64_t samples);

/// Prepares the operands of a pass's GEMMs on one stream and describes each GEMM. In fp8 the operands are
/// copies quantized in every pass, with one scale per tensor: weights and activations in f8, gradients in
/// f8_e5m2. The backward pass needs transposed copies, because fp8 GEMMs compute A B^T only. In the other
/// precisions operands are used unchanged. Passes must not overlap. Layers are given by index.
class PassGemms {
 public:
  PassGemms(Device& device, const ParameterLayout& layout, Stream& stream)
      : device_(device), layout_(layout), stream_(stream) {}

  /// Allocates memory if the precisions include fp8.
  Status allocate(const MlpConfig& config);

  /// output (samples x outputs) = input W^T.
  Result<Gemm> forward(std::size_t layer, Precision precision, const ParameterSet& parameters,
                       MatrixView input, MatrixView output);
  /// Call when backward reaches `layer`. `gradient`: that of the layer's outputs, samples x outputs.
  Status take_gradient(std::size_t layer, Precision precision, MatrixView gradient);
  /// input_gradient (samples x inputs) = gradient W.
  Gemm input_gradient(std::size_t layer, Precision precision, const ParameterSet& parameters,
                      MatrixView gradient, MatrixView input_gradient) const;
  /// d (rows of the piece x inputs) = gradient^T input, for the piece's rows of W. Call after take_gradient
  /// of this layer and before take_gradient of the layer two below.
  Gemm weight_gradient(const GradientPiece& piece, Precision precision, MatrixView gradient, MatrixView input,
                       MatrixView d) const;

 private:
  /// Scales per tensor and layer; gradients are indexed by `layer % 2`.
  enum class Scaled { input, weights, gradient };
  float* scale(Scaled what, std::size_t layer) const;
  MatrixView transposed_input(std::size_t layer, std::int64_t samples) const;
  MatrixView transposed_gradient(std::size_t layer, std::int64_t samples) const;

  Device& device_;
  const ParameterLayout& layout_;
  Stream& stream_;
  Buffer copy_, weights_copy_;            // quantized operands of one GEMM
  std::vector<Buffer> inputs_, weights_;  // transposed, one per layer
  std::array<Buffer, 2> gradients_;       // transposed
  Buffer scales_;                         // fp32, three per layer
};

}  // namespace egt::mlp
