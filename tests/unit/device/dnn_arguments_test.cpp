#include "device/dnn_arguments.hpp"

#include <gtest/gtest.h>

#include <string>

namespace egt {
namespace {

constexpr ConvolutionShape good{Precision::bf16, {256, 56, 56, 64}, 128, {3, 2, 1}};

TEST(DnnArguments, ShapesAreNamed) {
  EXPECT_EQ(to_text(good), "bf16 256 x 56 x 56 x 64 to 128, window 3, stride 2, padding 1");
  EXPECT_EQ(to_text(good.y()), "256 x 28 x 28 x 128");
}

TEST(DnnArguments, ARefusalNamesOperationAndReason) {
  ConvolutionShape shape = good;
  shape.window.kernel = 59;
  EXPECT_EQ(check_shape(shape).what(),
            "convolution: a window of 59 does not fit into images of 56 x 56 padded by 1");
  shape = good;
  shape.precision = Precision::fp64;
  EXPECT_EQ(check_shape(shape).code(), StatusCode::unsupported);
  EXPECT_EQ(check_shape(shape).what(), "convolution: it computes in fp32, tf32 or bf16, not in fp64");
  EXPECT_EQ(check_operands("pooling", {{"x", &shape}, {"y", nullptr}}).what(), "pooling: y has no memory");
}

TEST(DnnArguments, SizesThatWouldOverflowAreRefused) {
  ConvolutionShape shape = good;
  shape.x = {max_side, max_side, max_side, max_side};
  EXPECT_EQ(check_shape(shape).code(), StatusCode::invalid_argument);
  shape = good;
  shape.outputs = INT64_MAX;
  EXPECT_EQ(check_shape(shape).code(), StatusCode::invalid_argument);
  shape = good;
  shape.window.kernel = shape.window.padding = INT64_MAX;
  EXPECT_EQ(check_shape(shape).code(), StatusCode::invalid_argument);
  shape = good;
  shape.window = {max_side, 1, max_side};
  EXPECT_EQ(check_shape(shape).code(), StatusCode::invalid_argument);
}

TEST(DnnArguments, OnePixelAChannelHasNoVarianceToTrainWith) {
  float value = 0;
  const BatchNormState state{&value, &value, &value, &value, &value, &value};
  EXPECT_TRUE(check_training({ElementType::f32, {2, 1, 1, 8}}, state).ok());
  const Status one = check_training({ElementType::f32, {1, 1, 1, 8}}, state);
  EXPECT_EQ(one.code(), StatusCode::invalid_argument);
  EXPECT_TRUE(check_inference(state).ok());
}

TEST(DnnArguments, APoolingWindowHoldsAPixel) {
  const PoolingShape padded{PoolingKind::average, ElementType::f32, {1, 8, 8, 4}, {2, 1, 2}};
  EXPECT_EQ(check_shape(padded).what(), "pooling: with padding 2 a window of 2 would hold no pixel");
}

}  // namespace
}  // namespace egt
