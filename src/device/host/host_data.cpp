#include <algorithm>
#include <cstring>

#include "device/arguments.hpp"
#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"
#include "egt/core/math/philox.hpp"

namespace egt::host {
namespace {

constexpr std::int64_t copy_chunk_bytes = 4 << 20;

template <typename To, typename From>
void cast_range(To* __restrict to, const From* __restrict from, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) to[i] = convert_element<To>(from[i]);
}

template <typename T>
void add_range(T* __restrict sum, const T* __restrict term, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) sum[i] = math::add(sum[i], term[i]);
}

constexpr std::uint64_t random_lanes = 64;  ///< counter values whose words are computed in SIMD lanes

struct RandomWords {
  std::uint32_t word[4][random_lanes];
};

EGT_FOR_EVERY_CPU void make_words(RandomWords& words, std::uint64_t counter, std::uint64_t sequence,
                                  std::uint64_t seed) {
  for (std::uint64_t lane = 0; lane < random_lanes; ++lane) {
    const Philox4 made = philox4x32_10(counter + lane, sequence, seed);
    for (int k = 0; k < 4; ++k) words.word[k][lane] = made.w[k];
  }
}

template <typename T>
void randomize_range(T* out, const RandomSequence& sequence, std::int64_t begin, std::int64_t end) {
  RandomWords words;
  for (std::int64_t i = begin; i < end;) {
    const std::uint64_t place = sequence.first + static_cast<std::uint64_t>(i), counter = place / 4;
    make_words(words, counter, sequence.sequence, sequence.seed);
    const std::uint64_t first = place % 4,
                        last = std::min(4 * random_lanes, first + static_cast<std::uint64_t>(end - i));
    for (std::uint64_t at = first; at < last; ++at, ++i)
      out[i] = convert_element<T>(sequence.scale * signed_unit(words.word[at % 4][at / 4]));
  }
}

}  // namespace

Status copy(void* to, const void* from, std::size_t bytes, HostStream& stream) {
  EGT_TRY(check_copy(to, from, bytes));
  stream.enqueue([=, &stream] {
    for_ranges(stream, static_cast<std::int64_t>(bytes), copy_chunk_bytes,
               [&](std::int64_t begin, std::int64_t end) {
                 std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                             static_cast<std::size_t>(end - begin));
               });
    return Status();
  });
  return {};
}

Status set_zero(void* data, std::size_t bytes, HostStream& stream) {
  EGT_TRY(check_set_zero(data, bytes));
  stream.enqueue([=, &stream] {
    for_ranges(stream, static_cast<std::int64_t>(bytes), copy_chunk_bytes,
               [&](std::int64_t begin, std::int64_t end) {
                 std::memset(static_cast<char*>(data) + begin, 0, static_cast<std::size_t>(end - begin));
               });
    return Status();
  });
  return {};
}

Status cast(VectorView to, VectorView from, HostStream& stream) {
  EGT_TRY(check_cast(to, from));
  stream.enqueue([=, &stream] {
    with_type(to.type, [&]<typename To>(std::type_identity<To>) {
      with_type(from.type, [&]<typename From>(std::type_identity<From>) {
        for_ranges(stream, to.count, chunk_elements, [&](std::int64_t begin, std::int64_t end) {
          cast_range(static_cast<To*>(to.data), static_cast<const From*>(from.data), begin, end);
        });
      });
    });
    return Status();
  });
  return {};
}

Status add(VectorView sum, VectorView term, HostStream& stream) {
  EGT_TRY(check_add(sum, term));
  stream.enqueue([=, &stream] {
    with_type(sum.type, [&]<typename T>(std::type_identity<T>) {
      for_ranges(stream, sum.count, chunk_elements, [&](std::int64_t begin, std::int64_t end) {
        add_range(static_cast<T*>(sum.data), static_cast<const T*>(term.data), begin, end);
      });
    });
    return Status();
  });
  return {};
}

Status randomize(VectorView out, const RandomSequence& sequence, HostStream& stream) {
  EGT_TRY(check_randomize(out));
  stream.enqueue([=, &stream] {
    with_type(out.type, [&]<typename T>(std::type_identity<T>) {
      for_ranges(stream, out.count, chunk_elements, [&](std::int64_t begin, std::int64_t end) {
        randomize_range(static_cast<T*>(out.data), sequence, begin, end);
      });
    });
    return Status();
  });
  return {};
}

}  // namespace egt::host
