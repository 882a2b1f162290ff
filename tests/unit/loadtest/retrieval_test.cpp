#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "loadtest/retrieval/retrieval_model.hpp"
#include "tests/support/trainer_fixture.hpp"

namespace egt::test {
namespace {

/// Small enough to verify every element of its gradient by finite differences.
RetrievalConfig tiny_retrieval() {
  RetrievalConfig config;
  config.latent = 3;
  config.inputs = 6;
  config.hidden = {9, 7};
  config.embedding = 5;
  config.shards = 3;
  config.pairs = 4;
  config.temperature = 0.05;
  config.evaluated = 24;
  config.block = 4;
  config.seed = 5;
  return config;
}

class Retrieval : public Trainer {
 protected:
  std::unique_ptr<RetrievalModel> model_of(const RetrievalConfig& config) {
    auto made = RetrievalModel::create(*device, *communicator, config);
    EXPECT_TRUE(made.ok()) << made.status().what();
    return std::move(made.value());
  }

  RetrievalStep train(RetrievalModel& model, std::int64_t step) {
    EXPECT_TRUE(model.enqueue_step(step).ok());
    auto result = model.retire_step(step, timeout_s);
    EXPECT_TRUE(result.ok()) << result.status().what();
    return result.value();
  }

  RetrievalScores evaluate(RetrievalModel& model, EvaluationScope scope) {
    auto scores = model.evaluate(scope, timeout_s);
    EXPECT_TRUE(scores.ok()) << scores.status().what();
    return scores.value();
  }

  RetrievalDigests digests(RetrievalModel& model) {
    auto digests = model.digests(timeout_s);
    EXPECT_TRUE(digests.ok()) << digests.status().what();
    return digests.value();
  }
};

std::size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] ? 1 : 0;
  return count;
}

}  // namespace

TEST_F(Retrieval, GradientIsThatOfTheLoss) {
  RetrievalConfig config = tiny_retrieval();
  config.learning_rate = 0;  // the weights stay unchanged
  const auto model = model_of(config);
  std::vector<float> weights = read(model->weights());
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= 1.5f;
  write(model->weights(), weights);
  const double loss = train(*model, 3).loss;
  EXPECT_GT(loss, 0.2);
  const std::vector<float> gradient = read(model->gradient());
  EXPECT_EQ(read(model->weights()), weights);
  constexpr float change = 4e-3f;
  std::size_t matters = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    std::vector<float> changed = weights;
    changed[i] = weights[i] + change;
    write(model->weights(), changed);
    const double above = train(*model, 3).loss;
    changed[i] = weights[i] - change;
    write(model->weights(), changed);
    const double below = train(*model, 3).loss;
    const double slope = (above - below) / (2.0 * static_cast<double>(change));
    EXPECT_NEAR(static_cast<double>(gradient[i]), slope, 2e-3 + 0.03 * std::fabs(slope)) << "weight " << i;
    if (std::fabs(slope) > 0.02) ++matters;
  }
  EXPECT_GT(matters, 50u);  // of 6 * 9 + 9 + 9 * 7 + 7 + 7 * 5
}

TEST_F(Retrieval, TrainingRaisesRecallFarAboveChance) {
  const RetrievalConfig config = small_retrieval();
  const auto model = model_of(config);
  const double chance = 1.0 / static_cast<double>(config.evaluated);
  const RetrievalScores before = evaluate(*model, EvaluationScope::alone);
  double first_loss = 0, loss = 0;
  for (std::int64_t step = 0; step < 200 + RetrievalModel::depth; ++step) {
    ASSERT_TRUE(step >= 200 || model->enqueue_step(step).ok());
    if (step < RetrievalModel::depth) continue;
    auto result = model->retire_step(step - RetrievalModel::depth, timeout_s);
    ASSERT_TRUE(result.ok()) << result.status().what();
    loss = result.value().loss;
    if (step == RetrievalModel::depth) first_loss = loss;
    EXPECT_GT(result.value().ms, 0);
  }
  const RetrievalScores after = evaluate(*model, EvaluationScope::alone);
  std::printf("loss %.3f to %.3f; recall@1 %.4f to %.4f, @5 %.4f to %.4f, @10 %.4f to %.4f\n", first_loss,
              loss, before.recall(0), after.recall(0), before.recall(1), after.recall(1), before.recall(2),
              after.recall(2));
  EXPECT_LT(before.recall(0), 10 * chance);
  EXPECT_GT(after.recall(0), 100 * chance);
  EXPECT_LT(loss, first_loss / 2);
  for (const RetrievalScores& scores : {before, after}) {
    EXPECT_EQ(scores.queries, config.evaluated);
    EXPECT_LE(scores.hits[0], scores.hits[1]);
    EXPECT_LE(scores.hits[1], scores.hits[2]);
    EXPECT_GT(scores.encode_seconds, 0);
    EXPECT_GT(scores.search_seconds, 0);
  }
}

