#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "egt/device/device.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/parameter_layout.hpp"

/// Private to the trainer: the matrix products of a pass.
namespace egt::mlp {

constexpr std::int64_t fp8_multiple = 16;  ///< of every size of such products

/// Ok, or why products of fp8 cannot be made of this network and these samples of a rank.
Status check_fp8_shapes(const std::vector<std::int64_t>& neurons, std::int64_t samples);

/// Makes the operands of a pass's products ready, on one stream, and describes each product. In fp8 these are
/// quantized copies, with a scale a tensor, made anew in every pass: weights and activations f8, gradients
/// f8_e5m2; transposed ones for backward, since such products are only made as A B^T. In the other precisions
/// operands are taken as they are. One pass after the other; a layer is given by its number.
class PassProducts {
 public:
  PassProducts(Device& device, const ParameterLayout& layout, Stream& stream)
      : device_(device), layout_(layout), stream_(stream) {}

  /// Takes memory where the precisions have fp8.
  Status allocate(const MlpConfig& config);

  /// output (samples x outputs) = input W^T.
  Result<Gemm> forward(std::size_t layer, Precision precision, const ParameterSet& parameters,
                       MatrixView input, MatrixView output);
  /// Backward has come to `layer`, the gradient of whose outputs is `gradient`, samples x outputs.
  Status take_gradient(std::size_t layer, Precision precision, MatrixView gradient);
  /// input_gradient (samples x inputs) = gradient W.
  Gemm input_gradient(std::size_t layer, Precision precision, const ParameterSet& parameters,
                      MatrixView gradient, MatrixView input_gradient) const;
  /// d (the piece's rows x inputs) = gradient^T input, of these rows: once the gradient was taken, and before
  /// that of the layer but one below is.
  Gemm weight_gradient(const GradientPiece& piece, Precision precision, MatrixView gradient, MatrixView input,
                       MatrixView d) const;

 private:
  /// Of the tensors of a layer, and of gradients by `layer % 2`.
  enum class Scaled { input, weights, gradient };
  float* scale(Scaled what, std::size_t layer) const;
  MatrixView transposed_input(std::size_t layer, std::int64_t samples) const;
  MatrixView transposed_gradient(std::size_t layer, std::int64_t samples) const;

  Device& device_;
  const ParameterLayout& layout_;
  Stream& stream_;
  Buffer copy_, weights_copy_;            // of the operands of one product
  std::vector<Buffer> inputs_, weights_;  // transposed, a layer each
  std::array<Buffer, 2> gradients_;       // transposed
  Buffer scales_;                         // fp32, three a layer
};

}  // namespace egt::mlp
