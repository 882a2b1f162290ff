#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "model/mlp_trainer.hpp"
#include "model/parameter_layout.hpp"

namespace egt {
namespace {

const std::vector<std::int64_t> seed_layers = {4096, 8192, 6144, 4096, 2048, 1024, 512};

TEST(ParameterLayout, CountsTheSeedsParameters) {
  EXPECT_EQ(ParameterLayout(seed_layers).parameter_count(), 120'083'968);
}

class ParameterLayoutOf
    : public ::testing::TestWithParam<std::pair<std::vector<std::int64_t>, std::int64_t>> {};

TEST_P(ParameterLayoutOf, BucketsTileTheFlatBuffer) {
  const ParameterLayout layout(GetParam().first, GetParam().second);
  std::map<std::int64_t, std::int64_t> ranges;
  for (const GradientBucket& bucket : layout.buckets()) {
    EXPECT_GT(bucket.count, 0);
    EXPECT_FALSE(bucket.pieces.empty());
    EXPECT_TRUE(ranges.emplace(bucket.offset, bucket.count).second);
  }
  std::int64_t end = 0;
  for (const auto& [offset, count] : ranges) {
    EXPECT_EQ(offset, end);
    end += count;
  }
  EXPECT_EQ(end, layout.size());
}

TEST_P(ParameterLayoutOf, GradientsComeFromTheLastLayerToTheFirstAndThenTheLateOnes) {
  const ParameterLayout layout(GetParam().first, GetParam().second);
  const auto turn = [](const GradientPiece& piece) { return piece.layer == late_layer ? -1 : piece.layer; };
  const GradientPiece* before = nullptr;
  for (const GradientBucket& bucket : layout.buckets())
    for (const GradientPiece& piece : bucket.pieces) {
      if (before != nullptr) {
        EXPECT_GE(turn(*before), turn(piece));
        EXPECT_TRUE(before->layer != piece.layer || before->first_row > piece.first_row);
      }
      before = &piece;
    }
}

TEST_P(ParameterLayoutOf, PiecesCoverEveryRowOnceInsideTheirBucket) {
  const ParameterLayout layout(GetParam().first, GetParam().second);
  std::vector<std::int64_t> rows(layout.layers().size(), 0);
  for (const GradientBucket& bucket : layout.buckets()) {
    for (const GradientPiece& piece : bucket.pieces) {
      const LinearLayer& layer = layout.layers()[static_cast<std::size_t>(piece.layer)];
      const std::int64_t begin = layer.weights + piece.first_row * layer.inputs;
      EXPECT_GT(piece.rows, 0);
      EXPECT_GE(begin, bucket.offset);
      EXPECT_LE(begin + piece.rows * layer.inputs, bucket.offset + bucket.count);
      rows[static_cast<std::size_t>(piece.layer)] += piece.rows;
    }
  }
  for (std::size_t l = 0; l < rows.size(); ++l) EXPECT_EQ(rows[l], layout.layers()[l].outputs);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ParameterLayoutOf,
    ::testing::Values(std::pair{seed_layers, std::int64_t{16 << 20}},
                      std::pair{seed_layers, std::int64_t{1000}},
                      std::pair{seed_layers, std::numeric_limits<std::int64_t>::max()},
                      std::pair{std::vector<std::int64_t>{1, 1}, std::int64_t{16}},
                      std::pair{std::vector<std::int64_t>{3, 700, 5, 129}, std::int64_t{1024}},
                      std::pair{std::vector<std::int64_t>{256, 512, 64, 32}, std::int64_t{4096}}));

/// An all-reduce overlaps with the next GEMM, and no layer's GEMM is split.
TEST(ParameterLayout, OfTheSeedsNetworkHandsOverTheTwoLargestLayersEachInOneGo) {
  const ParameterLayout layout(seed_layers);
  ASSERT_EQ(layout.buckets().size(), 3u);
  EXPECT_EQ(layout.buckets()[1].pieces.front().layer, 0);
  EXPECT_EQ(layout.buckets()[2].pieces.front().layer, late_layer);
  for (const GradientBucket& bucket : layout.buckets())
    for (const GradientPiece& piece : bucket.pieces)
      EXPECT_EQ(piece.rows, layout.layers()[static_cast<std::size_t>(piece.layer)].outputs);
}

TEST(Flops, OfTheSeedsNetwork) {
  EXPECT_NEAR(flops_per_sample(seed_layers), 653.3e6, 0.1e6);
}

TEST(LearningRate, FallsWithTheWidthAndIsPositive) {
  EXPECT_GT(default_learning_rate({8, 8}, Optimizer::sgd, 1024),
            default_learning_rate(seed_layers, Optimizer::sgd, 1024));
  EXPECT_GT(default_learning_rate(seed_layers, Optimizer::adam, 1024), 0);
}

TEST(LearningRate, FallsWithTheDepthAndWithSmallBatches) {
  const std::vector<std::int64_t> deep(20, 64);
  EXPECT_LT(default_learning_rate(deep, Optimizer::sgd, 64),
            default_learning_rate({64, 64, 64}, Optimizer::sgd, 64) / 2);
  EXPECT_LT(default_learning_rate(deep, Optimizer::sgd, 1),
            default_learning_rate(deep, Optimizer::sgd, 64) / 5);
}

}  // namespace
}  // namespace egt
