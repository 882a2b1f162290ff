#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "egt/device/device.hpp"

namespace egt {

/// One GEMM of a training step.
struct StepGemm {
  enum class Part { forward, input_gradient, weight_gradient };
  Part part = Part::forward;
  std::size_t layer = 0;             ///< layer of the weights, from 0
  std::int64_t m = 0, n = 0, k = 0;  ///< see Gemm

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n * k); }
};

/// The GEMMs of a network on a batch, in the order of a step. `neurons`: input layer first.
std::vector<StepGemm> products_of_step(const std::vector<std::int64_t>& neurons, std::int64_t batch);
/// For example "forward 2, 128x384x512": layer from 1, then m x n x k.
std::string describe(const StepGemm& product);

/// The GEMMs of one step alone: same shapes, types, order and data, and nothing between them. Activations are
/// ReLU outputs, half of them 0; fp8 operands are quantized once. Each layer has its own memory. Not for
/// int8.
class StepGemms {
 public:
  /// Allocates and initializes memory. Blocks until done.
  static Result<StepGemms> make(Device& device, const std::vector<std::int64_t>& neurons, std::int64_t batch,
                                Precision precision);

  const std::vector<StepGemm>& products() const { return products_; }
  /// Enqueues one GEMM, or all. The stream's work must end before this object does.
  Status enqueue(std::size_t index, Stream& stream) const;
  Status enqueue_all(Stream& stream) const;

 private:
  StepGemms(Device& device, Precision precision) : device_(&device), precision_(precision) {}

  struct Matrix {
    Buffer buffer;
    MatrixView view;
    Buffer quantized, scale;      ///< fp8: memory of `copy` and `transposed`, and their scale
    MatrixView copy, transposed;  ///< see Quantization
  };
  Status add(std::vector<Matrix>& matrices, ElementType type, std::int64_t rows, std::int64_t columns,
             Stream& stream);
  Status rectify(Stream& stream);
  Status quantize(std::vector<Matrix>& matrices, ElementType type, Stream& stream);

  Device* device_;
  Precision precision_;
  std::vector<StepGemm> products_;
  /// By layer; weights and gradients lie between two layers.
  std::vector<Matrix> activations_, differences_, weights_, gradients_;
};

}  // namespace egt
