#pragma once

#include <cmath>
#include <cstdint>

#include "egt/core/math/half.hpp"
#include "egt/core/math/hd.hpp"
#include "egt/core/pattern.hpp"

/// Per-element formulas of the load: the host loops over them, kernels launch them.
namespace egt::math {

/// One iteration of the seeds' transcendental chain (sin cos tan atan exp log sqrt pow sinh cosh). For any v
/// up to +-3e38 (1.1 v must be finite) the result is in [0, 0.4).
EGT_HD float extreme_turn(float v) {
  v = sinf(v * 1.1f) * cosf(v * 0.9f);
  v = tanf(v * 0.1f) + atanf(v * 2.0f);
  v = expf(v * 0.01f) - logf(fabsf(v * 10.0f) + 1.0f);
  v = sqrtf(fabsf(v)) * powf(fabsf(v) + 0.1f, 0.33f);
  return sinhf(v * 0.1f) * coshf(v * 0.1f);
}

/// Start phase in [0, 1) of the chain of the element at this position. It gives chains different operands in
/// every iteration, whatever the elements hold. A multiple of 2^-23, as is `phase_advance`: sums are exact,
/// and two phases never become equal.
EGT_HD float extreme_phase(std::uint64_t place) {
  const std::uint32_t x =
      static_cast<std::uint32_t>(place) ^ static_cast<std::uint32_t>(place >> 32) * 0x9E3779B1u;
  return static_cast<float>(lowbias32(x) >> 9) * (1.0f / 8388608.0f);
}

/// About the golden ratio, whose multiples fill [0, 1) evenly.
constexpr float phase_advance = 5184443.0f / 8388608.0f;

/// The phase of the next iteration.
EGT_HD float next_phase(float phase) {
  phase += phase_advance;
  return phase >= 1.0f ? phase - 1.0f : phase;
}

/// Injected fault: flips the bits of `mask` in the result of iteration `turn`, from 0.
struct ChainFault {
  int turn = -1;
  std::uint32_t mask = 0;
};

struct ExtremeChain {
  float mean = 0;          ///< of all iterations' values, in [0, 0.4); 0 if there are none
  std::uint32_t bits = 0;  ///< of all iterations' values: any single wrong bit changes it
};

/// A chain of `iterations` iterations. It contracts to a fixed point, which would hide an error in an early
/// iteration. So each iteration starts from another phase, and its bits stay in the result.
EGT_HD ExtremeChain extreme(float start, float phase, int iterations, const ChainFault& fault = {}) {
  float sum = 0.0f, v = start;
  std::uint32_t bits = 0;
  for (int i = 0; i < iterations; ++i) {
    v = extreme_turn(v + phase);
    v = float_from_bits(float_bits(v) ^ (i == fault.turn ? fault.mask : 0u));
    sum += v;
    bits = bits * 31u + float_bits(v);
    phase = next_phase(phase);
  }
  return {iterations > 0 ? sum / static_cast<float>(iterations) : 0.0f, bits};
}

/// The sum of two elements of a gradient type, rounded once to that type.
template <typename T>
EGT_HD T add(T a, T b) {
  return Element<T>::store(Element<T>::load(a) + Element<T>::load(b));
}

/// The fp64 sum of some terms, and which results of type T are valid for it. Addition in T rounds every time,
/// in an order that the library chooses. An all-reduce may thus be off by one rounding of the sum of
/// magnitudes per addition. For two terms, only one result is valid.
class SumOfTerms {
 public:
  EGT_HD void add(float term) {
    value_ += double{term};
    magnitude_ += term < 0 ? -double{term} : double{term};
    ++terms_;
  }
  /// The sum, rounded to T.
  template <typename T>
  EGT_HD T nearest() const {
    return Element<T>::store(static_cast<float>(value_));
  }
  /// True if `result` is a valid sum. A sum below 2^-126 may have been flushed to 0. A non-finite result
  /// needs a non-finite term or an overflow of T; a non-finite term excludes finite results.
  template <typename T>
  EGT_HD bool allows(T result) const {
    constexpr double overflow = 0x1.FEp127, smallest_normal = 0x1p-126;  // of both types
    const double got = double{Element<T>::load(result)};
    const bool is_finite = got - got == 0;
    if (!(magnitude_ - magnitude_ == 0)) return !is_finite;
    if (!is_finite) return magnitude_ >= overflow;
    const double off = got < value_ ? value_ - got : got - value_;
    if (off <= smallest_normal || got == double{Element<T>::load(nearest<T>())}) return true;
    constexpr double rounding = sizeof(T) == sizeof(float) ? 0x1p-24 : 0x1p-8;
    const double all = rounding * (terms_ - 1);
    return terms_ > 2 && off * (1 - all) <= all * magnitude_;
  }