TEST_F(Retrieval, EveryPrecisionAndOptimizerLearns) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16})
    for (const Optimizer optimizer : {Optimizer::adam, Optimizer::sgd}) {
      RetrievalConfig config = small_retrieval();
      config.precision = precision;
      config.optimizer = optimizer;
      if (optimizer == Optimizer::sgd) config.learning_rate = 0.003;
      config.shards = 2;
      config.evaluated = 256;
      const auto model = model_of(config);
      for (std::int64_t step = 0; step < 60; ++step) train(*model, step);
      EXPECT_GT(evaluate(*model, EvaluationScope::alone).recall(0), 0.3)
          << to_string(precision) << (optimizer == Optimizer::adam ? ", adam" : ", sgd");
    }
}

/// The weight copies that GEMMs read are created before the first step, and after an injected change.
TEST_F(Retrieval, PrecisionsAgreeOnTheFirstLoss) {
  double losses[3][2];
  for (int i = 0; i < 3; ++i) {
    RetrievalConfig config = small_retrieval();
    config.precision =
        std::array{Precision::fp32, Precision::tf32, Precision::bf16}[static_cast<std::size_t>(i)];
    config.learning_rate = 0;
    const auto model = model_of(config);
    losses[i][0] = train(*model, 0).loss;
    // Every weight of the encoder becomes 0, so that all pairs are equal.
    const auto words = static_cast<std::uint64_t>(model->weights().count);
    ASSERT_TRUE(model->tamper_weights({.count = words, .keep = 0, .mask = 0}).ok());
    losses[i][1] = train(*model, 0).loss;
    EXPECT_NEAR(losses[i][0], losses[0][0], 0.01 * losses[0][0]);
    EXPECT_NEAR(losses[i][1], std::log(static_cast<double>(config.pairs)), 1e-5);
  }
  EXPECT_NE(losses[0][0], losses[1][0]);
  EXPECT_NE(losses[1][0], losses[2][0]);
}

/// Reference: similarities in fp64, sorted.
TEST_F(Retrieval, RecallIsThatOfTheEmbeddings) {
  RetrievalConfig config = small_retrieval();
  config.evaluated = 256;
  const auto model = model_of(config);
  for (std::int64_t step = 0; step < 15; ++step) train(*model, step);
  for (const EvaluationScope scope : {EvaluationScope::alone, EvaluationScope::all}) {
    const RetrievalScores scores = evaluate(*model, scope);
    const MatrixView q = model->queries(), d = model->documents();
    const std::vector<float> queries = read({q.data, q.type, q.count()}),
                             documents = read({d.data, d.type, d.count()});
    const auto pairs = static_cast<std::size_t>(config.evaluated),
               width = static_cast<std::size_t>(config.embedding);
    std::array<std::int64_t, 3> hits = {};
    for (std::size_t i = 0; i < pairs; ++i) {
      std::vector<std::pair<double, std::size_t>> found(pairs);
      for (std::size_t j = 0; j < pairs; ++j) {
        found[j] = {0, j};
        for (std::size_t k = 0; k < width; ++k)
          found[j].first -=
              static_cast<double>(queries[i * width + k]) * static_cast<double>(documents[j * width + k]);
      }
      std::sort(found.begin(), found.end());
      for (std::size_t k = 0; k < hits.size(); ++k)
        for (int place = 0; place < RetrievalScores::firsts[k]; ++place)
          hits[k] += found[static_cast<std::size_t>(place)].second == i ? 1 : 0;
    }
    EXPECT_EQ(scores.hits, hits);
    EXPECT_GT(hits[0], 3);
    EXPECT_LT(hits[2], config.evaluated);
  }
}

TEST_F(Retrieval, EvaluationAloneEqualsEvaluationByAll) {
  const auto model = model_of(tiny_retrieval());
  for (std::int64_t step = 0; step < 10; ++step) train(*model, step);
  const RetrievalScores alone = evaluate(*model, EvaluationScope::alone);
  const RetrievalDigests of_alone = digests(*model);
  const RetrievalScores all = evaluate(*model, EvaluationScope::all);
  EXPECT_EQ(alone.hits, all.hits);
  EXPECT_EQ(of_alone, digests(*model));
  EXPECT_NE(of_alone.queries, of_alone.documents);
  EXPECT_NE(of_alone.queries, Digest());
}

