#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "egt/core/digest.hpp"
#include "egt/device/device.hpp"
#include "egt/device/dnn.hpp"
#include "egt/ranks/communicator.hpp"
#include "loadtest/convnet/network_plan.hpp"
#include "model/pass_tensor.hpp"

namespace egt {

struct ConvNetConfig {
  NetworkKind kind = NetworkKind::simple_cnn;
  std::int64_t batch = 16;    ///< images of this rank per step
  std::int64_t pixels = 224;  ///< height and width of an image, in pixels
  std::int64_t classes = 1000;
  Precision precision = Precision::fp32;
  bool trains = true;  ///< false: forward passes only, with running statistics
  bool sums = false;   ///< gradients are all-reduced over the communicator's ranks
  double learning_rate = 0.01;
  float momentum = 0.9f;
  std::uint64_t seed = 0;
};

/// A convolutional network on one device: fp32 master weights, forward and backward in one precision,
/// cross-entropy loss, and SGD with momentum over all parameters at once. If gradients are all-reduced, this
/// runs on its own stream and overlaps with the backward pass. Calls enqueue and return. Not thread-safe.
class ConvNet {
 public:
  /// Allocates memory and initializes the weights (He et al., 2015, uniform) identically on all ranks. All
  /// arguments must outlive the network. Errors: invalid_argument if the images are too small, unsupported if
  /// the library lacks the precision.
  static Result<std::unique_ptr<ConvNet>> create(Device& device, Dnn& dnn, Communicator& communicator,
                                                 const ConvNetConfig& config);
  ~ConvNet();

  /// The input buffers of a step. Fill them on `stream()` after the previous step and before the next one is
  /// enqueued. Images are fp32 NHWC, batch x pixels x pixels x 3. Each image has one label below `classes`.
  VectorView images() const;
  std::int32_t* labels() const;
  Stream& stream();

  /// Enqueues forward, loss, backward, all-reduce and update. Requires ConvNetConfig::trains.
  Status enqueue_training();
  /// Enqueues forward with running statistics, and the loss. Requires a network that does not train.
  Status enqueue_inference();
  /// Results of the last pass in device memory, one per image: its loss, and how many classes have a larger
  /// logit than its label.
  const float* losses() const;
  const std::int32_t* larger() const;

  /// Enqueues a known-answer pass on the current images and labels with the initial weights, outside the
  /// training state. `answers`: device memory for one digest per tensor of `replay_tensors`, on `stream()`.
  Status enqueue_replay(Digest* answers);
  /// Every tensor that a replay digests, in the order of computation.
  std::vector<PassTensor> replay_tensors() const;
  /// Injects faults into these tensors (activation, weight_gradient) in every pass enqueued from now on.
  void set_tensor_faults(std::vector<TensorFault> tensor_faults);
  /// Example: "activation of layer2.0.conv1".
  std::string name_of(const PassTensor& tensor) const;

  /// Master weights and momentum, as words that may be digested or flipped on `stream()`.
  WordsView weights() const;
  WordsView velocity() const;
  /// Running means and variances of all batch normalizations, as words.
  WordsView statistics() const;
  /// The gradient of the last training step or replay, in the flat layout of the weights.
  WordsView gradient() const;
  const NetworkPlan& plan() const;
  /// Why passes are enqueued operation by operation instead of being captured (see Device::capture). Empty if
  /// they are captured.
  const std::string& capture_failure() const;
  /// Floating-point operations of the GEMMs and convolutions of one pass.
  double flops() const;
  /// Waits up to `timeout_seconds` for both streams to drain, after the communicator was aborted.
  Status give_up(double timeout_seconds);

 private:
  struct Impl;
  explicit ConvNet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace egt
