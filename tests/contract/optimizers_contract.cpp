#include <cmath>

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

}  // namespace

/// Runs `step` for each gradient type and each type of the compute copy, and hands the results to `check`.
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

}  // namespace egt::contract
