#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "dnn_contract.hpp"
#include "dnn_reference.hpp"

namespace egt::contract {
namespace {

using reference::Array;
using reference::Sums;

constexpr ImageShape normalized_images[] = {{2, 5, 7, 16}, {1, 1, 3, 5},   {1, 2, 1, 1},   {4, 9, 11, 3},
                                            {5, 1, 1, 24}, {3, 4, 4, 100}, {8, 28, 28, 32}};

std::string name_of(const BatchNormShape& shape) {
  return fmt::format("{} {} x {} x {} x {}{}", to_string(shape.type), shape.x.images, shape.x.height,
                     shape.x.width, shape.x.channels, shape.relu ? " with ReLU" : "");
}

/// Channels with different means; if there are three or more, the second is 0 throughout.
Array input_images(const BatchNormShape& shape) {
  Array x = uniform_array(shape.type, shape.x.count(), 1);
  const std::int64_t channels = shape.x.channels;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t c = i % channels;
    x.set(i, channels > 2 && c == 1 ? 0.0 : x.get(i) + 0.5 * static_cast<double>(c % 5 - 2));
  }
  return x;
}

/// In [0.5, 1.5).
Array positive(std::int64_t count, std::uint64_t seed) {
  Array array = uniform_array(ElementType::f32, count, seed);
  for (std::int64_t i = 0; i < count; ++i) array.set(i, 1 + array.get(i) / 2);
  return array;
}

/// The parameters of a batch normalization on the device, one fp32 value per channel.
struct Parameters {
  Array scale, shift, running_mean, running_variance;

  explicit Parameters(std::int64_t channels)
      : scale(positive(channels, 2)),
        shift(uniform_array(ElementType::f32, channels, 3)),
        running_mean(uniform_array(ElementType::f32, channels, 4)),
        running_variance(positive(channels, 5)) {}
};

struct StateOnDevice {
  DeviceArray scale, shift, running_mean, running_variance, saved_mean, saved_deviation;

  StateOnDevice(DnnContract& test, const Parameters& parameters)
      : scale(test.upload(parameters.scale)),
        shift(test.upload(parameters.shift)),
        running_mean(test.upload(parameters.running_mean)),
        running_variance(test.upload(parameters.running_variance)),
        saved_mean(test.output(ElementType::f32, parameters.scale.count())),
        saved_deviation(test.output(ElementType::f32, parameters.scale.count())) {}

