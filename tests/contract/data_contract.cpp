#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "device_contract.hpp"
#include "egt/core/math/philox.hpp"

namespace egt::contract {
namespace {

using reference::Array;

/// Values that expose rounding errors: ties, limits, subnormals of every type, and non-finite values.
std::vector<double> difficult_values() {
  std::vector<double> values = {0.0,
                                1.0,
                                1.0 / 3.0,
                                65504.0,
                                65519.999,
                                65520.0,
                                1e5,
                                3.3895e38,
                                3.4e38,
                                1e39,
                                1e300,
                                1e-300,
                                std::numeric_limits<double>::denorm_min()};
  for (const int exponent : {0, 3, -14, -15, -20, -24, -25, -126, -133, -134, -149, -150}) {
    for (const double ulps : {1.0, 1.5, 2.5, 3.0})
      for (const int bits : {7, 8, 10, 11, 23, 24})
        values.push_back(std::ldexp(1.0, exponent) + std::ldexp(ulps, exponent - bits));
    values.push_back(std::ldexp(1.0, exponent));
    values.push_back(std::ldexp(1.5, exponent));
    // Next to a tie of bf16 and of f16: rounding through fp32 would turn it into a tie.
    values.push_back(std::ldexp(1.0 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40), exponent));
    values.push_back(std::ldexp(1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40), exponent));
    values.push_back(std::ldexp(1.0 + std::ldexp(3.0, -8) - std::ldexp(1.0, -40), exponent));
  }
  const std::size_t positive = values.size();
  for (std::size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  for (const double special :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()})
    values.push_back(special);
  return values;
}

/// Requires equal bits, or a NaN on both sides.
void expect_same(const Array& actual, const Array& expected, const std::string& what) {
  ASSERT_EQ(actual.count(), expected.count());
  for (std::int64_t i = 0; i < actual.count(); ++i) {
    if (std::isnan(expected.get(i)) && std::isnan(actual.get(i))) continue;
    ASSERT_EQ(actual.bits(i), expected.bits(i))
        << what << " at " << i << ": " << actual.get(i) << ", not " << expected.get(i);
  }
}

}  // namespace

TEST_P(DeviceContract, CopyMovesEveryByteAndNoOther) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{3}, std::size_t{255}, std::size_t{(4 << 20) + 5}}) {
    std::vector<unsigned char> source(bytes), target(bytes + 32, 0xAA);
    std::iota(source.begin(), source.end(), static_cast<unsigned char>(1));
    const Buffer from = upload_values(source), to = upload_values(target);
    EXPECT_OK(device().copy(to.as<char>() + 16, from.data(), bytes, stream()));
    const auto result = download_values<unsigned char>(to.data(), bytes + 32);
    std::memcpy(target.data() + 16, source.data(), bytes);
    EXPECT_TRUE(result == target) << bytes;
  }
  EXPECT_OK(device().copy(nullptr, nullptr, 0, stream()));
  finish();
}

TEST_P(DeviceContract, SetZeroClearsItsRangeOnly) {
  std::vector<unsigned char> bytes(5000, 0xFF);
  const Buffer buffer = upload_values(bytes);
  EXPECT_OK(device().set_zero(buffer.as<char>() + 7, 4001, stream()));
  EXPECT_OK(device().set_zero(buffer.data(), 0, stream()));
  std::memset(bytes.data() + 7, 0, 4001);
  EXPECT_TRUE(download_values<unsigned char>(buffer.data(), bytes.size()) == bytes);
}

TEST_P(DeviceContract, CastRoundsOnceBetweenAnyTwoTypes) {
  const std::vector<double> values = difficult_values();
  for (const ElementType from : all_types)
    for (const ElementType to : all_types) {
      Array source(from, static_cast<std::int64_t>(values.size()));
      Array expected(to, source.count());
      for (std::int64_t i = 0; i < source.count(); ++i) {
        source.set(i, values[static_cast<std::size_t>(i)]);
        expected.set(i, source.get(i));
      }
      const DeviceArray source_on_device = upload(source);
      const DeviceArray result = upload(Array(to, source.count()));
      EXPECT_OK(device().cast(result.view(), source_on_device.view(), stream()));
      expect_same(download(result), expected,
                  std::string(to_string(from)) + " to " + std::string(to_string(to)));
    }
}

