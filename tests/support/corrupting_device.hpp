#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "egt/core/flip.hpp"
#include "egt/core/math/half.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {

/// An error that a device makes in every such operation, so that all devices of a model agree.
enum class SystematicError {
  none,
  middle_element,    ///< in a GEMM's result: 0.1 % off
  middle_bit,        ///< the same element, bit 20 of fp32
  no_epilogue,       ///< bias and ReLU, if fused with a GEMM
  no_activation,     ///< bias, ReLU and transcendental chain
  no_bias,           ///< in the activation
  no_bias_gradient,  ///< zeros
  no_loss_gradient,  ///< the outputs stay unchanged
  no_mask,           ///< in the activation's gradient
  no_update,         ///< of the weights
  wrong_decay,       ///< of Adam's second moment
  wrong_copy,        ///< of the weights in the precision of the GEMMs: one word, once
};

/// Forwards to the real device. While it is broken, it changes the same words of every GEMM's result.
class CorruptingDevice : public ForwardingDevice {
 public:
  CorruptingDevice(std::unique_ptr<Device> real, const Flip& flip,
                   SystematicError error = SystematicError::none)
      : ForwardingDevice(std::move(real)), flip_(flip), error_(error) {}

  /// Applies to GEMMs enqueued after this call.
  void set_broken(bool broken) { broken_ = broken; }

  /// After the next copy of so many bytes, a word of its result is changed; before it, one of its source.
  void spoil_next_copy(std::size_t bytes) { spoilt_bytes_ = bytes; }
  void spoil_before_next_copy(std::size_t bytes) { spoilt_source_bytes_ = bytes; }

 protected:
  Status enqueue_checked(const Operation& operation, Stream& stream) override {
    return std::visit([&](const auto& call) { return change(call, stream); }, operation);
  }

 private:
  Status change(const auto& call, Stream& stream) { return ForwardingDevice::enqueue_checked(call, stream); }
  Status change(const Copy& call, Stream& stream) {
    const auto& [to, from, bytes] = call;
    const auto spoil = [&, size = bytes](const void* data) {
      auto* const words = static_cast<std::uint32_t*>(const_cast<void*>(data));
      return flip({words, size / sizeof(std::uint32_t)}, {.mask = 1u << 20}, stream);
    };
    if (bytes == spoilt_source_bytes_) EGT_TRY(spoil(from));
    EGT_TRY(ForwardingDevice::enqueue_checked(call, stream));
    if (bytes == spoilt_bytes_) EGT_TRY(spoil(to));
    for (std::size_t* one : {&spoilt_bytes_, &spoilt_source_bytes_})
      if (bytes == *one) *one = 0;
    return {};
  }
  Status change(const Gemm& gemm, Stream& stream) {
    Gemm made = gemm;
    if (error_ == SystematicError::no_epilogue) made.relu_bias = {};
    EGT_TRY(ForwardingDevice::enqueue_checked(made, stream));
    if (error_ == SystematicError::middle_element || error_ == SystematicError::middle_bit)
      EGT_TRY(change_middle(gemm.d, stream));
    if (!broken_) return {};
    const std::size_t bytes = static_cast<std::size_t>(gemm.d.columns) * size_of(gemm.d.type);
    const WordsView first_row{static_cast<std::uint32_t*>(gemm.d.data), bytes / sizeof(std::uint32_t)};
    return flip(first_row, flip_, stream);
  }
  Status change(const Activation& call, Stream& stream) {
    Activation made = call;
    if (error_ == SystematicError::no_activation)
      return made.extreme.digest ? set_zero(made.extreme.digest, sizeof(Digest), stream) : Status();
    if (error_ == SystematicError::no_bias) {
      const auto bytes = static_cast<std::size_t>(made.h.columns) * sizeof(float);
      if (zeros_.bytes() < bytes) {
        EGT_TRY_ASSIGN(zeros_, allocate(bytes));
      }
      EGT_TRY(set_zero(zeros_.data(), bytes, stream));
      made.bias = zeros_.as<float>();
    }
    return ForwardingDevice::enqueue_checked(made, stream);
  }
  Status change(const LossGradient& call, Stream& stream) {
    if (error_ == SystematicError::no_loss_gradient) return set_zero(call.loss, sizeof *call.loss, stream);
    return ForwardingDevice::enqueue_checked(call, stream);
  }
  Status change(const ActivationGradient& call, Stream& stream) {
    if (error_ == SystematicError::no_mask) return {};
    EGT_TRY(ForwardingDevice::enqueue_checked(call, stream));
    if (error_ != SystematicError::no_bias_gradient) return {};
    return set_zero(call.bias_gradient.data, call.bias_gradient.bytes(), stream);
  }
  Status change(const OptimizerStep& call, Stream& stream) {
    OptimizerStep made = call;
    if (auto* const adam = std::get_if<math::Adam>(&made.rule)) {
      if (error_ == SystematicError::wrong_decay) adam->beta2 = 0.99f;
      return ForwardingDevice::enqueue_checked(made, stream);
    }
    if (error_ == SystematicError::no_update) return {};
    EGT_TRY(ForwardingDevice::enqueue_checked(made, stream));
    constexpr int struck = 9;  // odd: on one rank, each update of the second state precedes that of the first
    if (error_ != SystematicError::wrong_copy || updates_++ != struck) return {};
    return flip({static_cast<std::uint32_t*>(call.range.compute_copy.data), 2}, {.mask = 1u << 4}, stream);
  }

  /// On the host device, after the GEMM.
  Status change_middle(const MatrixView& d, Stream& stream) {
    EGT_TRY(synchronize(stream, 60));
    const std::int64_t middle = d.rows / 2 * d.leading + d.columns / 2;
    const auto change = [&]<typename T>(T* element) {
      const auto value = static_cast<double>(Element<T>::load(*element));
      const float flipped = float_from_bits(float_bits(static_cast<float>(value)) ^ 1u << 20);
      *element = convert_element<T>(error_ == SystematicError::middle_bit ? double{flipped} : 1.001 * value);
    };
    if (d.type == ElementType::f64) change(static_cast<double*>(d.data) + middle);
    if (d.type == ElementType::f32) change(static_cast<float*>(d.data) + middle);
    if (d.type == ElementType::f16) change(static_cast<Half*>(d.data) + middle);
    if (d.type == ElementType::bf16) change(static_cast<Bfloat16*>(d.data) + middle);
    return {};
  }

  const Flip flip_;
  const SystematicError error_;
  bool broken_ = false;
  std::size_t spoilt_bytes_ = 0, spoilt_source_bytes_ = 0;
  int updates_ = 0;
  Buffer zeros_;
};

}  // namespace egt::test
