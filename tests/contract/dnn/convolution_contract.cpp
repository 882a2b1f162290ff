#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "dnn_contract.hpp"
#include "dnn_reference.hpp"

namespace egt::contract {
namespace {

using reference::Array;
using reference::Sums;

/// x, outputs, {kernel, stride, padding}
constexpr struct {
  ImageShape x;
  std::int64_t outputs;
  Window window;
} convolutions[] = {
    {{2, 5, 7, 16}, 32, {1, 1, 0}},
    {{2, 8, 6, 16}, 8, {1, 2, 0}},  // the last row and column are in no
                                    // window
    {{2, 8, 8, 16}, 24, {3, 1, 1}},
    {{1, 7, 9, 5}, 3, {3, 1, 1}},
    {{2, 23, 19, 3}, 8, {7, 2, 3}},
    {{3, 10, 8, 8}, 16, {3, 2, 0}},  // the same
    {{1, 9, 11, 4}, 7, {2, 3, 1}},   // gaps of rows between windows
    {{2, 5, 5, 8}, 8, {5, 1, 0}},    // one output pixel
    {{1, 3, 2, 8}, 8, {5, 1, 2}},    // the window exceeds the image
    {{4, 1, 1, 24}, 8, {1, 1, 0}},
    {{1, 1, 1, 1}, 1, {1, 1, 0}},
    {{2, 12, 12, 64}, 64, {3, 1, 1}},
};

std::string name_of(const ConvolutionShape& shape) {
  return fmt::format("{} {} x {} x {} x {} to {}, kernel {}, stride {}, padding {}",
                     to_string(shape.precision), shape.x.images, shape.x.height, shape.x.width,
                     shape.x.channels, shape.outputs, shape.window.kernel, shape.window.stride,
                     shape.window.padding);
}

struct ConvolutionInput {
  Array x, filter, y_gradient;

