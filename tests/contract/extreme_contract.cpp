#include <algorithm>
#include <cmath>
#include <limits>

#include "device_contract.hpp"

namespace egt::contract {
namespace {

using reference::Array;

constexpr std::int64_t count = 1003;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Array starts() {
  reference::Engine engine(17);
  Array values(ElementType::f32, count);
  reference::fill_uniform(values, engine);
  std::int64_t i = 0;
  for (const double special :
       {0.0, -0.0, 1.0, -1.0, 1e-30, -1e-40, 3.14159274, 1e4, -1e10, 3e38, -3e38, 0.5, 0.381966})
    values.set(i++, special);
  for (const float lost : {nan, infinity, -infinity}) values.set(i++, static_cast<double>(lost));
  return values;
}

float at(const Array& values, std::int64_t i) {
  return static_cast<float>(values.get(i));
}

}  // namespace

TEST_P(DeviceContract, ExtremeIsTheChainOfEveryValueAndNoOther) {
  // Another library's functions may differ by some ulp; near a zero of the chain that is more of the result.
  const float tolerance = is_host() ? 0.0f : 1e-5f, absolute = is_host() ? 0.0f : 1e-6f;
  const Array values = starts();
  for (const int iterations : {0, 1, 7, 100})
    for (const std::int64_t first : {0, 1}) {
      const DeviceArray on_device = upload(values);
      EXPECT_OK(device().extreme({on_device.floats() + first, ElementType::f32, count - first - 1},
                                 iterations, stream()));
      const Array result = download(on_device);
      for (std::int64_t i = 0; i < count; ++i) {
        if (i < first || i == count - 1) {
          EXPECT_EQ(result.bits(i), values.bits(i)) << "outside, " << i;
          continue;
        }
        const float expected = math::extreme(at(values, i), iterations), actual = at(result, i);
        const bool same = std::isnan(expected)
                              ? std::isnan(actual)
                              : std::fabs(actual - expected) <= tolerance * expected + absolute;
        EXPECT_TRUE(same) << at(values, i) << ": " << actual << ", not " << expected;
      }
    }
}

TEST_P(DeviceContract, ExtremeLosesNothingThatIsNotFinite) {
  const DeviceArray on_device = upload(starts());
  EXPECT_OK(device().extreme(on_device.view(), 3, stream()));
  const Array result = download(on_device);
  for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(std::isnan(result.get(i)), i >= 13 && i < 16) << i;
}

TEST_P(DeviceContract, ExtremeIsRepeatableBitForBit) {
  const DeviceArray one = upload(starts()), other = upload(starts());
  for (const DeviceArray* array : {&one, &other}) EXPECT_OK(device().extreme(array->view(), 50, stream()));
  EXPECT_TRUE(download(one) == download(other));
}

TEST_P(DeviceContract, ExtremeRefusesWhatDoesNotFit) {
  const Buffer memory = allocate(4096);
  EXPECT_OK(device().extreme({}, 5, stream()));
  EXPECT_FAILS(invalid_argument, device().extreme({nullptr, ElementType::f32, 8}, 5, stream()));
  EXPECT_FAILS(invalid_argument, device().extreme({memory.data(), ElementType::f32, 8}, -1, stream()));
  EXPECT_FAILS(invalid_argument, device().extreme({memory.data(), ElementType::bf16, 8}, 5, stream()));
  EXPECT_FAILS(invalid_argument, device().extreme({memory.data(), ElementType::f32, -8}, 5, stream()));
  finish();
}

}  // namespace egt::contract
