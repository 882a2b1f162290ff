#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "egt/core/digest.hpp"
#include "egt/device/device.hpp"
#include "egt/device/dnn.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/convnet/network_plan.hpp"
#include "model/pass_tensor.hpp"

namespace egt {

struct ConvNetConfig {
  NetworkKind kind = NetworkKind::simple_cnn;
  std::int64_t batch = 16;    ///< images of this rank in a step
  std::int64_t pixels = 224;  ///< of a side
  std::int64_t classes = 1000;
  Precision precision = Precision::fp32;
  bool trains = true;  ///< false: forward passes only, with running statistics
  bool sums = false;   ///< gradients are summed over the communicator's ranks
  double learning_rate = 0.01;
  float momentum = 0.9f;
  std::uint64_t seed = 0;
};

/// A convolutional network on one device: fp32 master weights, forward and backward in one precision,
/// cross-entropy loss, SGD with momentum over all parameters at once. Where gradients are summed, the sums of
/// one bucket run on a stream of their own while backward goes on. Calls enqueue and return. One thread.
class ConvNet {
 public:
  /// Takes memory and initializes the weights (He et al., 2015, uniform), the same on all ranks. All outlive
  /// the network. invalid_argument: images that are too small; unsupported: a precision that the library has
  /// not.
  static Result<std::unique_ptr<ConvNet>> create(Device& device, Dnn& dnn, Communicator& communicator,
                                                 const ConvNetConfig& config);
  ~ConvNet();

  /// Where a step's input goes, before it is enqueued and behind the one before, on `stream()`: images NHWC
  /// in fp32, batch x pixels x pixels x 3; one label each, below `classes`.
  VectorView images() const;
  std::int32_t* labels() const;
  Stream& stream();

  /// Of a network that trains: forward, loss, backward, sum, update.
  Status enqueue_training();
  /// Of one that does not: forward with running statistics, and the loss.
  Status enqueue_inference();
  /// Of the last pass, in device memory, one an image: its loss; how many classes got a larger logit than its
  /// own.
  const float* losses() const;
  const std::int32_t* larger() const;

  /// A known-answer pass: the images and labels that are there now and the initial weights, outside of the
  /// training state. `answers`: device memory for one digest a tensor of `replay_tensors`, on `stream()`.
  Status enqueue_replay(Digest* answers);
  /// Every tensor whose digest a replay gives, in the order of their making.
  std::vector<PassTensor> replay_tensors() const;
  /// Changes these tensors (activation, weight_gradient) on purpose in every pass enqueued from now on.
  void set_tampering(std::vector<Tampering> tampering);
  /// "activation of layer2.0.conv1".
  std::string name_of(const PassTensor& tensor) const;

  /// Master weights, and the momentum; each as words that may be digested or flipped on `stream()`.
  WordsView weights() const;
  WordsView velocity() const;
  /// Running means and variances of all batch normalizations, likewise.
  WordsView statistics() const;
  /// The gradient of the last training step or replay, flat as the weights.
  WordsView gradient() const;
  const NetworkPlan& plan() const;
  /// Why passes are not captured (see Device::capture) but enqueued one operation after the other; empty:
  /// they are captured.
  const std::string& capture_failure() const;
  /// Products a pass, floating-point operations.
  double flops() const;
  /// After the communicator was given up: waits until nothing is enqueued, at most `timeout_seconds`.
  Status give_up(double timeout_seconds);

 private:
  struct Impl;
  explicit ConvNet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace egt
