#include <chrono>
#include <thread>

#include "loadtest/retrieval/retrieval_model.hpp"
#include "ranks_on_host.hpp"
#include "tests/support/single_rank_communicator.hpp"

namespace egt::test {
namespace {

/// Neither shards nor blocks are divisible by 2 or 4 ranks; with 4 ranks, one has no block.
RetrievalConfig uneven_retrieval() {
  RetrievalConfig config = small_retrieval();
  config.hidden = {48};
  config.inputs = 33;
  config.embedding = 16;
  config.shards = 5;
  config.pairs = 24;
  config.evaluated = 5 * 40;
  config.block = 40;
  return config;
}

struct Trained {
  std::vector<double> losses;
  RetrievalScores scores;
  RetrievalDigests digests;
};

class RetrievalOfRanks : public RanksOnHost {
 protected:
  static constexpr std::int64_t steps = 30;

  std::unique_ptr<RetrievalModel> model_of(Communicator& communicator, const RetrievalConfig& config) {
    auto made = RetrievalModel::create(*device, communicator, config);
    EXPECT_TRUE(made.ok()) << made.status().what();
    return made.ok() ? std::move(made.value()) : nullptr;
  }

  void train(RetrievalModel& model, Trained& outcome) {
    for (std::int64_t step = 0; step < steps + RetrievalModel::depth; ++step) {
      if (step < steps) {
        ASSERT_OK(model.enqueue_step(step));
      }
      if (step < RetrievalModel::depth) continue;
      auto result = model.retire_step(step - RetrievalModel::depth, timeout_s);
      ASSERT_OK(result.status());
      outcome.losses.push_back(result.value().loss);
    }
  }

  void evaluate(RetrievalModel& model, EvaluationScope scope, Trained& outcome) {
    auto scores = model.evaluate(scope, timeout_s);
    ASSERT_OK(scores.status());
    outcome.scores = scores.value();
    auto digests = model.digests(timeout_s);
    ASSERT_OK(digests.status());
    outcome.digests = digests.value();
  }

  /// The outcome of one rank that trains and evaluates alone.
  Trained outcome_of_one_rank(const RetrievalConfig& config) {
    SingleRankCommunicator one(*device);
    Trained outcome;
    const auto model = model_of(one, config);
    if (model == nullptr) return outcome;
    train(*model, outcome);
    evaluate(*model, EvaluationScope::alone, outcome);
    return outcome;
  }
};

void expect_equal(const Trained& actual, const Trained& expected) {
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.scores.hits, expected.scores.hits);
  EXPECT_EQ(actual.digests, expected.digests);
}

}  // namespace

TEST_F(RetrievalOfRanks, HasTheBitsAndTheRecallOfOneRank) {
  for (const std::int64_t shards : {1, 5, 8}) {
    RetrievalConfig config = uneven_retrieval();
    config.shards = shards;
    const Trained expected = outcome_of_one_rank(config);
    const auto model = model_of(*real, config);
    ASSERT_NE(model, nullptr);
    Trained all;
    train(*model, all);
    evaluate(*model, EvaluationScope::all, all);
    expect_equal(all, expected);
    EXPECT_GT(expected.scores.recall(0), 10.0 / static_cast<double>(config.evaluated));
    EXPECT_LT(expected.scores.recall(0), 1);
    // One rank after the other; the other ranks are not needed.
    Trained alone{all.losses, {}, {}};
    evaluate(*model, EvaluationScope::alone, alone);
    expect_equal(alone, expected);
    EXPECT_GT(alone.scores.seconds(), 0);
    EXPECT_GT(all.scores.seconds(), 0);
  }
}

/// A wrong gradient of one rank reaches all ranks, and so does a fault of an activation. Wrong embeddings of
/// one rank's block are wrong on all ranks that search it.
TEST_F(RetrievalOfRanks, AFaultOfOneRankIsSeenByAll) {
  const RetrievalConfig config = uneven_retrieval();
  const Trained expected = outcome_of_one_rank(config);
  const std::int64_t shard = (size() - 1) % config.shards;  // of the last rank
  for (const RetrievalPart part :
       {RetrievalPart::gradient, RetrievalPart::activation, RetrievalPart::embeddings}) {
    const auto model = model_of(*real, config);
    ASSERT_NE(model, nullptr);
    const bool of_training = part != RetrievalPart::embeddings;
    if (rank() == (of_training ? size() - 1 : 0))
      model->set_tensor_faults({{part, of_training ? shard : 0, {.first = 3, .mask = 1u << 26}}});
    Trained faulty;
    train(*model, faulty);
    evaluate(*model, EvaluationScope::all, faulty);
    EXPECT_EQ(faulty.digests.weights == expected.digests.weights, !of_training);
    EXPECT_NE(faulty.digests.queries, expected.digests.queries);
    EXPECT_EQ(faulty.digests.documents == expected.digests.documents, !of_training);
  }
  // It has no effect on a rank that does not compute the shard.
  if (size() == 1) return;
  const auto model = model_of(*real, config);
  ASSERT_NE(model, nullptr);
  if (rank() == 0)
    model->set_tensor_faults({{RetrievalPart::gradient, shard, {.first = 3, .mask = 1u << 26}}});
  Trained clean;
  train(*model, clean);
  evaluate(*model, EvaluationScope::all, clean);
  expect_equal(clean, expected);
}

TEST_F(RetrievalOfRanks, AWaitForALostPeerEndsWithItsDeadline) {
  if (size() == 1) return;
  const auto model = model_of(*real, uneven_retrieval());
  ASSERT_NE(model, nullptr);
  if (rank() != 0) {
    ASSERT_OK(model->enqueue_step(0));
    const auto result = model->retire_step(0, 0.2);
    EXPECT_EQ(result.status().code(), StatusCode::timeout) << result.status().what();
    real->abort();
    const auto given_up = model->retire_step(0, timeout_s);
    EXPECT_EQ(given_up.status().code(), StatusCode::aborted) << given_up.status().what();
  } else {
    // Too late for all ranks that have aborted.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    real->abort();
  }
}

}  // namespace egt::test
