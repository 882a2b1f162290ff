#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

/// Writes an updated weight to the compute copy; `Copy` void: there is none.
template <typename Copy>
void store_copy(Copy* copy, std::int64_t i, float weight) {
  if constexpr (!std::is_void_v<Copy>) copy[i] = convert_element<Copy>(weight);
}

template <typename G, typename Copy>
void sgd_range(const math::Sgd& rule, float* __restrict weights, float* __restrict velocity,
               const G* __restrict gradient, Copy* __restrict copy, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    float w = weights[i], v = velocity[i];
    rule(w, v, Element<G>::load(gradient[i]));
    weights[i] = w;
    velocity[i] = v;
    store_copy(copy, i, w);
  }
}

template <typename G, typename Copy>
void plain_sgd_range(const math::PlainSgd& rule, float* __restrict weights, const G* __restrict gradient,
                     Copy* __restrict copy, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    float w = weights[i];
    rule(w, Element<G>::load(gradient[i]));
    weights[i] = w;
    store_copy(copy, i, w);
  }
}

template <typename G, typename Copy>
void adam_range(const math::Adam& rule, float* __restrict weights, float* __restrict first,
                float* __restrict second, const G* __restrict gradient, Copy* __restrict copy,
                std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    float w = weights[i], m = first[i], v = second[i];
    rule(w, m, v, Element<G>::load(gradient[i]));
    weights[i] = w;
    first[i] = m;
    second[i] = v;
    store_copy(copy, i, w);
  }
}

/// Calls f with the typed pointers to the gradient and the compute copy (a `void*` if there is none).
template <typename G, typename F>
void with_copy_type(const ParameterRange& range, const F& f) {
  const G* const gradient = static_cast<const G*>(range.gradient.data);
  if (range.compute_copy.data == nullptr) return f(gradient, static_cast<void*>(nullptr));
  with_type(range.compute_copy.type, [&]<typename Copy>(std::type_identity<Copy>) {
    f(gradient, static_cast<Copy*>(range.compute_copy.data));
  });
}

template <typename F>
void with_range_types(const ParameterRange& range, const F& f) {
  if (range.gradient.type == ElementType::bf16)
    with_copy_type<Bfloat16>(range, f);
  else
    with_copy_type<float>(range, f);
}

}  // namespace

void run(const OptimizerStep& call, HostStream& stream) {
  const auto& [range, first, second, rule] = call;
  with_range_types(range, [&](auto* gradient, auto* copy) {
    for_ranges(stream, range.count, chunk_elements, [&](std::int64_t begin, std::int64_t end) {
      if (const auto* adam = std::get_if<math::Adam>(&rule))
        adam_range(*adam, range.weights, first, second, gradient, copy, begin, end);
      else if (const auto& sgd = std::get<math::Sgd>(rule); first != nullptr)
        sgd_range(sgd, range.weights, first, gradient, copy, begin, end);
      else
        plain_sgd_range({sgd.rate, sgd.gradient_scale}, range.weights, gradient, copy, begin, end);
    });
  });
}

}  // namespace egt::host