TEST_F(Retrieval, WithoutNoiseNearlyEveryQueryIsFound) {
  RetrievalConfig config = small_retrieval();
  config.noise = 0.0f;
  config.evaluated = 256;
  const auto model = model_of(config);
  for (std::int64_t step = 0; step < 100; ++step) train(*model, step);
  EXPECT_GT(evaluate(*model, EvaluationScope::all).recall(0), 0.95);
}

TEST_F(Retrieval, IsRepeatableBitForBitAndDependsOnItsSeed) {
  RetrievalDigests runs[3];
  for (int run = 0; run < 3; ++run) {
    RetrievalConfig config = tiny_retrieval();
    if (run == 2) ++config.seed;
    const auto model = model_of(config);
    for (std::int64_t step = 0; step < 5; ++step) train(*model, step);
    evaluate(*model, EvaluationScope::alone);
    runs[run] = digests(*model);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0].weights, runs[2].weights);
  EXPECT_NE(runs[0].queries, runs[2].queries);
}

TEST_F(Retrieval, TamperingIsSeenInTheDigests) {
  const auto run = [&](std::optional<RetrievalFault> tensor_faults) {
    const auto model = model_of(tiny_retrieval());
    train(*model, 0);
    model->set_tensor_faults(tensor_faults);
    train(*model, 1);
    evaluate(*model, EvaluationScope::alone);
    model->set_tensor_faults({});
    return digests(*model);
  };
  constexpr Flip flip{.first = 2, .mask = 1u << 27};
  const RetrievalDigests clean = run({});
  const RetrievalDigests activation = run({{RetrievalPart::activation, 2, flip}}),
                         gradient = run({{RetrievalPart::gradient, 1, flip}}),
                         embeddings = run({{RetrievalPart::embeddings, 3, flip}});
  EXPECT_NE(activation.gradient, clean.gradient);
  EXPECT_NE(activation.weights, clean.weights);
  EXPECT_NE(gradient.gradient, clean.gradient);
  EXPECT_NE(gradient.weights, clean.weights);
  EXPECT_EQ(embeddings.weights, clean.weights);
  EXPECT_EQ(embeddings.documents, clean.documents);
  EXPECT_NE(embeddings.queries, clean.queries);
  // A part that no rank computes.
  EXPECT_EQ(run({{RetrievalPart::gradient, 3, flip}}), clean);
  EXPECT_EQ(run({{RetrievalPart::embeddings, 6, flip}}), clean);
}

