// The retrieval test on a GPU compared with the host, and at the default size for GPUs.
#include <gtest/gtest.h>

#include <cstdio>

#include "device/cuda/cuda_device.hpp"
#include "device/host/host_device.hpp"
#include "loadtest/retrieval/retrieval_model.hpp"
#include "tests/support/single_rank_communicator.hpp"

namespace egt {
namespace {

constexpr double timeout_s = 60;

/// One rank on a device with a model.
struct Searcher {
  Searcher(Result<std::unique_ptr<Device>> opened, const RetrievalConfig& config)
      : device(std::move(opened.value())), communicator(*device) {
    auto made = RetrievalModel::create(*device, communicator, config);
    EXPECT_TRUE(made.ok()) << made.status().what();
    if (made.ok()) model = std::move(made.value());
  }

  /// Losses of steps 0 to steps - 1.
  std::vector<RetrievalStep> train(std::int64_t steps) {
    std::vector<RetrievalStep> results;
    for (std::int64_t step = 0; step < steps + RetrievalModel::depth; ++step) {
      EXPECT_TRUE(step >= steps || model->enqueue_step(step).ok());
      if (step < RetrievalModel::depth) continue;
      auto result = model->retire_step(step - RetrievalModel::depth, timeout_s);
      EXPECT_TRUE(result.ok()) << result.status().what();
      if (!result.ok()) break;
      results.push_back(result.value());
    }
    return results;
  }

  RetrievalScores evaluate(EvaluationScope scope) {
    auto scores = model->evaluate(scope, timeout_s);
    EXPECT_TRUE(scores.ok()) << scores.status().what();
    return scores.ok() ? scores.value() : RetrievalScores{.queries = 1};
  }

  RetrievalDigests digests() {
    auto digests = model->digests(timeout_s);
    EXPECT_TRUE(digests.ok()) << digests.status().what();
    return digests.ok() ? digests.value() : RetrievalDigests();
  }

  std::unique_ptr<Device> device;
  SingleRankCommunicator communicator;
  std::unique_ptr<RetrievalModel> model;
};

void expect_equal_alone_and_by_all(Searcher& searcher) {
  const RetrievalScores alone = searcher.evaluate(EvaluationScope::alone);
  const RetrievalDigests of_alone = searcher.digests();
  const RetrievalScores all = searcher.evaluate(EvaluationScope::all);
  EXPECT_EQ(alone.hits, all.hits);
  EXPECT_EQ(of_alone, searcher.digests());
}

}  // namespace

TEST(RetrievalOnCuda, LearnsAsOnTheHost) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    RetrievalConfig config = small_retrieval();
    config.precision = precision;
    Searcher gpu(open_cuda_device(0), config), host(open_host_device({}), config);
    ASSERT_TRUE(gpu.model && host.model);
    const auto on_gpu = gpu.train(200), on_host = host.train(200);
    ASSERT_EQ(on_gpu.size(), on_host.size());
    const double tolerance = precision == Precision::fp32 ? 1e-4 : 1e-2;
    EXPECT_NEAR(on_gpu.front().loss / on_host.front().loss, 1, tolerance);
    EXPECT_NEAR(gpu.evaluate(EvaluationScope::alone).recall(0),
                host.evaluate(EvaluationScope::alone).recall(0), 0.05)
        << to_string(precision);
    expect_equal_alone_and_by_all(gpu);
  }
}

TEST(RetrievalOnCuda, LargeTestLearnsAndIsRepeatable) {
  const RetrievalConfig config = large_retrieval();
  RetrievalDigests first;
  for (int run = 0; run < 2; ++run) {
    Searcher gpu(open_cuda_device(0), config);
    ASSERT_TRUE(gpu.model);
    const RetrievalScores before = gpu.evaluate(EvaluationScope::alone);
    const auto steps = gpu.train(100);
    ASSERT_EQ(steps.size(), 100u);
    const RetrievalScores after = gpu.evaluate(EvaluationScope::alone);
    std::printf(
        "loss %.3f to %.3f, %.2f ms a step, %.1f TFLOP/s; recall@1 %.5f to %.5f, @10 %.5f to %.5f; "
        "evaluation %.1f ms to encode, %.1f ms to search, %.1f TFLOP/s\n",
        steps.front().loss, steps.back().loss, steps.back().ms,
        training_flops(config) / steps.back().ms * 1e-9, before.recall(0), after.recall(0), before.recall(2),
        after.recall(2), after.encode_seconds * 1e3, after.search_seconds * 1e3,
        evaluation_flops(config) / after.seconds() * 1e-12);
    EXPECT_LT(steps.back().loss, steps.front().loss / 2);
    EXPECT_LT(before.recall(0), 0.01);
    EXPECT_GT(after.recall(0), 0.1);
    expect_equal_alone_and_by_all(gpu);
    if (run == 0)
      first = gpu.digests();
    else
      EXPECT_EQ(first, gpu.digests());
  }
}

}  // namespace egt
