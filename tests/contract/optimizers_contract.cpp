#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "arena.hpp"
#include "device_contract.hpp"

namespace egt::contract {
namespace {

using reference::Array;
using reference::Engine;

constexpr std::int64_t count = 40003;
constexpr int steps = 4;

Array uniform(ElementType type, std::uint64_t seed, double offset = 0, double factor = 1) {
  Engine engine(seed);
  Array array(type, count);
  reference::fill_uniform(array, engine);
  for (std::int64_t i = 0; i < count; ++i) array.set(i, offset + factor * array.get(i));
  return array;
}

void expect_near(const Array& actual, const std::vector<double>& expected, double tolerance,
                 const char* what) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double wanted = expected[static_cast<std::size_t>(i)];
    ASSERT_TRUE(std::fabs(actual.get(i) - wanted) <= tolerance * (1 + std::fabs(wanted)))
        << what << " " << i << ": " << actual.get(i) << ", not " << wanted;
  }
}

std::vector<double> values_of(const Array& array) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < array.count(); ++i) values.push_back(array.get(i));
  return values;
}

using Floats = std::vector<float>;

Floats random_floats(std::size_t count, std::uint64_t seed) {
  reference::Engine engine(seed);
  std::normal_distribution<float> normal(0.0f, 1e-3f);
  Floats values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

/// Seven magnitudes with both signs: for any selected element there are unselected ones of equal magnitude.
Floats alike(std::size_t count, std::uint64_t seed) {
  reference::Engine engine(seed);
  Floats values(count);
  for (float& value : values) {
    value = static_cast<float>(engine() % 7) * 0.25f;
    if (engine() % 2) value = -value;
  }
  return values;
}

/// The guaranteed result of select_top_k, computed by sorting.
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

/// Runs `step` for each gradient type and each type of the compute copy, and passes the results to `check`.
#define FOR_EACH_RANGE_TYPE(gradient_type, copy_type)                                                     \
  for (const ElementType gradient_type : {ElementType::f32, ElementType::bf16})                           \
    for (const std::optional<ElementType> copy_type :                                                     \
         {std::optional<ElementType>(), std::optional(ElementType::f64), std::optional(ElementType::f16), \
          std::optional(ElementType::bf16)})

TEST_P(DeviceContract, SgdStepIsTheFormulaAndFillsTheComputeCopy) {
  const math::Sgd rule{.rate = 0.05f, .momentum = 0.9f, .gradient_scale = 0.25f};
  FOR_EACH_RANGE_TYPE(gradient_type, copy_type) {
    const Array weights = uniform(ElementType::f32, 1), velocity = uniform(ElementType::f32, 2);
    const Array gradient = uniform(gradient_type, 3);
    const DeviceArray w = upload(weights), v = upload(velocity), g = upload(gradient);
    const DeviceArray copy = upload(Array(copy_type.value_or(ElementType::f32), count));
    std::vector<double> expected_w = values_of(weights), expected_v = values_of(velocity);
    for (int step = 0; step < steps; ++step) {
      EXPECT_OK(device().sgd_step({w.floats(), g.view(), copy_type ? copy.view() : VectorView{}, count},
                                  v.floats(), rule, stream()));
      for (std::size_t i = 0; i < expected_w.size(); ++i) {
        expected_v[i] =
            rule.momentum * expected_v[i] + gradient.get(static_cast<std::int64_t>(i)) * rule.gradient_scale;
        expected_w[i] -= rule.rate * expected_v[i];
      }
    }
    const Array result = download(w), copied = download(copy);
    expect_near(result, expected_w, 2e-6, "weight");
    expect_near(download(v), expected_v, 2e-6, "velocity");
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(copied.get(i), copy_type ? reference::rounded(*copy_type, result.get(i)) : 0.0) << i;
  }
}

TEST_P(DeviceContract, SgdStepWithoutVelocityIsTheFormulaAndFillsTheComputeCopy) {
  const math::Sgd rule{.rate = 0.05f, .momentum = 0.0f, .gradient_scale = 0.25f};
  FOR_EACH_RANGE_TYPE(gradient_type, copy_type) {
    const Array weights = uniform(ElementType::f32, 8), gradient = uniform(gradient_type, 9);
    const DeviceArray w = upload(weights), g = upload(gradient);
    const DeviceArray copy = upload(Array(copy_type.value_or(ElementType::f32), count));
    std::vector<double> expected = values_of(weights);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] -= rule.rate * gradient.get(static_cast<std::int64_t>(i)) * rule.gradient_scale;
    EXPECT_OK(device().sgd_step({w.floats(), g.view(), copy_type ? copy.view() : VectorView{}, count},
                                nullptr, rule, stream()));
    const Array result = download(w), copied = download(copy);
    expect_near(result, expected, 1e-6, "weight");
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(copied.get(i), copy_type ? reference::rounded(*copy_type, result.get(i)) : 0.0) << i;
  }
}

