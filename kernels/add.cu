#include "kernels/vector.cuh"

namespace egt::kernels {
namespace {

template <typename T>
struct AddTerm {
  T* sum;
  const T* term;

  template <int N>
  __device__ __forceinline__ void run(std::int64_t i) const {
    auto sums = Pack<T, N>::load(sum + i);
    const auto terms = Pack<T, N>::load(term + i);
#pragma unroll
    for (int j = 0; j < N; ++j) sums.v[j] = math::add(sums.v[j], terms.v[j]);
    sums.store(sum + i);
  }
};

/// Each thread has two accesses per operand in flight, because the kernel is memory-bound.
template <typename T>
constexpr int at_once = 2 * vector_bytes / static_cast<int>(sizeof(T));

}  // namespace

int load_add() {
  const auto load = [](auto* kernel) {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, kernel);
  };
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    const int error = with_gradient_type(type, [&](auto element) -> int {
      using T = decltype(element);
      const cudaError_t single = load(for_each_kernel<1, AddTerm<T>>);
      return single != cudaSuccess ? single : load(for_each_kernel<at_once<T>, AddTerm<T>>);
    });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int enqueue(const Launch& launch, const Add& call) {
  const auto& [sum, term] = call;
  return with_gradient_type(sum.type, [&](auto type) {
    using T = decltype(type);
    const AddTerm<T> operation{static_cast<T*>(sum.data), static_cast<const T*>(term.data)};
    return for_each<at_once<T>>(launch, sum.count, {{sum.data, sizeof(T)}, {term.data, sizeof(T)}},
                                operation);
  });
}

}  // namespace egt::kernels
