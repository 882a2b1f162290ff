#include <curand_philox4x32_x.h>

#include "egt/core/math/philox.hpp"
#include "kernels/vector.cuh"

namespace egt::kernels {
namespace {

template <typename T>
struct RandomElements {
  T* out;
  std::uint64_t seed;
  std::uint64_t sequence;
  std::uint64_t first;
  float scale;

  __device__ __forceinline__ T element(std::uint32_t word) const {
    return convert_element<T>(scale * signed_unit(word));
  }

  /// Four random words from cuRAND's device code; the host uses philox4x32_10.
  __device__ __forceinline__ uint4 words(std::uint64_t counter) const {
    const auto low = [](std::uint64_t word) { return static_cast<unsigned>(word); };
    return curand_Philox4x32_10(
        make_uint4(low(counter), low(counter >> 32), low(sequence), low(sequence >> 32)),
        make_uint2(low(seed), low(seed >> 32)));
  }

  /// N > 1: `first + i` is a multiple of 4, so four elements are the four words of one counter.
  template <int N>
  __device__ __forceinline__ void run(std::int64_t i) const {
    const std::uint64_t at = first + static_cast<std::uint64_t>(i);
    if constexpr (N == 1) {
      const uint4 random = words(at / 4);
      const std::uint32_t low = at & 1 ? random.y : random.x, high = at & 1 ? random.w : random.z;
      out[i] = element(at & 2 ? high : low);
    } else {
      Pack<T, N> pack;
#pragma unroll
      for (int q = 0; q < N / 4; ++q) {
        const uint4 random = words(at / 4 + static_cast<std::uint64_t>(q));
        pack.v[4 * q] = element(random.x);
        pack.v[4 * q + 1] = element(random.y);
        pack.v[4 * q + 2] = element(random.z);
        pack.v[4 * q + 3] = element(random.w);
      }
      pack.store(out + i);
    }
  }
};

}  // namespace

int enqueue(const Launch& launch, const Randomize& call) {
  const auto& [out, numbers] = call;
  return with_type(out.type, [&](auto type) {
    using T = decltype(type);
    const RandomElements<T> operation{static_cast<T*>(out.data), numbers.seed, numbers.sequence,
                                      numbers.first, numbers.scale};
    const Lane lane{out.data, sizeof(T)};
    // Packs start where a counter of the sequence starts; otherwise elements are computed one by one.
    const int head = aligned_head({lane}, 8);
    if (head >= 0 && (numbers.first + static_cast<std::uint64_t>(head)) % 4 == 0)
      return for_each<8>(launch, out.count, {lane}, operation);
    return for_each<1>(launch, out.count, {lane}, operation);
  });
}

}  // namespace egt::kernels
