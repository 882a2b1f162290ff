#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dnn_contract.hpp"
#include "dnn_reference.hpp"

namespace egt::contract {
namespace {

using reference::Array;
using Windows = std::vector<std::vector<std::int64_t>>;

constexpr struct {
  ImageShape x;
  Window window;
} poolings[] = {{{2, 8, 8, 16}, {2, 2, 0}},   {{2, 11, 9, 5}, {3, 2, 1}}, {{1, 5, 5, 3}, {3, 1, 1}},
                {{3, 7, 7, 8}, {7, 7, 0}},    {{1, 9, 7, 4}, {2, 3, 0}},  {{1, 2, 2, 3}, {3, 1, 1}},
                {{2, 14, 14, 64}, {3, 2, 1}}, {{1, 1, 1, 1}, {1, 1, 0}},  {{2, 6, 8, 24}, {1, 2, 0}}};

std::string name_of(const PoolingShape& shape) {
  return fmt::format("{} {} {} x {} x {} x {}, kernel {}, stride {}, padding {}",
                     shape.kind == PoolingKind::maximum ? "maximum" : "average", to_string(shape.type),
                     shape.x.images, shape.x.height, shape.x.width, shape.x.channels, shape.window.kernel,
                     shape.window.stride, shape.window.padding);
}

/// Integers in [-251, -1], exact in bf16, distinct within a window of 7 x 7. They are negative because
/// padding that counted as 0 would be the maximum.
Array distinct_images(const PoolingShape& shape) {
  Array x(shape.type, shape.x.count());
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t c = i % shape.x.channels, column = i / shape.x.channels % shape.x.width,
                       row = i / shape.x.channels / shape.x.width;
    x.set(i, -1 - static_cast<double>((13 * row + 5 * column + 7 * c) % 251));
  }
  return x;
}

struct PoolingOutput {
  Array y, x_gradient;
  bool operator==(const PoolingOutput&) const = default;
};

PoolingOutput run(DnnContract& test, const PoolingShape& shape, Pooling& pooling, const Array& x_values,
                  const Array& y_gradient_values) {
  const DeviceArray x = test.upload(x_values), y_gradient = test.upload(y_gradient_values);
  const DeviceArray y = test.output(shape.type, shape.y().count()),
                    x_gradient = test.output(shape.type, shape.x.count());
  EXPECT_OK(pooling.forward(x.buffer.data(), y.buffer.data(), test.stream()));
  EXPECT_OK(pooling.backward(x.buffer.data(), y.buffer.data(), y_gradient.buffer.data(),
                             x_gradient.buffer.data(), test.stream()));
  test.finish();
  EXPECT_EQ(test.download(x), x_values);
  EXPECT_EQ(test.download(y_gradient), y_gradient_values);
  return {test.written(y), test.written(x_gradient)};
}

double sum_of(const Array& array, const std::vector<std::int64_t>& elements) {
  double sum = 0;
  for (const std::int64_t i : elements) sum += array.get(i);
  return sum;
}

std::int64_t index_of_maximum(const Array& x, const std::vector<std::int64_t>& window) {
  return *std::max_element(window.begin(), window.end(),
                           [&](std::int64_t a, std::int64_t b) { return x.get(a) < x.get(b); });
}

}  // namespace

TEST_P(DnnContract, MaximaAndTheirGradientsAreExact) {
  for (const ElementType type : image_types())
    for (const auto& [images, window] : poolings) {
      const PoolingShape shape{PoolingKind::maximum, type, images, window};
      SCOPED_TRACE(name_of(shape));
      const std::unique_ptr<Pooling> pooling = make(shape);
      ASSERT_TRUE(pooling);
      const Array x = distinct_images(shape), y_gradient = small_integers(type, shape.y().count(), 1);
      const PoolingOutput output = run(*this, shape, *pooling, x, y_gradient);
      const Windows windows = reference::pooling_windows(shape);
      std::vector<double> gradient(static_cast<std::size_t>(images.count()));
      for (std::size_t i = 0; i < windows.size(); ++i) {
        const std::int64_t from = index_of_maximum(x, windows[i]);
        ASSERT_EQ(output.y.get(static_cast<std::int64_t>(i)), x.get(from)) << "y " << i;
        gradient[static_cast<std::size_t>(from)] += y_gradient.get(static_cast<std::int64_t>(i));
      }
      for (std::size_t i = 0; i < gradient.size(); ++i)
        ASSERT_EQ(output.x_gradient.get(static_cast<std::int64_t>(i)), gradient[i]) << "x_gradient " << i;
    }
}