  explicit ConvolutionInput(const ConvolutionShape& shape)
      : x(uniform_array(storage_type(shape.precision), shape.x.count(), 1)),
        filter(uniform_array(storage_type(shape.precision), shape.filter_count(), 2)),
        y_gradient(uniform_array(storage_type(shape.precision), shape.y().count(), 3)) {}
};

struct ConvolutionOutput {
  Array y, x_gradient, filter_gradient;
  bool operator==(const ConvolutionOutput&) const = default;
};

/// Runs forward, input gradient and filter gradient in `stream`.
ConvolutionOutput run(DnnContract& test, const ConvolutionShape& shape, Convolution& convolution,
                      const ConvolutionInput& input, Stream& stream) {
  const ElementType type = storage_type(shape.precision);
  const DeviceArray x = test.upload(input.x), filter = test.upload(input.filter),
                    y_gradient = test.upload(input.y_gradient);
  const DeviceArray y = test.output(type, shape.y().count()), x_gradient = test.output(type, shape.x.count()),
                    filter_gradient = test.output(ElementType::f32, shape.filter_count());
  const void* const filters = filter.buffer.data();
  EXPECT_OK(convolution.forward(x.buffer.data(), filters, y.buffer.data(), stream));
  EXPECT_OK(convolution.backward_data(y_gradient.buffer.data(), filters, x_gradient.buffer.data(), stream));
  EXPECT_OK(convolution.backward_filter(x.buffer.data(), y_gradient.buffer.data(), filter_gradient.floats(),
                                        stream));
  test.finish(stream);
  EXPECT_EQ(test.download(x), input.x);
  EXPECT_EQ(test.download(filter), input.filter);
  EXPECT_EQ(test.download(y_gradient), input.y_gradient);
  return {test.written(y), test.written(x_gradient), test.written(filter_gradient)};
}

/// Tolerance of an fp32 sum, in any order, of products whose operands tf32 rounds or truncates to 10 fraction
/// bits. The result is rounded to the operand type. This includes bf16's filter gradient, which a library may
/// return in bf16.
double tolerance(Precision precision, const Sums& sums, std::size_t i) {
  const double fp32 = std::ldexp(static_cast<double>(sums.terms[i] + 16), -24);
  const double operands = precision == Precision::tf32 ? std::ldexp(1.0, -9) : 0;
  const double result = 1.01 * reference::rounding_error(storage_type(precision));
  return (fp32 + operands) * sums.magnitude[i] + result * std::fabs(sums.value[i]) + 1e-30;
}

void expect_sums(Precision precision, const Array& actual, const Sums& expected, const char* what) {
  ASSERT_EQ(actual.count(), static_cast<std::int64_t>(expected.value.size()) + DnnContract::guard);
  for (std::size_t i = 0; i < expected.value.size(); ++i)
    ASSERT_LE(std::fabs(actual.get(static_cast<std::int64_t>(i)) - expected.value[i]),
              tolerance(precision, expected, i))
        << what << " " << i << ": " << actual.get(static_cast<std::int64_t>(i)) << ", not "
        << expected.value[i];
}

/// A library may support bf16 only for channel counts divisible by 8, if it reports that when queried.
bool may_be_refused(const ConvolutionShape& shape) {
  return shape.precision == Precision::bf16 && (shape.x.channels % 8 != 0 || shape.outputs % 8 != 0);
}

}  // namespace

TEST_P(DnnContract, ConvolutionsAreTheirSums) {
  for (const Precision precision : dnn_precisions())
    for (const auto& [x, outputs, window] : convolutions) {
      const ConvolutionShape shape{precision, x, outputs, window};
      SCOPED_TRACE(name_of(shape));
      if (const Status made = dnn().make(shape).status(); !made.ok() && may_be_refused(shape)) {
        EXPECT_FAILS(unsupported, made);
        std::printf("left out: %s\n", made.what().c_str());
        continue;
      }
      const std::unique_ptr<Convolution> convolution = make(shape);
      ASSERT_TRUE(convolution);
      const ConvolutionInput input(shape);
      const ConvolutionOutput output = run(*this, shape, *convolution, input, stream());
      const reference::ConvolutionSums sums =
          reference::convolve(shape, input.x, input.filter, input.y_gradient);
      expect_sums(precision, output.y, sums.y, "y");
      expect_sums(precision, output.x_gradient, sums.x_gradient, "x_gradient");
      expect_sums(precision, output.filter_gradient, sums.filter_gradient, "filter_gradient");
    }
}

TEST_P(DnnContract, ConvolutionsRepeatBitForBit) {
  const ImageShape images{4, 14, 14, 64};
  for (const Precision precision : dnn_precisions())
    for (const Window window : {Window{3, 1, 1}, Window{1, 1, 0}, Window{3, 2, 1}}) {
      const ConvolutionShape shape{precision, images, 64, window};
      SCOPED_TRACE(name_of(shape));
      const std::unique_ptr<Convolution> convolution = make(shape);
      ASSERT_TRUE(convolution);
      const ConvolutionInput input(shape);
      const ConvolutionOutput first = run(*this, shape, *convolution, input, stream());
      EXPECT_EQ(run(*this, shape, *convolution, input, stream()), first) << "at once again";

      const ConvolutionShape other_shape{precision, {1, 9, 9, 16}, 8, {3, 1, 0}};
      const std::unique_ptr<Convolution> other = make(other_shape);
      ASSERT_TRUE(other);
      run(*this, other_shape, *other, ConvolutionInput(other_shape), stream());
      EXPECT_EQ(run(*this, shape, *convolution, input, stream()), first) << "after other work";

      const std::unique_ptr<Stream> other_stream = new_stream();
      EXPECT_EQ(run(*this, shape, *convolution, input, *other_stream), first) << "in another stream";
      const std::unique_ptr<Convolution> again = make(shape);
      ASSERT_TRUE(again);
      EXPECT_EQ(run(*this, shape, *again, input, stream()), first) << "made again";
    }
}

TEST_P(DnnContract, ConvolutionsBesideEachOtherDoNotDisturb) {
  const ConvolutionShape shape{Precision::fp32, {2, 14, 14, 32}, 32, {3, 1, 1}};
  const std::unique_ptr<Convolution> convolutions_of_two[] = {make(shape), make(shape)};
  const std::unique_ptr<Stream> streams[] = {new_stream(), new_stream()};
  ASSERT_TRUE(convolutions_of_two[0] && convolutions_of_two[1]);
  const ConvolutionInput input(shape);
  const ConvolutionOutput alone = run(*this, shape, *convolutions_of_two[0], input, stream());
  const DeviceArray x = upload(input.x), filter = upload(input.filter), y_gradient = upload(input.y_gradient);
  std::vector<DeviceArray> results;
  constexpr int turns = 8;
  for (int i = 0; i < turns; ++i) results.push_back(output(ElementType::f32, shape.filter_count()));
  for (int i = 0; i < turns; ++i)
    EXPECT_OK(convolutions_of_two[i % 2]->backward_filter(x.buffer.data(), y_gradient.buffer.data(),
                                                          results[static_cast<std::size_t>(i)].floats(),
                                                          *streams[i % 2]));
  for (const std::unique_ptr<Stream>& one : streams) finish(*one);
  for (const DeviceArray& result : results) EXPECT_EQ(written(result), alone.filter_gradient);
}

TEST_P(DnnContract, ConvolutionShapesThatAreNoneAreRefused) {
  const ConvolutionShape good{Precision::fp32, {2, 8, 8, 4}, 4, {3, 1, 1}};
  const auto refused = [&](auto&& change) {
    ConvolutionShape shape = good;
    change(shape);
    SCOPED_TRACE(name_of(shape));
    EXPECT_FAILS(invalid_argument, dnn().make(shape).status());
  };
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}}) {
    refused([&](ConvolutionShape& s) { s.x.images = size; });
    refused([&](ConvolutionShape& s) { s.x.height = size; });
    refused([&](ConvolutionShape& s) { s.x.width = size; });
    refused([&](ConvolutionShape& s) { s.x.channels = size; });
    refused([&](ConvolutionShape& s) { s.outputs = size; });
    refused([&](ConvolutionShape& s) { s.window.kernel = size; });
    refused([&](ConvolutionShape& s) { s.window.stride = size; });
  }
  refused([](ConvolutionShape& s) { s.window.padding = -1; });
  refused([](ConvolutionShape& s) { s.window.kernel = 11; });
  refused([](ConvolutionShape& s) { s.x.height = 1, s.window = {2, 1, 0}; });
  for (const Precision precision : {Precision::fp64, Precision::fp16, Precision::fp8, Precision::int8}) {
    ConvolutionShape shape = good;
    shape.precision = precision;
    EXPECT_FAILS(unsupported, dnn().make(shape).status());
  }
}

