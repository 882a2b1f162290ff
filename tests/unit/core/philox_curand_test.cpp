// Compares our Philox with cuRAND's header, compiled for the host.
#include <vector_types.h>

#define QUALIFIERS [[maybe_unused]] static inline
#include <curand_philox4x32_x.h>

#include "egt/core/math/philox.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace egt {
namespace {

std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}

std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

void expect_same(std::uint64_t counter_low, std::uint64_t counter_high, std::uint64_t key) {
  const uint4 theirs = curand_Philox4x32_10(
      {low(counter_low), high(counter_low), low(counter_high), high(counter_high)}, {low(key), high(key)});
  const Philox4 ours = philox4x32_10(counter_low, counter_high, key);
  ASSERT_EQ(ours.w[0], theirs.x);
  ASSERT_EQ(ours.w[1], theirs.y);
  ASSERT_EQ(ours.w[2], theirs.z);
  ASSERT_EQ(ours.w[3], theirs.w);
}

TEST(PhiloxAgainstCurand, SuccessiveCountersAgree) {
  for (std::uint64_t i = 0; i < 100'000; ++i) ASSERT_NO_FATAL_FAILURE(expect_same(i, i / 1000, 20240131));
}

TEST(PhiloxAgainstCurand, RandomCountersAndKeysAgree) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 100'000; ++i) ASSERT_NO_FATAL_FAILURE(expect_same(random(), random(), random()));
}

}  // namespace
}  // namespace egt