TEST_P(DeviceContract, CastHandlesAnyCountAndPlace) {
  reference::Engine engine(5);
  Array source(ElementType::f32, 70001);
  reference::fill_uniform(source, engine);
  const DeviceArray from = upload(source);
  for (const std::int64_t first : {0, 1, 3})
    for (const std::int64_t count : {0, 1, 2, 7, 1000, 69990}) {
      const DeviceArray to = upload(Array(ElementType::bf16, 70001));
      VectorView target{to.buffer.as<Bfloat16>() + first, ElementType::bf16, count};
      EXPECT_OK(device().cast(target, {from.floats() + first, ElementType::f32, count}, stream()));
      Array expected(ElementType::bf16, 70001);
      for (std::int64_t i = first; i < first + count; ++i) expected.set(i, source.get(i));
      expect_same(download(to), expected, "part");
    }
  EXPECT_FAILS(invalid_argument, device().cast({from.floats(), ElementType::f32, 4},
                                               {from.floats(), ElementType::f32, 5}, stream()));
}

TEST_P(DeviceContract, AddRoundsTheSumOfEachElementOnce) {
  const std::vector<double> values = difficult_values();
  const auto side = static_cast<std::int64_t>(values.size());
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    Array sum(type, side * side), term(type, side * side), expected(type, side * side);
    for (std::int64_t i = 0; i < sum.count(); ++i) {
      sum.set(i, values[static_cast<std::size_t>(i / side)]);
      term.set(i, values[static_cast<std::size_t>(i % side)]);
      // As fp32 first: the sum of two bf16 values of distant exponents is not exact and is rounded again.
      expected.set(i, static_cast<float>(sum.get(i)) + static_cast<float>(term.get(i)));
    }
    const DeviceArray sum_on_device = upload(sum), term_on_device = upload(term);
    EXPECT_OK(device().add(sum_on_device.view(), term_on_device.view(), stream()));
    expect_same(download(sum_on_device), expected, std::string(to_string(type)));
    EXPECT_TRUE(download(term_on_device) == term);
  }
}

TEST_P(DeviceContract, AddHandlesAnyCountAndPlace) {
  reference::Engine engine(6);
  constexpr std::int64_t all = 70001;
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    Array sum(type, all), term(type, all);
    reference::fill_uniform(sum, engine);
    reference::fill_uniform(term, engine);
    const DeviceArray term_on_device = upload(term);
    const auto part = [&](const DeviceArray& array, std::int64_t first, std::int64_t count) {
      return VectorView{array.buffer.as<char>() + static_cast<std::size_t>(first) * size_of(type), type,
                        count};
    };
    for (const std::int64_t first : {0, 1, 3})
      for (const std::int64_t shift : {0, 1})
        for (const std::int64_t count : {0, 1, 2, 7, 1000, 69990}) {
          const DeviceArray sum_on_device = upload(sum);
          EXPECT_OK(device().add(part(sum_on_device, first, count),
                                 part(term_on_device, first + shift, count), stream()));
          Array expected = sum;
          for (std::int64_t i = first; i < first + count; ++i)
            expected.set(i, static_cast<float>(sum.get(i)) + static_cast<float>(term.get(i + shift)));
          expect_same(download(sum_on_device), expected, "part");
        }
  }
}

TEST_P(DeviceContract, AddRefusesWhatDoesNotFit) {
  const Buffer memory = allocate(4096);
  const VectorView floats{memory.data(), ElementType::f32, 8},
      halves{memory.as<char>() + 1024, ElementType::bf16, 8},
      doubles{memory.as<char>() + 2048, ElementType::f64, 8},
      fewer{memory.as<char>() + 3072, ElementType::f32, 7};
  EXPECT_FAILS(invalid_argument, device().add(floats, halves, stream()));
  EXPECT_FAILS(invalid_argument, device().add(doubles, doubles, stream()));
  EXPECT_FAILS(invalid_argument, device().add(floats, fewer, stream()));
  EXPECT_FAILS(invalid_argument, device().add(floats, {nullptr, ElementType::f32, 8}, stream()));
  finish();
}

