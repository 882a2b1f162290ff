#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "egt/device/device.hpp"

namespace egt {

/// One product of a training step.
struct StepProduct {
  enum class Part { forward, input_gradient, weight_gradient };
  Part part = Part::forward;
  std::size_t layer = 0;             ///< whose weights, from 0
  std::int64_t m = 0, n = 0, k = 0;  ///< see Gemm

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n * k); }
};

/// Those of a network on a batch, in the order in which a step makes them. `neurons`: input first.
std::vector<StepProduct> products_of_step(const std::vector<std::int64_t>& neurons, std::int64_t batch);
/// "forward 2, 128x384x512": the layer from 1, m x n x k.
std::string describe(const StepProduct& product);

/// The products of one step, bare: the same shapes, types, order and data (activations behind a ReLU, of
/// which half are 0; of fp8 quantized once), each layer in memory of its own, nothing between them. Not for
/// int8.
class StepProducts {
 public:
  /// Takes memory and makes it ready; waits.
  static Result<StepProducts> make(Device& device, const std::vector<std::int64_t>& neurons,
                                   std::int64_t batch, Precision precision);

  const std::vector<StepProduct>& products() const { return products_; }
  /// One of them; all of them. The stream's work goes before this does.
  Status enqueue(std::size_t index, Stream& stream) const;
  Status enqueue_all(Stream& stream) const;

 private:
  StepProducts(Device& device, Precision precision) : device_(&device), precision_(precision) {}

  struct Matrix {
    Buffer buffer;
    MatrixView view;
    Buffer quantized, scale;      ///< fp8: memory of what follows, and its scale
    MatrixView copy, transposed;  ///< see Quantization
  };
  Status add(std::vector<Matrix>& matrices, ElementType type, std::int64_t rows, std::int64_t columns,
             Stream& stream);
  Status rectify(Stream& stream);
  Status quantize(std::vector<Matrix>& matrices, ElementType type, Stream& stream);

  Device* device_;
  Precision precision_;
  std::vector<StepProduct> products_;
  /// Of each layer's neurons, and of the weights between two.
  std::vector<Matrix> activations_, differences_, weights_, gradients_;
};

}  // namespace egt