/// With inverted signs, the activation of the first hidden layer passes no gradient to its own weights.
TEST_F(Retrieval, AnActivationsFaultIsInTheFirstHiddenLayer) {
  RetrievalConfig config = tiny_retrieval();
  config.shards = 1;
  const auto model = model_of(config);
  const auto rows = static_cast<std::uint64_t>(2 * config.pairs);
  const std::uint64_t words = rows * static_cast<std::uint64_t>(config.hidden[0]);
  model->set_tensor_faults({{RetrievalPart::activation, 0, {.count = words, .mask = 0x8000'0000u}}});
  train(*model, 0);
  const std::vector<float> gradient = read(model->gradient());
  const ParameterLayout layout({config.inputs, config.hidden[0], config.hidden[1], config.embedding});
  const auto count = [&](const LinearLayer& layer) {
    const auto begin = gradient.begin() + layer.weights;
    return std::count_if(begin, begin + layer.inputs * layer.outputs, [](float g) { return g != 0.0f; });
  };
  EXPECT_EQ(count(layout.layers()[0]), 0);
  EXPECT_GT(count(layout.layers()[1]), 10);
}

TEST_F(Retrieval, MayBeDestroyedWhileStepsAreUnderWay) {
  const auto model = model_of(small_retrieval());
  for (std::int64_t step = 0; step < RetrievalModel::depth; ++step)
    EXPECT_TRUE(model->enqueue_step(step).ok());
}

TEST_F(Retrieval, AWaitForPeersEndsWhereTheCommunicatorHasFailed) {
  class Failing : public SingleRankCommunicator {
   public:
    using SingleRankCommunicator::SingleRankCommunicator;
    Status check() override { return status; }
    Status status;
  };
  Failing failing(*device);
  auto made = RetrievalModel::create(*device, failing, tiny_retrieval());
  ASSERT_TRUE(made.ok());
  RetrievalModel& model = *made.value();
  ASSERT_TRUE(model.enqueue_step(0).ok());
  failing.status = Status(StatusCode::aborted, "a peer is lost");
  EXPECT_EQ(model.retire_step(0, timeout_s).status().code(), StatusCode::aborted);
  EXPECT_EQ(model.evaluate(EvaluationScope::all, timeout_s).status().code(), StatusCode::aborted);
  // These need no peers.
  EXPECT_TRUE(model.evaluate(EvaluationScope::alone, timeout_s).ok());
  EXPECT_TRUE(model.digests(timeout_s).ok());
}

TEST_F(Retrieval, AFlippedWeightStaysFlipped) {
  const auto model = model_of(tiny_retrieval());
  const std::vector<float> before = read(model->weights());
  ASSERT_TRUE(model->tamper_weights({.first = 1, .mask = 1u << 30}).ok());
  ASSERT_TRUE(device->synchronize(model->stream(), timeout_s).ok());
  EXPECT_EQ(differing(read(model->weights()), before), 1u);
}

TEST_F(Retrieval, EveryShardAndEveryStepHasPairsOfItsOwn) {
  RetrievalConfig config = tiny_retrieval();
  config.learning_rate = 0;
  const auto model = model_of(config);
  std::vector<std::vector<float>> shares;
  const double whole_loss = train(*model, 1).loss;
  const std::vector<float> whole = read(model->gradient());
  EXPECT_NE(train(*model, 2).loss, whole_loss);
  for (std::int64_t shard = 0; shard < config.shards; ++shard) {
    // The shard's gradient becomes 0, so only the gradients of the other shards remain.
    model->set_tensor_faults(
        {{RetrievalPart::gradient, shard, {.count = whole.size(), .keep = 0, .mask = 0}}});
    EXPECT_EQ(train(*model, 1).loss, whole_loss);
    shares.push_back(read(model->gradient()));
  }
  std::size_t compared = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    // Each element of the total is in two of the three sums.
    const double twice = static_cast<double>(shares[0][i]) + static_cast<double>(shares[1][i]) +
                         static_cast<double>(shares[2][i]);
    EXPECT_NEAR(twice, 2 * static_cast<double>(whole[i]), 1e-5);
    compared += whole[i] != 0.0f ? 1 : 0;
  }
  EXPECT_GT(compared, 50u);
  EXPECT_GT(differing(shares[0], shares[1]), 50u);
  EXPECT_GT(differing(shares[1], shares[2]), 50u);
}

TEST_F(Retrieval, RefusesWhatDoesNotFit) {
  const auto code = [&](auto change) {
    RetrievalConfig config = tiny_retrieval();
    change(config);
    return RetrievalModel::create(*device, *communicator, config).status().code();
  };
  EXPECT_EQ(code([](RetrievalConfig& c) { c.block = 5; }), StatusCode::invalid_argument);
  EXPECT_EQ(code([](RetrievalConfig& c) { c.block = 0; }), StatusCode::invalid_argument);
  EXPECT_EQ(code([](RetrievalConfig& c) { c.hidden = {}; }), StatusCode::invalid_argument);
  EXPECT_EQ(code([](RetrievalConfig& c) { c.hidden = {4, 0}; }), StatusCode::invalid_argument);
  EXPECT_EQ(code([](RetrievalConfig& c) { c.shards = 0; }), StatusCode::invalid_argument);
  EXPECT_EQ(code([](RetrievalConfig& c) { c.temperature = 0; }), StatusCode::invalid_argument);
  EXPECT_EQ(code([](RetrievalConfig& c) { c.evaluated = std::int64_t{1} << 40; }),
            StatusCode::invalid_argument);
  EXPECT_EQ(code([](RetrievalConfig& c) { c.precision = Precision::fp16; }), StatusCode::unsupported);
  EXPECT_EQ(code([](RetrievalConfig&) {}), StatusCode::ok);
}

TEST_F(Retrieval, CountsTheWorkOfItsProducts) {
  RetrievalConfig config = tiny_retrieval();
  // 54 + 63 + 35 multiply-adds forward; training: the same for weights, and for inputs but the first's.
  EXPECT_EQ(evaluation_flops(config), 2.0 * (2 * 24 * 152 + 24 * 24 * 5));
  EXPECT_EQ(training_flops(config), 2.0 * (3 * 8 * (3 * 152 - 54) + 3 * 6 * 4 * 4 * 5));
}

}  // namespace egt::test
