#include "ranks/mpi/reduce.hpp"

#include <algorithm>
#include <array>

#include "egt/core/math/half.hpp"

namespace egt {
namespace {

template <typename T>
void sum(T* out, std::span<const std::byte* const> parts, std::size_t count) {
  constexpr std::size_t block = 1024;  // fits into the L1 cache
  std::array<float, block> total;
  for (std::size_t first = 0; first < count; first += block) {
    const std::size_t n = std::min(block, count - first);
    const T* head = reinterpret_cast<const T*>(parts[0]) + first;
    for (std::size_t i = 0; i < n; ++i) total[i] = Element<T>::load(head[i]);
    for (const std::byte* part : parts.subspan(1)) {
      const T* next = reinterpret_cast<const T*>(part) + first;
      for (std::size_t i = 0; i < n; ++i) total[i] += Element<T>::load(next[i]);
    }
    for (std::size_t i = 0; i < n; ++i) out[first + i] = Element<T>::store(total[i]);
  }
}

}  // namespace

void reduce_sum(std::byte* out, std::span<const std::byte* const> parts, std::size_t count,
                ElementType type) {
  if (type == ElementType::bf16)
    sum(reinterpret_cast<Bfloat16*>(out), parts, count);
  else
    sum(reinterpret_cast<float*>(out), parts, count);
}

}  // namespace egt
