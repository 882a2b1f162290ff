#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/host/host_stream.hpp"
#include "egt/core/math/half.hpp"
#include "egt/core/types.hpp"
#include "egt/core/view.hpp"

/// For functions with integer loops: compiles them and their callees for several instruction sets, and the
/// processor's best is used. The bits are the same. Disabled under sanitizers, which start too late.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define EGT_FOR_EVERY_CPU __attribute__((target_clones("avx512f", "avx2", "default"), flatten))
#else
#define EGT_FOR_EVERY_CPU
#endif

namespace egt::host {

/// Elements or words in a chunk of a cheap loop, which runs some tens of microseconds.
constexpr std::int64_t chunk_elements = 1 << 15;
/// Elements in a chunk if each costs a microsecond or more.
constexpr std::int64_t costly_chunk_elements = 1 << 9;
/// Rows whose column sums one thread computes. The tiles' sums are then added in order.
constexpr std::int64_t tile_rows = 32;

/// Calls body(begin, end) for consecutive ranges of `chunk` elements, shared by the stream's threads. Only
/// within tasks.
template <typename Body>
void for_ranges(HostStream& stream, std::int64_t count, std::int64_t chunk, const Body& body) {
  const std::int64_t chunks = (count + chunk - 1) / chunk;
  if (chunks <= 1) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
  stream.share(chunks, [&](std::int64_t i) { body(i * chunk, std::min(count, (i + 1) * chunk)); });
}

/// Number of rows with about `elements` elements in total.
inline std::int64_t rows_per_chunk(std::int64_t columns, std::int64_t elements) {
  return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, columns));
}

/// Calls f with a std::type_identity of the C++ type of `type`.
template <typename F>
auto with_type(ElementType type, const F& f) {
  switch (type) {
    case ElementType::f64:
      return f(std::type_identity<double>{});
    case ElementType::f16:
      return f(std::type_identity<Half>{});
    case ElementType::bf16:
      return f(std::type_identity<Bfloat16>{});
    default:
      return f(std::type_identity<float>{});
  }
}

template <typename T>
T* row(const MatrixView& matrix, std::int64_t r) {
  return static_cast<T*>(matrix.data) + r * matrix.leading;
}

}  // namespace egt::host