  BatchNormState state() const {
    return {scale.floats(),      shift.floats(),          running_mean.floats(), running_variance.floats(),
            saved_mean.floats(), saved_deviation.floats()};
  }
};

/// Results of a forward and a backward pass; x_gradient as stored on the device.
struct TrainingOutput {
  Array y, running_mean, running_variance, saved_mean, saved_deviation;
  Array x_gradient, scale_gradient, shift_gradient;
  bool operator==(const TrainingOutput&) const = default;
};

TrainingOutput train(DnnContract& test, const BatchNormShape& shape, BatchNorm& norm, const Array& x_values,
                     const Array& y_gradient_values, bool in_place) {
  const std::int64_t channels = shape.x.channels;
  const Parameters parameters(channels);
  const StateOnDevice own(test, parameters);
  Array padded(shape.type, shape.x.count() + DnnContract::guard);  // output if in place
  std::memset(padded.data(), 0xff, padded.bytes());
  std::memcpy(padded.data(), y_gradient_values.data(), y_gradient_values.bytes());
  const DeviceArray x = test.upload(x_values), y_gradient = test.upload(padded);
  const DeviceArray y = test.output(shape.type, shape.x.count()),
                    apart = test.output(shape.type, shape.x.count()),
                    scale_gradient = test.output(ElementType::f32, channels),
                    shift_gradient = test.output(ElementType::f32, channels);
  const DeviceArray& x_gradient = in_place ? y_gradient : apart;
  EXPECT_OK(norm.forward_training(x.buffer.data(), own.state(), y.buffer.data(), test.stream()));
  EXPECT_OK(norm.backward(x.buffer.data(), y_gradient.buffer.data(), own.state(), scale_gradient.floats(),
                          shift_gradient.floats(), x_gradient.buffer.data(), test.stream()));
  test.finish();
  EXPECT_EQ(test.download(x), x_values);
  EXPECT_EQ(test.download(own.scale), parameters.scale);
  EXPECT_EQ(test.download(own.shift), parameters.shift);
  EXPECT_TRUE(in_place || test.download(y_gradient) == padded) << "y_gradient was written";
  return {test.written(y),
          test.download(own.running_mean),
          test.download(own.running_variance),
          test.written(own.saved_mean),
          test.written(own.saved_deviation),
          test.written(x_gradient),
          test.written(scale_gradient),
          test.written(shift_gradient)};
}

/// Expects each element of `actual` within `relative` of its magnitude plus the rounding of its type.
void expect_near(const Array& actual, const std::vector<double>& expected,
                 const std::vector<double>& magnitude, double relative, const char* what) {
  const double rounding = 1.01 * reference::rounding_error(actual.type());
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_LE(std::fabs(actual.get(static_cast<std::int64_t>(i)) - expected[i]),
              relative * magnitude[i] + rounding * std::fabs(expected[i]) + 1e-30)
        << what << " " << i << ": " << actual.get(static_cast<std::int64_t>(i)) << ", not " << expected[i];
}

/// 1 + the magnitude of each value.
std::vector<double> one_more(const std::vector<double>& values) {
  std::vector<double> result;
  for (const double value : values) result.push_back(1 + std::fabs(value));
  return result;
}

/// The running statistics after a batch of `rows`.
reference::Statistics moved(const Parameters& before, const reference::Statistics& batch, std::int64_t rows) {
  const double unbiased = static_cast<double>(rows) / static_cast<double>(rows - 1);
  constexpr double weight = BatchNormShape::momentum;
  reference::Statistics after = batch;
  for (std::size_t c = 0; c < batch.mean.size(); ++c) {
    const auto i = static_cast<std::int64_t>(c);
    after.mean[c] = (1 - weight) * before.running_mean.get(i) + weight * batch.mean[c];
    after.variance[c] = (1 - weight) * before.running_variance.get(i) + weight * unbiased * batch.variance[c];
  }
  return after;
}

/// y after a ReLU, and y's gradient masked by the ReLU; the mask comes from `actual`, which is y.
std::vector<double> after_relu(std::vector<double> y) {
  for (double& value : y) value = std::max(0.0, value);
  return y;
}
Array passed(const Array& y_gradient, const Array& actual) {
  Array gradient = y_gradient;
  for (std::int64_t i = 0; i < gradient.count(); ++i)
    if (actual.get(i) <= 0) gradient.set(i, 0);
  return gradient;
}

/// Element type, image shapes, and whether a ReLU follows.
std::vector<BatchNormShape> shapes_of(const std::vector<ElementType>& types,
                                      std::span<const ImageShape> all) {
  std::vector<BatchNormShape> shapes;
  for (const ElementType type : types)
    for (const ImageShape& images : all)
      for (const bool relu : {false, true}) shapes.push_back({type, images, relu});
  return shapes;
}

/// fp32 sums in another order than the double reference, divided by standard deviations of some tenths.
constexpr double statistic_tolerance = 1e-5, normalized_tolerance = 5e-5, gradient_tolerance = 1e-4;

}  // namespace

