#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "arena.hpp"
#include "device_contract.hpp"

namespace egt::contract {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::size_t count, std::uint64_t seed) {
  reference::Engine engine(seed);
  std::normal_distribution<float> normal(0.0f, 1e-3f);
  Floats values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

/// Seven magnitudes, both signs: whatever is selected, others are as large.
Floats alike(std::size_t count, std::uint64_t seed) {
  reference::Engine engine(seed);
  Floats values(count);
  for (float& value : values) {
    value = static_cast<float>(engine() % 7) * 0.25f;
    if (engine() % 2) value = -value;
  }
  return values;
}

/// What select_top_k promises, by sorting.
struct Selected {
  std::vector<std::uint32_t> indices;
  Floats values, residual;
};

Selected select(const Floats& gradient, const Floats& residual, std::size_t k) {
  Selected selected;
  selected.residual = residual;
  for (std::size_t i = 0; i < gradient.size(); ++i) selected.residual[i] += gradient[i];
  const Floats sums = selected.residual;
  const auto size_of = [&](std::uint32_t i) {
    using Limits = std::numeric_limits<double>;
    return std::isnan(sums[i]) ? Limits::infinity() : std::min(std::fabs(double{sums[i]}), Limits::max());
  };
  std::vector<std::uint32_t> order(sums.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return size_of(a) > size_of(b); });
  order.resize(k);
  std::sort(order.begin(), order.end());
  selected.indices = order;
  for (const std::uint32_t i : order) {
    selected.values.push_back(sums[i]);
    selected.residual[i] = 0;
  }
  return selected;
}

std::vector<std::uint32_t> bits_of(const Floats& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::isnan(value) ? ~0u : float_bits(value));
  return bits;
}

void expect_selects(DeviceContract& test, const Floats& gradient, const Floats& residual, std::size_t k) {
  SCOPED_TRACE(fmt::format("{} of {}", k, gradient.size()));
  Device& device = test.device();
  auto made = Arena::make(device, 4 * (2 * gradient.size() + 2 * k) + sizeof(TopKScratch) + 8192);
  ASSERT_TRUE(made.ok()) << made.status().what();
  Arena& arena = made.value();
  float* const g = arena.put(gradient);
  float* const r = arena.put(residual);
  SparseElement* const s = arena.reserve<SparseElement>(k);
  auto* const scratch = arena.reserve<TopKScratch>(1);
  EXPECT_OK(arena.upload(device, test.stream()));
  EXPECT_OK(device.select_top_k({{g, ElementType::f32, static_cast<std::int64_t>(gradient.size())},
                                 r,
                                 {s, static_cast<std::int64_t>(k)},
                                 scratch},
                                test.stream()));
  EXPECT_OK(arena.download(device, test.stream()));
  test.finish();
  const Selected expected = select(gradient, residual, k);
  std::vector<std::uint32_t> indices;
  Floats values;
  for (const SparseElement& element : arena.get(s, k)) {
    indices.push_back(element.index);
    values.push_back(element.value);
  }
  EXPECT_TRUE(indices == expected.indices) << "other indices";
  EXPECT_TRUE(bits_of(values) == bits_of(expected.values)) << "other values";
  EXPECT_TRUE(bits_of(arena.get(r, residual.size())) == bits_of(expected.residual)) << "another residual";
  EXPECT_TRUE(bits_of(arena.get(g, gradient.size())) == bits_of(gradient)) << "the gradient is only read";
  EXPECT_TRUE(arena.end_is_untouched(g, gradient.size()) && arena.end_is_untouched(r, residual.size()) &&
              arena.end_is_untouched(s, k) && arena.end_is_untouched(scratch, 1));
}

}  // namespace