TEST_P(DnnContract, ConvolutionsWithoutMemoryAreRefused) {
  const ConvolutionShape shape{Precision::fp32, {1, 4, 4, 8}, 8, {1, 1, 0}};
  const std::unique_ptr<Convolution> convolution = make(shape);
  ASSERT_TRUE(convolution);
  const DeviceArray some = output(ElementType::f32, 128), other = output(ElementType::f32, 128),
                    result = output(ElementType::f32, 128);
  const void *a = some.floats(), *b = other.floats();
  float* const c = result.floats();
  EXPECT_FAILS(invalid_argument, convolution->forward(nullptr, b, c, stream()));
  EXPECT_FAILS(invalid_argument, convolution->forward(a, nullptr, c, stream()));
  EXPECT_FAILS(invalid_argument, convolution->forward(a, b, nullptr, stream()));
  EXPECT_FAILS(invalid_argument, convolution->backward_data(nullptr, b, c, stream()));
  EXPECT_FAILS(invalid_argument, convolution->backward_data(a, nullptr, c, stream()));
  EXPECT_FAILS(invalid_argument, convolution->backward_data(a, b, nullptr, stream()));
  EXPECT_FAILS(invalid_argument, convolution->backward_filter(nullptr, b, c, stream()));
  EXPECT_FAILS(invalid_argument, convolution->backward_filter(a, nullptr, c, stream()));
  EXPECT_FAILS(invalid_argument, convolution->backward_filter(a, b, nullptr, stream()));
  finish();  // the stream has not failed
}

}  // namespace egt::contract