TEST_P(DnnContract, BatchNormTrainsWithTheBatchsStatistics) {
  for (const BatchNormShape& shape : shapes_of(image_types(), normalized_images)) {
    const ImageShape& images = shape.x;
    SCOPED_TRACE(name_of(shape));
    const std::unique_ptr<BatchNorm> norm = make(shape);
    ASSERT_TRUE(norm);
    const Array x = input_images(shape), y_gradient = uniform_array(shape.type, images.count(), 6);
    const TrainingOutput output = train(*this, shape, *norm, x, y_gradient, false);

    const Parameters parameters(images.channels);
    const reference::Statistics batch = reference::statistics(images, x);
    const reference::Statistics running = moved(parameters, batch, images.rows());
    const std::vector<double> normal = normalize(images, x, batch, parameters.scale, parameters.shift);
    expect_near(output.y, shape.relu ? after_relu(normal) : normal, one_more(normal), normalized_tolerance,
                "y");
    expect_near(output.saved_mean, batch.mean, one_more(batch.mean), statistic_tolerance, "saved_mean");
    expect_near(output.running_mean, running.mean, one_more(running.mean), statistic_tolerance,
                "running_mean");
    expect_near(output.running_variance, running.variance, one_more(running.variance), statistic_tolerance,
                "running_variance");

    const reference::BatchNormGradients gradients = reference::batch_norm_gradients(
        images, x, shape.relu ? passed(y_gradient, output.y) : y_gradient, batch, parameters.scale);
    expect_near(output.x_gradient, gradients.x, gradients.x_magnitude, gradient_tolerance, "x_gradient");
    expect_near(output.scale_gradient, gradients.scale.value, one_more(gradients.scale.magnitude),
                gradient_tolerance, "scale_gradient");
    expect_near(output.shift_gradient, gradients.shift.value, one_more(gradients.shift.magnitude),
                gradient_tolerance, "shift_gradient");
  }
}

TEST_P(DnnContract, BatchNormTrainsBitForBitAgainAndInPlace) {
  constexpr ImageShape all[] = {{2, 5, 7, 16}, {4, 9, 11, 3}, {16, 28, 28, 64}};
  for (const BatchNormShape& shape : shapes_of(image_types(), all)) {
    SCOPED_TRACE(name_of(shape));
    const std::unique_ptr<BatchNorm> norm = make(shape), again = make(shape);
    ASSERT_TRUE(norm && again);
    const Array x = input_images(shape), y_gradient = uniform_array(shape.type, shape.x.count(), 6);
    const TrainingOutput first = train(*this, shape, *norm, x, y_gradient, false);
    EXPECT_EQ(train(*this, shape, *norm, x, y_gradient, false), first) << "again";
    EXPECT_EQ(train(*this, shape, *norm, x, y_gradient, true), first) << "in place";
    EXPECT_EQ(train(*this, shape, *again, x, y_gradient, false), first) << "made again";
  }
}

TEST_P(DnnContract, BatchNormInfersWithTheRunningStatistics) {
  constexpr ImageShape all[] = {{2, 5, 7, 16}, {1, 1, 1, 5}, {4, 9, 11, 3}};
  for (const BatchNormShape& shape : shapes_of(image_types(), all)) {
    const ImageShape& images = shape.x;
    SCOPED_TRACE(name_of(shape));
    const std::unique_ptr<BatchNorm> norm = make(shape);
    ASSERT_TRUE(norm);
    const Array x_values = input_images(shape);
    const Parameters parameters(images.channels);
    const StateOnDevice own(*this, parameters);
    BatchNormState state = own.state();
    state.saved_mean = state.saved_deviation = nullptr;
    const DeviceArray x = upload(x_values), y = output(shape.type, images.count()),
                      again = output(shape.type, images.count());
    EXPECT_OK(norm->forward_inference(x.buffer.data(), state, y.buffer.data(), stream()));
    EXPECT_OK(norm->forward_inference(x.buffer.data(), state, again.buffer.data(), stream()));
    finish();
    EXPECT_EQ(download(own.running_mean), parameters.running_mean);
    EXPECT_EQ(download(own.running_variance), parameters.running_variance);
    EXPECT_EQ(written(y), written(again));

    reference::Statistics running;
    for (std::int64_t c = 0; c < images.channels; ++c) {
      running.mean.push_back(parameters.running_mean.get(c));
      running.variance.push_back(parameters.running_variance.get(c));
    }
    const std::vector<double> normal =
        normalize(images, x_values, running, parameters.scale, parameters.shift);
    expect_near(written(y), shape.relu ? after_relu(normal) : normal, one_more(normal), normalized_tolerance,
                "y");
  }
}