TEST_P(DeviceContract, AdamStepIsTheFormulaAndFillsTheComputeCopy) {
  FOR_EACH_RANGE_TYPE(gradient_type, copy_type) {
    const Array weights = uniform(ElementType::f32, 4), first = uniform(ElementType::f32, 5);
    const Array second = uniform(ElementType::f32, 6, 1.1), gradient = uniform(gradient_type, 7);
    const DeviceArray w = upload(weights), m = upload(first), v = upload(second), g = upload(gradient);
    const DeviceArray copy = upload(Array(copy_type.value_or(ElementType::f32), count));
    std::vector<double> expected_w = values_of(weights), expected_m = values_of(first),
                        expected_v = values_of(second);
    for (int step = 1; step <= steps; ++step) {
      const math::Adam rule{.rate = 0.01f,
                            .beta1 = 0.9f,
                            .beta2 = 0.99f,
                            .epsilon = 1e-4f,
                            .correction1 = static_cast<float>(1 - std::pow(0.9, step)),
                            .correction2 = static_cast<float>(1 - std::pow(0.99, step)),
                            .gradient_scale = 2.0f};
      EXPECT_OK(device().adam_step({w.floats(), g.view(), copy_type ? copy.view() : VectorView{}, count},
                                   m.floats(), v.floats(), rule, stream()));
      for (std::size_t i = 0; i < expected_w.size(); ++i) {
        const double scaled = gradient.get(static_cast<std::int64_t>(i)) * rule.gradient_scale;
        expected_m[i] = rule.beta1 * expected_m[i] + (1 - static_cast<double>(rule.beta1)) * scaled;
        expected_v[i] = rule.beta2 * expected_v[i] + (1 - static_cast<double>(rule.beta2)) * scaled * scaled;
        expected_w[i] -= rule.rate * (expected_m[i] / rule.correction1) /
                         (std::sqrt(expected_v[i] / rule.correction2) + rule.epsilon);
      }
    }
    const Array result = download(w), copied = download(copy);
    expect_near(result, expected_w, 5e-6, "weight");
    expect_near(download(m), expected_m, 5e-6, "first moment");
    expect_near(download(v), expected_v, 5e-6, "second moment");
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(copied.get(i), copy_type ? reference::rounded(*copy_type, result.get(i)) : 0.0) << i;
  }
}

TEST_P(DeviceContract, OptimizersAreRepeatableAndKeepToTheirRange) {
  const math::Sgd sgd{.rate = 0.05f, .momentum = 0.9f, .gradient_scale = 1.0f};
  const math::Adam adam{.rate = 0.01f,
                        .beta1 = 0.9f,
                        .beta2 = 0.99f,
                        .epsilon = 1e-8f,
                        .correction1 = 0.1f,
                        .correction2 = 0.01f,
                        .gradient_scale = 1.0f};
  constexpr std::int64_t first_element = 3, part = 1001;
  const Array weights = uniform(ElementType::f32, 8), moment = uniform(ElementType::f32, 9, 1.1);
  const DeviceArray g = upload(uniform(ElementType::f32, 10));
  std::vector<Array> runs[2];
  for (std::vector<Array>& run : runs) {
    const DeviceArray w = upload(weights), m = upload(moment), v = upload(moment);
    const ParameterRange range{
        w.floats() + first_element, {g.floats() + first_element, ElementType::f32, part}, {}, part};
    EXPECT_OK(device().sgd_step(range, m.floats() + first_element, sgd, stream()));
    EXPECT_OK(
        device().adam_step(range, m.floats() + first_element, v.floats() + first_element, adam, stream()));
    for (const DeviceArray* array : {&w, &m, &v}) run.push_back(download(*array));
    for (const std::int64_t outside : {first_element - 1, first_element + part}) {
      EXPECT_EQ(run[0].get(outside), weights.get(outside));
      EXPECT_EQ(run[1].get(outside), moment.get(outside));
    }
    EXPECT_NE(run[0].get(first_element), weights.get(first_element));
    EXPECT_NE(run[0].get(first_element + part - 1), weights.get(first_element + part - 1));
  }
  EXPECT_TRUE(runs[0] == runs[1]);
}

TEST_P(DeviceContract, OptimizersRefuseWhatDoesNotFit) {
  const Buffer memory = allocate(4096);
  float* const floats = memory.as<float>();
  const VectorView gradient{floats, ElementType::f32, 8};
  const math::Sgd sgd{};
  const math::Adam adam{};
  EXPECT_OK(device().sgd_step({}, nullptr, sgd, stream()));
  EXPECT_OK(device().adam_step({}, nullptr, nullptr, adam, stream()));
  EXPECT_FAILS(invalid_argument, device().sgd_step({floats, gradient, {}, 9}, floats, sgd, stream()));
  EXPECT_FAILS(invalid_argument,
               device().sgd_step({floats, {floats, ElementType::f64, 8}, {}, 8}, floats, sgd, stream()));
  EXPECT_FAILS(invalid_argument, device().adam_step({floats, gradient, {floats, ElementType::bf16, 7}, 8},
                                                    floats, floats, adam, stream()));
  const VectorView none{nullptr, ElementType::f32, 8};
  const math::Sgd with_momentum{.rate = 0.1f, .momentum = 0.9f, .gradient_scale = 1.0f};
  EXPECT_OK(device().sgd_step({}, nullptr, with_momentum, stream()));
  EXPECT_FAILS(invalid_argument,
               device().sgd_step({floats, gradient, {}, 8}, nullptr, with_momentum, stream()));
  EXPECT_FAILS(invalid_argument, device().sgd_step({nullptr, gradient, {}, 8}, floats, sgd, stream()));
  EXPECT_FAILS(invalid_argument, device().sgd_step({floats, none, {}, 8}, floats, sgd, stream()));
  EXPECT_FAILS(invalid_argument, device().sgd_step({floats, {}, {}, -1}, floats, sgd, stream()));
  EXPECT_FAILS(invalid_argument,
               device().adam_step({nullptr, gradient, {}, 8}, floats, floats, adam, stream()));
  EXPECT_FAILS(invalid_argument,
               device().adam_step({floats, gradient, {}, 8}, nullptr, floats, adam, stream()));
  EXPECT_FAILS(invalid_argument,
               device().adam_step({floats, gradient, {}, 8}, floats, nullptr, adam, stream()));
  finish();
}

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
  elements[5].index = count;  // first invalid index
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
