#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"
#include "egt/core/math/philox.hpp"
#include "egt/core/wait.hpp"

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

void run(const Copy& call, HostStream& stream) {
  const auto& [to, from, bytes] = call;
  for_ranges(stream, static_cast<std::int64_t>(bytes), copy_chunk_bytes,
             [&](std::int64_t begin, std::int64_t end) {
               std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                           static_cast<std::size_t>(end - begin));
             });
}

void run(const SetZero& call, HostStream& stream) {
  const auto& [data, bytes] = call;
  for_ranges(stream, static_cast<std::int64_t>(bytes), copy_chunk_bytes,
             [&](std::int64_t begin, std::int64_t end) {
               std::memset(static_cast<char*>(data) + begin, 0, static_cast<std::size_t>(end - begin));
             });
}

void run(const Cast& call, HostStream& stream) {
  const auto& [to, from] = call;
  with_type(to.type, [&]<typename To>(std::type_identity<To>) {
    with_type(from.type, [&]<typename From>(std::type_identity<From>) {
      for_ranges(stream, to.count, chunk_elements, [&](std::int64_t begin, std::int64_t end) {
        cast_range(static_cast<To*>(to.data), static_cast<const From*>(from.data), begin, end);
      });
    });
  });
}

void run(const Add& call, HostStream& stream) {
  const auto& [sum, term] = call;
  with_type(sum.type, [&]<typename T>(std::type_identity<T>) {
    for_ranges(stream, sum.count, chunk_elements, [&](std::int64_t begin, std::int64_t end) {
      add_range(static_cast<T*>(sum.data), static_cast<const T*>(term.data), begin, end);
    });
  });
}

void run(const Randomize& call, HostStream& stream) {
  const auto& [out, sequence] = call;
  with_type(out.type, [&]<typename T>(std::type_identity<T>) {
    for_ranges(stream, out.count, chunk_elements, [&](std::int64_t begin, std::int64_t end) {
      randomize_range(static_cast<T*>(out.data), sequence, begin, end);
    });
  });
}

void run(const WriteSignal& call, HostStream&) {
  std::atomic_ref(*call.signal).store(call.number, std::memory_order_release);
}

Status run(const AwaitSignal& call, HostStream& stream) {
  auto* const signal = const_cast<std::uint32_t*>(call.signal);
  const auto has_come = [&]() -> Result<bool> {
    const std::uint32_t now = std::atomic_ref(*signal).load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(now - call.number) >= 0) return true;
    if (stream.is_ending()) return Status(StatusCode::aborted, "the stream ended before a signal came");
    return false;
  };
  return wait_until(has_come, {.seconds = std::numeric_limits<double>::infinity()});
}

}  // namespace egt::host