TEST_P(DeviceContract, TheLargestElementsAreSelectedExactlyAndTheResidualKeepsTheRest) {
  for (const std::size_t count : {0u, 1u, 2u, 255u, 256u, 257u, 70'001u, (1u << 20) + 3})
    for (const double share : {0.0, 0.01, 0.37, 1.0}) {
      const auto k = static_cast<std::size_t>(std::ceil(share * static_cast<double>(count)));
      expect_selects(*this, random_floats(count, count + 1), random_floats(count, count + 2), k);
    }
}

TEST_P(DeviceContract, OfElementsOfOneMagnitudeTheFirstAreSelected) {
  for (const std::size_t count : {5u, 1000u, 300'001u})
    for (const std::size_t k : {std::size_t{1}, count / 3, count - 1})
      expect_selects(*this, alike(count, k), Floats(count, 0.0f), k);
  expect_selects(*this, Floats(4000, -0.0f), Floats(4000, 0.0f), 1234);
}

TEST_P(DeviceContract, WhatIsNotFiniteIsSelectedFirst) {
  Floats gradient = random_floats(5000, 3);
  gradient[17] = std::numeric_limits<float>::infinity();
  gradient[4711] = std::numeric_limits<float>::quiet_NaN();
  gradient[4999] = -std::numeric_limits<float>::max();
  for (const std::size_t k : {1u, 2u, 3u, 50u}) expect_selects(*this, gradient, Floats(5000, 0.0f), k);
}

TEST_P(DeviceContract, SparseElementsAreAddedToTheirPlaces) {
  constexpr std::size_t count = 70'001, listed = 3000;
  const Floats before = random_floats(count, 1), terms = random_floats(listed, 2);
  std::vector<SparseElement> elements;
  for (std::size_t i = 0; i < listed; ++i)
    elements.push_back({static_cast<std::uint32_t>((i * 7919) % count), terms[i]});
  Floats expected = before;
  for (const SparseElement& element : elements) expected[element.index] += element.value;
  elements[5].index = count;  // the first that is none
  elements[6].index = ~0u;
  for (const std::size_t i : {std::size_t{5}, std::size_t{6}})
    expected[(i * 7919) % count] = before[(i * 7919) % count];
  EGT_MAKE_ARENA(arena, 1 << 20);
  float* const sum = arena.put(before);
  SparseElement* const list = arena.put(elements);
  EXPECT_OK(arena.upload(device(), stream()));
  EXPECT_OK(device().scatter_add({sum, ElementType::f32, count}, {list, listed}, stream()));
  EXPECT_OK(device().scatter_add({sum, ElementType::f32, count}, {list, 0}, stream()));
  EXPECT_OK(arena.download(device(), stream()));
  finish();
  EXPECT_TRUE(bits_of(arena.get(sum, count)) == bits_of(expected));
  EXPECT_TRUE(arena.end_is_untouched(sum, count));
}

TEST_P(DeviceContract, SparseOperationsRefuseWhatDoesNotFit) {
  const Buffer memory = allocate(1 << 16);
  auto* const list = memory.as<SparseElement>();
  auto* const scratch = reinterpret_cast<TopKScratch*>(memory.as<std::byte>() + (1 << 14));
  const VectorView some{memory.data(), ElementType::f32, 8}, half{memory.data(), ElementType::bf16, 8},
      huge{memory.data(), ElementType::f32, std::int64_t{1} << 32};
  float* const residual = memory.as<float>() + 64;
  EXPECT_FAILS(invalid_argument, device().select_top_k({half, residual, {list, 1}, scratch}, stream()));
  EXPECT_FAILS(invalid_argument, device().select_top_k({huge, residual, {list, 1}, scratch}, stream()));
  EXPECT_FAILS(invalid_argument, device().select_top_k({some, nullptr, {list, 1}, scratch}, stream()));
  EXPECT_FAILS(invalid_argument, device().select_top_k({some, residual, {nullptr, 1}, scratch}, stream()));
  EXPECT_FAILS(invalid_argument, device().select_top_k({some, residual, {list, 9}, scratch}, stream()));
  EXPECT_FAILS(invalid_argument, device().select_top_k({some, residual, {list, -1}, scratch}, stream()));
  EXPECT_FAILS(invalid_argument, device().select_top_k({some, residual, {list, 1}, nullptr}, stream()));
  EXPECT_FAILS(invalid_argument, device().scatter_add(half, {list, 1}, stream()));
  EXPECT_FAILS(invalid_argument, device().scatter_add(some, {nullptr, 1}, stream()));
  EXPECT_FAILS(invalid_argument, device().scatter_add(some, {list, -1}, stream()));
  finish();
}

}  // namespace egt::contract