TEST_P(DnnContract, BatchNormShapesThatAreNoneAreRefused) {
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}})
    for (const ImageShape& images : {ImageShape{size, 4, 4, 8}, ImageShape{2, size, 4, 8},
                                     ImageShape{2, 4, size, 8}, ImageShape{2, 4, 4, size}}) {
      const BatchNormShape shape{ElementType::f32, images};
      SCOPED_TRACE(name_of(shape));
      EXPECT_FAILS(invalid_argument, dnn().make(shape).status());
    }
  for (const ElementType type : {ElementType::f64, ElementType::f16, ElementType::f8, ElementType::i32})
    EXPECT_FAILS(unsupported, dnn().make(BatchNormShape{type, {2, 4, 4, 8}}).status());
}

TEST_P(DnnContract, BatchNormWithoutMemoryIsRefused) {
  const BatchNormShape shape{ElementType::f32, {2, 4, 4, 8}};
  const std::unique_ptr<BatchNorm> norm = make(shape);
  ASSERT_TRUE(norm);
  const StateOnDevice own(*this, Parameters(shape.x.channels));
  const DeviceArray x = upload(input_images(shape)), y = output(ElementType::f32, shape.x.count()),
                    scale_gradient = output(ElementType::f32, 8),
                    shift_gradient = output(ElementType::f32, 8);
  const BatchNormState good = own.state();
  const auto without = [&](auto member) {
    BatchNormState state = good;
    state.*member = nullptr;
    return state;
  };
  for (const BatchNormState& state :
       {without(&BatchNormState::scale), without(&BatchNormState::shift),
        without(&BatchNormState::running_mean), without(&BatchNormState::running_variance),
        without(&BatchNormState::saved_mean), without(&BatchNormState::saved_deviation)})
    EXPECT_FAILS(invalid_argument, norm->forward_training(x.floats(), state, y.floats(), stream()));
  for (const BatchNormState& state :
       {without(&BatchNormState::scale), without(&BatchNormState::shift),
        without(&BatchNormState::running_mean), without(&BatchNormState::running_variance)})
    EXPECT_FAILS(invalid_argument, norm->forward_inference(x.floats(), state, y.floats(), stream()));
  EXPECT_FAILS(invalid_argument, norm->forward_training(nullptr, good, y.floats(), stream()));
  EXPECT_FAILS(invalid_argument, norm->forward_training(x.floats(), good, nullptr, stream()));
  EXPECT_FAILS(invalid_argument, norm->forward_inference(nullptr, good, y.floats(), stream()));
  EXPECT_FAILS(invalid_argument, norm->forward_inference(x.floats(), good, nullptr, stream()));
  const auto backward = [&](const float* from, const float* gradient, const BatchNormState& state,
                            float* scales, float* shifts, float* to) {
    return norm->backward(from, gradient, state, scales, shifts, to, stream());
  };
  float *const a = scale_gradient.floats(), *const b = shift_gradient.floats(), *const c = y.floats();
  EXPECT_FAILS(invalid_argument, backward(nullptr, c, good, a, b, c));
  EXPECT_FAILS(invalid_argument, backward(x.floats(), nullptr, good, a, b, c));
  EXPECT_FAILS(invalid_argument, backward(x.floats(), c, good, nullptr, b, c));
  EXPECT_FAILS(invalid_argument, backward(x.floats(), c, good, a, nullptr, c));
  EXPECT_FAILS(invalid_argument, backward(x.floats(), c, good, a, b, nullptr));
  for (const BatchNormState& state :
       {without(&BatchNormState::scale), without(&BatchNormState::shift),
        without(&BatchNormState::saved_mean), without(&BatchNormState::saved_deviation)})
    EXPECT_FAILS(invalid_argument, backward(x.floats(), c, state, a, b, c));
  finish();  // the stream has not failed
}

}  // namespace egt::contract
