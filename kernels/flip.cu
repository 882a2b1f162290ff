#include <algorithm>
#include <numeric>

#include "kernels/vector.cuh"

namespace egt::kernels {
namespace {

constexpr std::uint64_t flip_threads = 256, max_flip_blocks = 512;

/// The positions of a Flip in a region of `words` words, all below `words`. They repeat after `period`
/// positions: each is hit `turns` times, and the first `again` of them once more.
struct Orbit {
  std::uint64_t words, first, stride;
  std::uint64_t places;  ///< number of distinct positions
  std::uint64_t turns, again;

  Orbit(std::uint64_t count, const Flip& flip)
      : words(count), first(flip.first % count), stride(flip.stride % count) {
    const std::uint64_t period = words / std::gcd(words, stride);
    places = std::min(flip.count, period);
    turns = flip.count / period;
    again = flip.count % period;
  }
};

/// The word after `times` changes. Two changes restore flipped bits but not set ones; three equal one.
__device__ __forceinline__ std::uint32_t repeated(const Flip& flip, std::uint32_t word, std::uint64_t times) {
  if (times == 0) return word;
  return times % 2 == 1 ? flip(word) : flip(flip(word));
}

/// Each thread handles every `step`th position of the orbit, so threads never share a word. i * stride cannot
/// overflow for regions below 2^47 words. Later positions are reached by adding `leap`, modulo the number of
/// words.
__global__ void flip_kernel(std::uint32_t* data, const Orbit orbit, const Flip flip, std::uint64_t leap) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  std::uint64_t place = (orbit.first + i * orbit.stride) % orbit.words;
  for (; i < orbit.places; i += step) {
    data[place] = repeated(flip, data[place], orbit.turns + (i < orbit.again ? 1 : 0));
    place += leap;
    if (place >= orbit.words) place -= orbit.words;
  }
}

}  // namespace

int enqueue(const Launch& launch, const FlipWords& call) {
  const auto& [words, flip] = call;
  if (words.count == 0 || flip.count == 0) return cudaSuccess;
  const Orbit orbit(words.count, flip);
  const std::uint64_t blocks = std::min(divide_up(orbit.places, flip_threads), max_flip_blocks);
  const std::uint64_t leap = blocks * flip_threads * orbit.stride % orbit.words;
  return start(launch, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(flip_threads)), 0,
               flip_kernel, words.data, orbit, flip, leap);
}

}  // namespace egt::kernels
