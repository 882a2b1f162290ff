#include <algorithm>
#include <array>

#include "kernels/vector.cuh"

namespace egt::kernels {
namespace {

/// Tag type for an update that stores no compute copy.
struct NoCopy {};

/// One step of `Rule` over flat arrays: weights, gradient, `states` state arrays, and the compute copy.
template <typename Rule, std::size_t states, typename Gradient, typename Copy>
struct Step {
  Rule rule;
  float* weights;
  const Gradient* gradient;
  static constexpr int kept = static_cast<int>(states), slots = kept > 0 ? kept : 1;
  float* state[slots];
  Copy* copy;

  __device__ __forceinline__ static void apply(const Rule& rule, float& weight, float* s, float g) {
    if constexpr (kept == 0) rule(weight, g);
    if constexpr (kept == 1) rule(weight, s[0], g);
    if constexpr (kept == 2) rule(weight, s[0], s[1], g);
  }

  template <int N>
  __device__ __forceinline__ void run(std::int64_t i) const {
    auto w = Pack<float, N>::load(weights + i);
    const auto g = Pack<Gradient, N>::load(gradient + i);
    Pack<float, N> s[slots];
#pragma unroll
    for (int k = 0; k < kept; ++k) s[k] = Pack<float, N>::load(state[k] + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float one[slots];
#pragma unroll
      for (int k = 0; k < kept; ++k) one[k] = s[k].v[j];
      apply(rule, w.v[j], one, Element<Gradient>::load(g.v[j]));
#pragma unroll
      for (int k = 0; k < kept; ++k) s[k].v[j] = one[k];
    }
    w.store(weights + i);
#pragma unroll
    for (int k = 0; k < kept; ++k) s[k].store(state[k] + i);
    if constexpr (!std::is_same_v<Copy, NoCopy>) store_copy(w, i);
  }

  template <int N>
  __device__ __forceinline__ void store_copy(const Pack<float, N>& w, std::int64_t i) const {
    Pack<Copy, N> c;
#pragma unroll
    for (int j = 0; j < N; ++j) c.v[j] = convert_element<Copy>(w.v[j]);
    c.store(copy + i);
  }
};

/// Calls `f` with a value of the copy's type, or with NoCopy.
template <typename F>
int with_copy_type(const VectorView& copy, F&& f) {
  return copy.data ? with_type(copy.type, f) : f(NoCopy{});
}

template <std::size_t states, typename Rule>
int optimizer_step(const Launch& launch, const ParameterRange& range, const std::array<float*, states>& state,
                   const Rule& rule) {
  const auto& [weights, gradient, compute_copy, count] = range;
  return with_gradient_type(gradient.type, [&](auto gradient_type) {
    return with_copy_type(compute_copy, [&](auto copy_type) {
      using Gradient = decltype(gradient_type);
      using Copy = decltype(copy_type);
      Step<Rule, states, Gradient, Copy> step{rule,
                                              weights,
                                              static_cast<const Gradient*>(gradient.data),
                                              {},
                                              static_cast<Copy*>(compute_copy.data)};
      std::copy(state.begin(), state.end(), step.state);
      const bool copies = !std::is_same_v<Copy, NoCopy>;
      const Lane copy_lane = copies ? Lane{compute_copy.data, sizeof(Copy)} : Lane{weights, sizeof(float)};
      return for_each<4>(launch, count,
                         {{weights, sizeof(float)},
                          {gradient.data, sizeof(Gradient)},
                          {state.empty() ? weights : state.front(), sizeof(float)},
                          {state.empty() ? weights : state.back(), sizeof(float)},
                          copy_lane},
                         step);
    });
  });
}

}  // namespace

int enqueue(const Launch& launch, const OptimizerStep& call) {
  if (const auto* adam = std::get_if<math::Adam>(&call.rule))
    return optimizer_step<2>(launch, call.range, {call.first, call.second}, *adam);
  const auto& sgd = std::get<math::Sgd>(call.rule);
  if (call.first != nullptr) return optimizer_step<1>(launch, call.range, {call.first}, sgd);
  return optimizer_step<0>(launch, call.range, {}, math::PlainSgd{sgd.rate, sgd.gradient_scale});
}

}  // namespace egt::kernels
