#include "egt/core/math/philox.hpp"
#include "kernels/vector.cuh"

namespace egt::kernels {
namespace {

template <typename T>
struct Randomize {
  T* out;
  std::uint64_t seed;
  std::uint64_t sequence;
  std::uint64_t first;
  float scale;

  __device__ __forceinline__ T element(std::uint32_t word) const {
    return convert_element<T>(scale * signed_unit(word));
  }

  /// N > 1: `first + i` is a multiple of 4, so four elements are the four words of one counter.
  template <int N>
  __device__ __forceinline__ void run(std::int64_t i) const {
    const std::uint64_t at = first + static_cast<std::uint64_t>(i);
    if constexpr (N == 1) {
      const Philox4 random = philox4x32_10(at / 4, sequence, seed);
      const std::uint32_t low = at & 1 ? random.w[1] : random.w[0], high = at & 1 ? random.w[3] : random.w[2];
      out[i] = element(at & 2 ? high : low);
    } else {
      Pack<T, N> pack;
#pragma unroll
      for (int q = 0; q < N / 4; ++q) {
        const Philox4 random = philox4x32_10(at / 4 + static_cast<std::uint64_t>(q), sequence, seed);
#pragma unroll
        for (int j = 0; j < 4; ++j) pack.v[4 * q + j] = element(random.w[j]);
      }
      pack.store(out + i);
    }
  }
};

}  // namespace

int randomize(const Launch& launch, VectorView out, std::uint64_t seed, std::uint64_t sequence,
              std::uint64_t first, float scale) {
  return with_type(out.type, [&](auto type) {
    using T = decltype(type);
    const Randomize<T> operation{static_cast<T*>(out.data), seed, sequence, first, scale};
    const Lane lane{out.data, sizeof(T)};
    // Packs start where a counter of the sequence starts; otherwise elements are computed one by one.
    const int head = aligned_head({lane}, 8);
    if (head >= 0 && (first + static_cast<std::uint64_t>(head)) % 4 == 0)
      return for_each<8>(launch, out.count, {lane}, operation);
    return for_each<1>(launch, out.count, {lane}, operation);
  });
}

}  // namespace egt::kernels