TEST_P(DnnContract, AveragesLeaveOutWhatIsPadded) {
  for (const ElementType type : image_types())
    for (const auto& [images, window] : poolings) {
      const PoolingShape shape{PoolingKind::average, type, images, window};
      SCOPED_TRACE(name_of(shape));
      const std::unique_ptr<Pooling> pooling = make(shape);
      ASSERT_TRUE(pooling);
      const Array x = distinct_images(shape), y_gradient = uniform_array(type, shape.y().count(), 1);
      const PoolingOutput output = run(*this, shape, *pooling, x, y_gradient);
      const Windows windows = reference::pooling_windows(shape);
      const double rounding = 1.01 * reference::rounding_error(type);
      reference::Sums gradient(images.count());
      for (std::size_t i = 0; i < windows.size(); ++i) {
        const auto of = static_cast<std::int64_t>(i);
        const auto size = static_cast<double>(windows[i].size());
        const double average = sum_of(x, windows[i]) / size;
        ASSERT_LE(std::fabs(output.y.get(of) - average), (rounding + 1e-6) * std::fabs(average)) << "y " << i;
        for (const std::int64_t to : windows[i]) gradient.add(to, y_gradient.get(of) / size);
      }
      for (std::size_t i = 0; i < gradient.value.size(); ++i)  // each term may be rounded to the type
        ASSERT_LE(std::fabs(output.x_gradient.get(static_cast<std::int64_t>(i)) - gradient.value[i]),
                  (rounding * static_cast<double>(gradient.terms[i] + 1) + 1e-6) * gradient.magnitude[i])
            << "x_gradient " << i << " of " << gradient.terms[i];
    }
}

TEST_P(DnnContract, OneOfEqualMaximaGetsTheGradient) {
  for (const ElementType type : image_types()) {
    const PoolingShape shape{PoolingKind::maximum, type, {2, 8, 6, 16}, {2, 2, 0}};
    SCOPED_TRACE(name_of(shape));
    const std::unique_ptr<Pooling> pooling = make(shape);
    ASSERT_TRUE(pooling);
    Array x(type, shape.x.count());
    for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, i % 3 == 0 ? -2 : 0);
    const Array y_gradient = small_integers(type, shape.y().count(), 1);
    const PoolingOutput output = run(*this, shape, *pooling, x, y_gradient);
    const Windows windows = reference::pooling_windows(shape);
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const auto of = static_cast<std::int64_t>(i);
      int receivers = 0;
      for (const std::int64_t to : windows[i]) {
        receivers += output.x_gradient.get(to) != 0;
        ASSERT_TRUE(x.get(to) == output.y.get(of) || output.x_gradient.get(to) == 0) << "no maximum " << to;
      }
      ASSERT_EQ(receivers, y_gradient.get(of) != 0) << "window " << i;
      ASSERT_EQ(sum_of(output.x_gradient, windows[i]), y_gradient.get(of)) << "window " << i;
    }
  }
}

TEST_P(DnnContract, EqualMaximaOfWindowsThatOverlapAreCountedOnceEach) {
  for (const ElementType type : image_types())
    for (const Window window : {Window{3, 1, 1}, Window{3, 2, 1}}) {
      const PoolingShape shape{PoolingKind::maximum, type, {2, 9, 9, 24}, window};
      SCOPED_TRACE(name_of(shape));
      const std::unique_ptr<Pooling> pooling = make(shape), again = make(shape);
      ASSERT_TRUE(pooling && again);
      Array x(type, shape.x.count());
      for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, -1);
      const Array y_gradient = small_integers(type, shape.y().count(), 1);
      const PoolingOutput output = run(*this, shape, *pooling, x, y_gradient);
      std::vector<double> balance(static_cast<std::size_t>(shape.x.channels));
      for (std::int64_t i = 0; i < shape.y().count(); ++i)
        balance[static_cast<std::size_t>(i % shape.x.channels)] += y_gradient.get(i);
      for (std::int64_t i = 0; i < shape.x.count(); ++i)
        balance[static_cast<std::size_t>(i % shape.x.channels)] -= output.x_gradient.get(i);
      for (const double left : balance) EXPECT_EQ(left, 0);
      for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(run(*this, shape, *pooling, x, y_gradient), output);
      EXPECT_EQ(run(*this, shape, *again, x, y_gradient), output) << "made again";
    }
}