TEST_P(DeviceContract, RandomizeIsPhiloxByElement) {
  for (const ElementType type : all_types)
    for (const std::uint64_t first :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{6}, std::uint64_t{1} << 35})
      for (const std::int64_t count : {0, 1, 3, 4, 9, 40003}) {
        const RandomSequence sequence{
            .seed = 0x123456789ABCDEFull, .sequence = 42, .first = first, .scale = 0.37f};
        Array expected(type, count);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::uint64_t place = first + static_cast<std::uint64_t>(i);
          const Philox4 words = philox4x32_10(place / 4, sequence.sequence, sequence.seed);
          expected.set(i, sequence.scale * signed_unit(words.w[place % 4]));
        }
        const DeviceArray result = upload(Array(type, count));
        EXPECT_OK(device().randomize(result.view(), sequence, stream()));
        expect_same(download(result), expected, std::string(to_string(type)));
      }
}

TEST_P(DeviceContract, RandomizedPartsMakeTheWhole) {
  const std::int64_t count = 1001;
  const DeviceArray whole = upload(Array(ElementType::f32, count)),
                    parts = upload(Array(ElementType::f32, count));
  RandomSequence sequence{.seed = 7, .sequence = 1};
  EXPECT_OK(device().randomize(whole.view(), sequence, stream()));
  for (std::int64_t first = 0; first < count; first += 91) {
    sequence.first = static_cast<std::uint64_t>(first);
    EXPECT_OK(device().randomize(
        {parts.floats() + first, ElementType::f32, std::min<std::int64_t>(91, count - first)}, sequence,
        stream()));
  }
  EXPECT_TRUE(download(whole) == download(parts));
}

TEST_P(DeviceContract, DataOperationsRefuseMissingMemory) {
  const Buffer memory = allocate(4096);
  const VectorView some{memory.data(), ElementType::f32, 8}, none{nullptr, ElementType::f32, 8};
  EXPECT_FAILS(invalid_argument, device().copy(nullptr, memory.data(), 4, stream()));
  EXPECT_FAILS(invalid_argument, device().copy(memory.data(), nullptr, 4, stream()));
  EXPECT_FAILS(invalid_argument, device().set_zero(nullptr, 4, stream()));
  EXPECT_FAILS(invalid_argument, device().cast(some, none, stream()));
  EXPECT_FAILS(invalid_argument, device().cast(none, some, stream()));
  EXPECT_FAILS(invalid_argument, device().randomize(none, {}, stream()));
  EXPECT_FAILS(invalid_argument, device().randomize({memory.data(), ElementType::f32, -8}, {}, stream()));
  finish();
}

TEST_P(DeviceContract, AllocationsAreAlignedAndAccountedFor) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  const Result<MemoryInfo> before = device().memory();
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(before.value().total_bytes, device().info().memory_total_bytes);
  EXPECT_LE(before.value().free_bytes, before.value().total_bytes);
  {
    const Buffer buffer = allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
    const Result<MemoryInfo> during = device().memory();
    ASSERT_TRUE(during.ok());
    EXPECT_LE(during.value().free_bytes, before.value().free_bytes - bytes / 2);
    Result<Buffer> pinned = device().allocate_pinned(12345);
    ASSERT_TRUE(pinned.ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned.value().data()) % 4096, 0u);
  }
  const Result<MemoryInfo> after = device().memory();
  ASSERT_TRUE(after.ok());
  EXPECT_GE(after.value().free_bytes, before.value().free_bytes - bytes / 2);
}

TEST_P(DeviceContract, AllocatingNothingIsAllowedAndTooMuchIsRefused) {
  EXPECT_TRUE(device().allocate(0).ok());
  EXPECT_TRUE(device().allocate_pinned(0).ok());
  const std::uint64_t total = device().info().memory_total_bytes;
  EXPECT_FAILS(out_of_memory, device().allocate(total + (total >> 1)).status());
  EXPECT_FAILS(out_of_memory, device().allocate(std::size_t{1} << 60).status());
  EXPECT_FAILS(out_of_memory, device().allocate_pinned(std::size_t{1} << 60).status());
  EXPECT_TRUE(device().allocate(4096).ok()) << "after a refusal, what fits must still be given";
}

}  // namespace egt::contract
