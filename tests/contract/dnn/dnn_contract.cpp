#include "dnn_contract.hpp"

#include <cmath>
#include <cstring>

namespace egt::contract {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DnnContract);

void DnnContract::SetUp() {
  if (!GetParam().open_dnn) GTEST_SKIP() << "no library of deep-learning primitives is in this build";
  DeviceContract::SetUp();
  if (HasFatalFailure()) return;
  Result<std::unique_ptr<Dnn>> opened = GetParam().open_dnn(device());
  if (opened.status().code() == StatusCode::unavailable) GTEST_SKIP() << opened.status().what();
  ASSERT_TRUE(opened.ok()) << opened.status().what();
  dnn_ = std::move(opened.value());
}

void DnnContract::TearDown() {
  dnn_.reset();
  DeviceContract::TearDown();
}

std::vector<Precision> DnnContract::dnn_precisions() {
  std::vector<Precision> found;
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16})
    if (dnn().supports(precision).yes()) found.push_back(precision);
  return found;
}

std::vector<ElementType> DnnContract::image_types() {
  if (dnn().supports(Precision::bf16).yes()) return {ElementType::f32, ElementType::bf16};
  return {ElementType::f32};
}

DeviceArray DnnContract::output(ElementType type, std::int64_t count) {
  reference::Array nothing(type, count + guard);
  std::memset(nothing.data(), 0xff, nothing.bytes());
  return upload(nothing);
}

reference::Array DnnContract::written(const DeviceArray& output) {
  const reference::Array array = download(output);
  const std::int64_t count = array.count() - guard;
  std::int64_t unwritten = 0;
  for (std::int64_t i = 0; i < count; ++i) unwritten += std::isnan(array.get(i));
  EXPECT_EQ(unwritten, 0) << "of " << count << " elements are NaN, as before";
  std::uint64_t touched = 0;
  const std::uint64_t before = (std::uint64_t{1} << 8 * size_of(array.type())) - 1;
  for (std::int64_t i = count; i < array.count(); ++i) touched += array.bits(i) != before;
  EXPECT_EQ(touched, 0u) << "elements behind the output were written";
  return array;
}

reference::Array uniform_array(ElementType type, std::int64_t count, std::uint64_t seed) {
  reference::Engine engine(seed);
  reference::Array array(type, count);
  reference::fill_uniform(array, engine);
  return array;
}

reference::Array small_integers(ElementType type, std::int64_t count, std::uint64_t seed) {
  reference::Engine engine(seed);
  reference::Array array(type, count);
  for (std::int64_t i = 0; i < count; ++i) array.set(i, static_cast<double>(engine() % 17) - 8);
  return array;
}

TEST_P(DnnContract, TheLibraryIsNamed) {
  EXPECT_FALSE(dnn().library().empty());
}

TEST_P(DnnContract, ItHasFp32AndSaysWhyItLacksOthers) {
  EXPECT_TRUE(dnn().supports(Precision::fp32).yes()) << dnn().supports(Precision::fp32).why_not;
  for (const Precision precision : {Precision::fp64, Precision::fp16, Precision::fp8, Precision::int8})
    EXPECT_FALSE(dnn().supports(precision).yes()) << to_string(precision);
  for (const Precision precision : {Precision::tf32, Precision::bf16}) {
    const Support support = dnn().supports(precision);
    const ConvolutionShape shape{precision, {1, 4, 4, 8}, 8, {1, 1, 0}};
    const Status made = dnn().make(shape).status();
    EXPECT_EQ(made.code(), support.yes() ? StatusCode::ok : StatusCode::unsupported) << made.what();
  }
}

}  // namespace egt::contract