 private:
  double value_ = 0, magnitude_ = 0;
  int terms_ = 0;
};

constexpr float extreme_weight = 1.0f / 1024.0f;

/// relu(z). A NaN stays a NaN. T: float or double.
template <typename T>
EGT_HD T activation(T z) {
  return z > T(0) || z != z ? z : T(0);
}

template <typename T>
struct ExtremeActivation {
  T h;
  std::uint32_t bits;  ///< of its chain; 0 for a NaN, which has no chain
};

/// h = relu(z) +- 2^-10 extreme(|z|). The chain is in the data path. The sign of h still shows if z is
/// positive (else the chain is subtracted), which is the mask of the backward pass. A NaN stays a NaN. T:
/// float, or double (the chain is still computed in fp32). `iterations`: above 0.
template <typename T>
EGT_HD ExtremeActivation<T> extreme_activation(T z, float phase, int iterations,
                                               const ChainFault& fault = {}) {
  if (z != z) return {z, 0};
  const ExtremeChain chain = extreme(fabsf(static_cast<float>(z)), phase, iterations, fault);
  const T term = static_cast<T>(extreme_weight * chain.mean);
  return {z > T(0) ? z + term : -term, chain.bits};
}

/// The gradient through the activation, with the chain as identity: h > 0 passes it. A NaN in either stays.
template <typename T>
EGT_HD T activation_gradient(T gradient, T h) {
  if (h != h) return h;
  return h > T(0) ? gradient : (gradient != gradient ? gradient : T(0));
}

/// The fixed random map that the network learns: output j is an offset plus `target_taps` signed inputs.
constexpr int target_taps = 8;
constexpr float target_tap_weight = 0.25f;

struct TargetTap {
  std::uint32_t input;  ///< index of the input
  float weight;         ///< +- target_tap_weight
};

EGT_HD TargetTap target_tap(std::uint64_t seed, std::uint32_t output, int tap, std::uint32_t inputs) {
  const std::uint64_t h =
      mix64(seed ^ (std::uint64_t{output} << 8 | static_cast<std::uint32_t>(tap)) * 0x9E3779B97F4A7C15ull);
  return {static_cast<std::uint32_t>(((h >> 32) * inputs) >> 32),
          (h & 1) ? target_tap_weight : -target_tap_weight};
}

/// In +-[0.5, 1.5): dominates the initial loss, and is learnt fast with any layers.
EGT_HD float target_offset(std::uint64_t seed, std::uint32_t output) {
  const std::uint64_t h = mix64(seed + 0x5851F42D4C957F2Dull * (output + 1ull));
  const float magnitude = 0.5f + static_cast<float>(h >> 40) * (1.0f / 16777216.0f);
  return (h & 1) ? magnitude : -magnitude;
}

/// Reductions of a row of logits.
struct SoftmaxRow {
  float largest;  ///< max logit
  float sum;      ///< of softmax_term
};

/// A row's sum consists of softmax_sums partial sums: column c is in sum c % softmax_sums, added from left to
/// right. Then sum i becomes sum i + sum (i + n), with n = 128, 64, .., 1.
constexpr int softmax_sums = 256;

/// Not above 1 if `largest` is the max, so that nothing overflows.
EGT_HD float softmax_term(float logit, float largest) {
  return expf(logit - largest);
}

/// The derivative of `softmax_loss` with respect to this logit.
EGT_HD float softmax_gradient(float logit, bool is_label, const SoftmaxRow& row) {
  return softmax_term(logit, row.largest) / row.sum - (is_label ? 1.0f : 0.0f);
}

/// -log softmax at the label.
EGT_HD float softmax_loss(float label_logit, const SoftmaxRow& row) {
  return logf(row.sum) - (label_logit - row.largest);
}

/// True if a logit ranks before the label's: larger, or equal and in an earlier column. A NaN ranks before
/// every label. All logits rank before a NaN label, even the label, so that it is never the best match.
EGT_HD bool ranks_before_label(float logit, std::int64_t column, float label_logit, std::int64_t label) {
  return !(logit < label_logit || (logit == label_logit && column >= label));
}

/// SGD with momentum, weights and state in fp32: v = momentum v + g; w = w - rate v.
struct Sgd {
  float rate;
  float momentum;
  float gradient_scale;  ///< factor of the stored gradient (1 / loss scale)

  EGT_HD void operator()(float& weight, float& velocity, float gradient) const {
    velocity = momentum * velocity + gradient * gradient_scale;
    weight -= rate * velocity;
  }
};

/// SGD without momentum, which has no state: w = w - rate g.
struct PlainSgd {
  float rate;
  float gradient_scale;

  EGT_HD void operator()(float& weight, float gradient) const {
    weight -= rate * (gradient * gradient_scale);
  }
};

/// Adam (Kingma, Ba, 2015, algorithm 1). `correction1` = 1 - beta1^t and `correction2` = 1 - beta2^t, t
/// from 1.
struct Adam {
  float rate;
  float beta1;
  float beta2;
  float epsilon;
  float correction1;
  float correction2;
  float gradient_scale;

  EGT_HD void operator()(float& weight, float& first, float& second, float gradient) const {
    const float g = gradient * gradient_scale;
    first = beta1 * first + (1.0f - beta1) * g;
    second = beta2 * second + (1.0f - beta2) * g * g;
    weight -= rate * (first / correction1) / (sqrtf(second / correction2) + epsilon);
  }
};

/// The seeds' buffer operation on one fp32 word of a `finite` pattern: sines and exponentials.
EGT_HD float sine_exponential(float v, int iterations) {
  float sum = 0.0f;
  for (int i = 0; i < iterations; ++i) {
    v = sinf(v * 1.7f + static_cast<float>(i & 7)) + expf(-fabsf(v));
    sum += v;
  }
  return sum;
}

}  // namespace egt::math
