#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "egt/model/mlp_trainer.hpp"
#include "egt/model/parameter_layout.hpp"

namespace egt {
namespace {

const std::vector<std::int64_t> seed_layers = {4096, 8192, 6144, 4096, 2048, 1024, 512};

TEST(ParameterLayout, CountsTheSeedsParameters) {
  EXPECT_EQ(ParameterLayout(seed_layers).parameter_count(), 120'083'968);
}

class ParameterLayoutOf
    : public ::testing::TestWithParam<std::pair<std::vector<std::int64_t>, std::int64_t>> {};

TEST_P(ParameterLayoutOf, BucketsTileTheFlatBufferBackwards) {
  const ParameterLayout layout(GetParam().first, GetParam().second);
  std::int64_t end = layout.size();
  for (const GradientBucket& bucket : layout.buckets()) {
    EXPECT_GT(bucket.count, 0);
    EXPECT_FALSE(bucket.pieces.empty());
    EXPECT_EQ(bucket.offset + bucket.count, end);
    end = bucket.offset;
  }
  EXPECT_EQ(end, 0);
}

TEST_P(ParameterLayoutOf, PiecesCoverEveryRowOnceInsideTheirBucket) {
  const ParameterLayout layout(GetParam().first, GetParam().second);
  std::vector<std::int64_t> rows(layout.layers().size(), 0);
  std::size_t index = 0;
  for (const GradientBucket& bucket : layout.buckets()) {
    for (const GradientPiece& piece : bucket.pieces) {
      const LinearLayer& layer = layout.layers()[static_cast<std::size_t>(piece.layer)];
      const std::int64_t begin = layer.weights + piece.first_row * layer.inputs;
      EXPECT_GT(piece.rows, 0);
      EXPECT_GE(begin, bucket.offset);
      EXPECT_LE(begin + piece.rows * layer.inputs, bucket.offset + bucket.count);
      rows[static_cast<std::size_t>(piece.layer)] += piece.rows;
      EXPECT_LE(static_cast<int>(index), layout.last_bucket_of(piece.layer));
    }
    ++index;
  }
  for (std::size_t l = 0; l < rows.size(); ++l) {
    EXPECT_EQ(rows[l], layout.layers()[l].outputs);
    const GradientBucket& last =
        layout.buckets()[static_cast<std::size_t>(layout.last_bucket_of(static_cast<int>(l)))];
    EXPECT_LE(last.offset, layout.layers()[l].weights) << "the layer's first row is in its last bucket";
    EXPECT_GT(last.offset + last.count, layout.layers()[l].weights);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ParameterLayoutOf,
    ::testing::Values(std::pair{seed_layers, std::int64_t{16 << 20}},
                      std::pair{seed_layers, std::int64_t{1000}},
                      std::pair{seed_layers, std::numeric_limits<std::int64_t>::max()},
                      std::pair{std::vector<std::int64_t>{1, 1}, std::int64_t{16}},
                      std::pair{std::vector<std::int64_t>{3, 700, 5, 129}, std::int64_t{1024}},
                      std::pair{std::vector<std::int64_t>{256, 512, 64, 32}, std::int64_t{4096}}));

TEST(ParameterLayout, CutsTheLargeLayersSoThatTheirSumsOverlap) {
  const ParameterLayout layout(seed_layers);
  EXPECT_GE(layout.buckets().size(), 6u);
  for (const GradientBucket& bucket : layout.buckets()) EXPECT_LE(bucket.count, 28 << 20);
}

TEST(Flops, OfTheSeedsNetwork) {
  EXPECT_NEAR(flops_per_sample(seed_layers), 653.3e6, 0.1e6);
}

TEST(LearningRate, FallsWithTheWidthAndIsPositive) {
  EXPECT_GT(default_learning_rate({8, 8}, Optimizer::sgd),
            default_learning_rate(seed_layers, Optimizer::sgd));
  EXPECT_GT(default_learning_rate(seed_layers, Optimizer::adam), 0);
}

}  // namespace
}  // namespace egt