TEST_P(DnnContract, PoolingsRepeatBitForBit) {
  for (const ElementType type : image_types())
    for (const PoolingKind kind : {PoolingKind::maximum, PoolingKind::average}) {
      const PoolingShape shape{kind, type, {4, 28, 28, 64}, {3, 2, 1}};
      SCOPED_TRACE(name_of(shape));
      const std::unique_ptr<Pooling> pooling = make(shape);
      ASSERT_TRUE(pooling);
      Array x = uniform_array(type, shape.x.count(), 1);
      for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, std::max(0.0, x.get(i)));  // as after a ReLU
      const Array y_gradient = uniform_array(type, shape.y().count(), 2);
      const PoolingOutput output = run(*this, shape, *pooling, x, y_gradient);
      for (int turn = 0; turn < 2; ++turn) EXPECT_EQ(run(*this, shape, *pooling, x, y_gradient), output);
    }
}

TEST_P(DnnContract, PoolingShapesThatAreNoneAreRefused) {
  for (const PoolingKind kind : {PoolingKind::maximum, PoolingKind::average}) {
    const PoolingShape good{kind, ElementType::f32, {2, 8, 8, 4}, {3, 2, 1}};
    const auto refused = [&](auto&& change) {
      PoolingShape shape = good;
      change(shape);
      SCOPED_TRACE(name_of(shape));
      EXPECT_FAILS(invalid_argument, dnn().make(shape).status());
    };
    for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}}) {
      refused([&](PoolingShape& s) { s.x.images = size; });
      refused([&](PoolingShape& s) { s.x.height = size; });
      refused([&](PoolingShape& s) { s.x.width = size; });
      refused([&](PoolingShape& s) { s.x.channels = size; });
      refused([&](PoolingShape& s) { s.window.kernel = size; });
      refused([&](PoolingShape& s) { s.window.stride = size; });
    }
    refused([](PoolingShape& s) { s.window.padding = -1; });
    refused([](PoolingShape& s) { s.window.kernel = 11; });
    refused([](PoolingShape& s) { s.window.padding = 3; });  // windows that contain padding only
    for (const ElementType type : {ElementType::f64, ElementType::f16, ElementType::f8, ElementType::i32}) {
      PoolingShape shape = good;
      shape.type = type;
      EXPECT_FAILS(unsupported, dnn().make(shape).status());
    }
  }
}

TEST_P(DnnContract, PoolingsWithoutMemoryAreRefused) {
  const std::unique_ptr<Pooling> pooling =
      make(PoolingShape{PoolingKind::maximum, ElementType::f32, {1, 4, 4, 8}, {2, 2, 0}});
  ASSERT_TRUE(pooling);
  const DeviceArray x = output(ElementType::f32, 128), x_gradient = output(ElementType::f32, 128),
                    y = output(ElementType::f32, 32), y_gradient = output(ElementType::f32, 32);
  const float *const a = x.floats(), *const b = y.floats(), *const c = y_gradient.floats();
  EXPECT_FAILS(invalid_argument, pooling->forward(nullptr, y.floats(), stream()));
  EXPECT_FAILS(invalid_argument, pooling->forward(a, nullptr, stream()));
  EXPECT_FAILS(invalid_argument, pooling->backward(nullptr, b, c, x_gradient.floats(), stream()));
  EXPECT_FAILS(invalid_argument, pooling->backward(a, nullptr, c, x_gradient.floats(), stream()));
  EXPECT_FAILS(invalid_argument, pooling->backward(a, b, nullptr, x_gradient.floats(), stream()));
  EXPECT_FAILS(invalid_argument, pooling->backward(a, b, c, nullptr, stream()));
  finish();  // the stream has not failed
}

}  // namespace egt::contract
