#include <algorithm>
#include <atomic>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

/// Bits of the max magnitude. Compared as integers, infinity and NaN are above all other values.
template <typename X>
std::uint32_t largest_magnitude(const MatrixView& x, HostStream& stream) {
  std::atomic<std::uint32_t> largest{0};
  for_ranges(stream, x.rows, rows_per_chunk(x.columns, chunk_elements),
             [&](std::int64_t begin, std::int64_t end) {
               std::uint32_t own = 0;
               for (std::int64_t r = begin; r < end; ++r) {
                 const X* __restrict elements = row<X>(x, r);
                 for (std::int64_t c = 0; c < x.columns; ++c)
                   own = std::max(own, float_bits(Element<X>::load(elements[c])) & 0x7FFFFFFFu);
               }
               std::uint32_t seen = largest;
               while (seen < own && !largest.compare_exchange_weak(seen, own)) {
               }
             });
  return largest;
}

template <typename X, typename Q>
void quantize_as(const Quantization& call, HostStream& stream) {
  const float factor = quantization_factor<Q>(largest_magnitude<X>(call.x, stream));
  *call.scale = 1 / factor;
  // Use tiles of rows, so that each row of the transposed copy is written several elements at a time.
  constexpr std::int64_t rows_at_once = 64;
  for_ranges(stream, call.x.rows, rows_at_once, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const X* __restrict from = row<X>(call.x, r);
      if (call.copy.data != nullptr) {
        Q* __restrict to = row<Q>(call.copy, r);
        for (std::int64_t c = 0; c < call.x.columns; ++c)
          to[c] = to_float_of_8<Q>(Element<X>::load(from[c]) * factor);
      }
    }
    if (call.transposed.data == nullptr) return;
    for (std::int64_t c = 0; c < call.x.columns; ++c) {
      Q* __restrict to = row<Q>(call.transposed, c);
      for (std::int64_t r = begin; r < end; ++r)
        to[r] = to_float_of_8<Q>(Element<X>::load(row<X>(call.x, r)[c]) * factor);
    }
  });
}

}  // namespace

void run(const Quantization& call, HostStream& stream) {
  const ElementType type = (call.copy.data != nullptr ? call.copy : call.transposed).type;
  const auto run = [&]<typename X>(X) {
    if (type == ElementType::f8)
      quantize_as<X, Float8>(call, stream);
    else
      quantize_as<X, Float8E5m2>(call, stream);
  };
  if (call.x.type == ElementType::f32)
    run(float{});
  else
    run(Bfloat16{});
}

}  // namespace egt::host
