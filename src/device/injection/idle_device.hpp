#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <utility>

#include "device/injection/forwarding_device.hpp"

namespace egt {

/// A device that from some moment on gets no work, though nobody is told: whatever computes is left out, and
/// its results are what lay there before. Memory, copies, patterns and their checks, digests, flags and
/// streams stay as they are, so that the device still looks like one that is used.
class IdleDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  /// For all that is enqueued from now on. Any thread.
  void make_idle() { idle_ = true; }

  Status add(VectorView sum, VectorView term, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::add(sum, term, stream);
  }
  Status gemm(const Gemm& gemm, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::gemm(gemm, stream);
  }
  Status cast(VectorView to, VectorView from, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::cast(to, from, stream);
  }
  Status randomize(VectorView out, const RandomSequence& sequence, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::randomize(out, sequence, stream);
  }
  Status activate(MatrixView h, const float* bias, int extreme_iterations, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::activate(h, bias, extreme_iterations, stream);
  }
  Status extreme(VectorView values, int iterations, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::extreme(values, iterations, stream);
  }
  Status multiply_vector(MatrixView m, bool transposed, bool absolute, const double* x, double* y,
                         Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::multiply_vector(m, transposed, absolute, x, y, stream);
  }
  Status activation_gradient(MatrixView gradient, MatrixView h, VectorView bias_gradient,
                             Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::activation_gradient(gradient, h, bias_gradient, stream);
  }
  Status loss_gradient(const LossGradient& call, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::loss_gradient(call, stream);
  }
  Status sgd_step(const ParameterRange& range, float* velocity, const math::Sgd& rule,
                  Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::sgd_step(range, velocity, rule, stream);
  }
  Status adam_step(const ParameterRange& range, float* first, float* second, const math::Adam& rule,
                   Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::adam_step(range, first, second, rule, stream);
  }
  Status sine_exponential(WordsView words, int iterations, Digest* digest, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::sine_exponential(words, iterations, digest, stream);
  }
  Status voxelize(const Voxelization& call, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::voxelize(call, stream);
  }
  Status fuse(const StreamFusion& call, Stream& stream) override {
    return idle_ ? Status() : ForwardingDevice::fuse(call, stream);
  }

 private:
  std::atomic<bool> idle_{false};
};

}  // namespace egt
