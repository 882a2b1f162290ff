#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <deque>
#include <map>
#include <random>

#include "model/parallel/parallel_plan.hpp"
#include "model/parallel/pipeline_schedule.hpp"

namespace egt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParallelPlan, EveryRankHasAPlaceOfItsOwn) {
  const ParallelPlan plan{.data = 3, .tensor = 2, .pipeline = 4};
  EXPECT_EQ(plan.ranks(), 24);
  for (int rank = 0; rank < plan.ranks(); ++rank) EXPECT_EQ(rank_of(plan, place_of(plan, rank)), rank);
  EXPECT_EQ(place_of(plan, 1).tensor, 1) << "neighbours share layers";
  EXPECT_EQ(place_of(plan, 23).stage, 3);
  EXPECT_EQ(to_string(plan), "pipeline 4 x tensor 2 x data 3");
  EXPECT_EQ(to_string(ParallelPlan{.tensor = 4}), "tensor");
}

TEST(ParallelPlan, PartsCoverALayerOnce) {
  for (const int parts : {1, 2, 3, 4, 7})
    for (const std::int64_t neurons : {7, 8, 30, 1023}) {
      std::int64_t next = 0;
      for (int part = 0; part < parts; ++part) {
        const NeuronRange range = part_of(neurons, parts, part);
        EXPECT_EQ(range.first, next);
        EXPECT_GE(range.count, neurons / parts);
        EXPECT_LE(range.count, neurons / parts + 1);
        next += range.count;
      }
      EXPECT_EQ(next, neurons);
    }
}

TEST(ParallelPlan, LayersAreDividedInPairs) {
  using enum LayerSplit;
  EXPECT_EQ(split_of(0, 3, 2), by_outputs);
  EXPECT_EQ(split_of(1, 3, 2), by_inputs);
  EXPECT_EQ(split_of(2, 3, 2), none) << "left over";
  EXPECT_EQ(split_of(0, 2, 1), none);
  const NetworkPart part{.neurons = {8, 10, 6, 5}, .layers = {0, 3}, .tensor = 4, .part = 1};
  EXPECT_THAT(part.local_neurons(), ElementsAre(8, 3, 6, 5));
  EXPECT_EQ(part.outputs(0).first, 2);
  EXPECT_EQ(part.inputs(1).first, 2);
  EXPECT_EQ(part.outputs(1).count, 6);
}

TEST(ParallelPlan, HalfTheLayersAreHalfTheState) {
  const auto bytes = [](std::vector<std::int64_t> neurons) {
    return state_bytes(neurons, Precision::fp32, Optimizer::sgd, ElementType::f32);
  };
  EXPECT_EQ(bytes({64, 64}), (64u * 64 + 64) * 12) << "a weight, its momentum and its gradient";
  EXPECT_EQ(bytes({64, 64, 64, 64, 64}), 2 * bytes({64, 64, 64}));
  EXPECT_EQ(state_bytes({64, 64}, Precision::bf16, Optimizer::adam, ElementType::f32), (64u * 64 + 64) * 18);
}

TEST(ParallelPlan, TellsWhyItCannotBe) {
  EXPECT_EQ(why_not({.pipeline = 2}, {8, 8, 8}, 8, 8), "");
  EXPECT_EQ(why_not({.pipeline = 3}, {8, 8, 8}, 8, 8), "2 layers are too few for 3 stages");
  EXPECT_EQ(why_not({.tensor = 2, .pipeline = 2}, {8, 8, 8}, 8, 8),
            "1 pairs of layers are too few for 2 stages");
  EXPECT_EQ(why_not({.tensor = 4}, {8, 3, 8}, 8, 1), "layer 1 has 3 outputs, too few for 4 parts");
  EXPECT_EQ(why_not({.data = 2, .pipeline = 2}, {8, 8, 8}, 8, 5),
            "8 samples are too few for 10 micro-batches");
}

TEST(PipelineStages, AreCutByTheTimesOfLayers) {
  const auto cut = [](const ParallelPlan& plan, const std::vector<double>& ms) {
    return cut_stages(plan, ms, std::vector<std::uint64_t>(ms.size(), 1), {}).value();
  };
  EXPECT_THAT(cut({.pipeline = 2}, {1, 1, 1, 1, 4}), ElementsAre(LayerRange{0, 4}, LayerRange{4, 5}));
  EXPECT_THAT(cut({.pipeline = 2}, {4, 1, 1, 1, 1}), ElementsAre(LayerRange{0, 1}, LayerRange{1, 5}));
  EXPECT_THAT(cut({.pipeline = 3}, {1, 1, 1}),
              ElementsAre(LayerRange{0, 1}, LayerRange{1, 2}, LayerRange{2, 3}));
  EXPECT_THAT(cut({.tensor = 2, .pipeline = 2}, {1, 1, 1, 1, 9}),
              ElementsAre(LayerRange{0, 4}, LayerRange{4, 5}))
      << "between pairs only";
}

/// Compared with all possible cuts of some layers.
TEST(PipelineStages, NoOtherCutIsFaster) {
  std::mt19937 random(5);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<double> ms(3 + random() % 6);
    for (double& one : ms) one = 1 + static_cast<int>(random() % 20);
    const std::size_t layers = ms.size();
    double best = 1e9;
    const auto sum = [&](std::size_t from, std::size_t to) {
      double all = 0;
      for (; from < to; ++from) all += ms[from];
      return all;
    };
    for (std::size_t a = 1; a < layers; ++a)
      for (std::size_t b = a + 1; b < layers; ++b)
        best = std::min(best, std::max({sum(0, a), sum(a, b), sum(b, layers)}));
    const auto cut = cut_stages({.pipeline = 3}, ms, std::vector<std::uint64_t>(layers, 1), {}).value();
    double slowest = 0;
    for (const LayerRange& stage : cut)
      slowest =
          std::max(slowest, sum(static_cast<std::size_t>(stage.first), static_cast<std::size_t>(stage.end)));
    EXPECT_EQ(slowest, best);
  }
}

TEST(PipelineStages, KeepWithinTheMemoryOfADevice) {
  const std::vector<double> ms = {1, 1, 1, 6};
  const std::vector<std::uint64_t> bytes = {5, 5, 5, 1};
  EXPECT_THAT(cut_stages({.pipeline = 2}, ms, bytes, {}).value(),
              ElementsAre(LayerRange{0, 3}, LayerRange{3, 4}));
  EXPECT_THAT(cut_stages({.pipeline = 2}, ms, bytes, 11).value(),
              ElementsAre(LayerRange{0, 2}, LayerRange{2, 4}));
  const auto none = cut_stages({.pipeline = 2}, ms, bytes, 9);
  EXPECT_EQ(none.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(none.status().what(), HasSubstr("no cut into 2 stages"));
}

/// Simulates all stages. An exchange is complete when every message has met its counterpart, in the order in
/// which both ranks send. Time is counted in passes.
class PipelineSimulation {
 public:
  PipelineSimulation(int stages, int micro_batches) : stages_(stages), micro_batches_(micro_batches) {
    for (int s = 0; s < stages; ++s) {
      const auto operations = schedule_1f1b(s, stages, micro_batches);
      left_.emplace_back(operations.begin(), operations.end());
    }
    kept_.resize(static_cast<std::size_t>(stages));
  }

  /// The completion time; -1 if the stages deadlock.
  int run() {
    std::vector<int> now(static_cast<std::size_t>(stages_), 0);
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int s = 0; s < stages_; ++s) {
        auto& left = left_[static_cast<std::size_t>(s)];
        if (left.empty()) continue;
        int& time = now[static_cast<std::size_t>(s)];
        if (left.front().kind == PipelineOperation::Kind::exchange) {
          if (!begun_[s]) begin(s, left.front(), time);
          const auto met = met_at(s, left.front());
          if (!met) continue;
          time = std::max(time, *met);
          begun_[s] = false;
        } else {
          compute(s, left.front());
          ++time;
        }
        left.pop_front();
        goes_on = true;
      }
    }
    for (const auto& left : left_)
      if (!left.empty()) return -1;
    return *std::max_element(now.begin(), now.end());
  }

  int max_kept() const { return max_kept_; }
  int passes() const { return passes_; }

 private:
  using Key = std::tuple<int, int, bool>;  // from, to, is it a gradient
  void begin(int s, const PipelineOperation& o, int time) {
    begun_[s] = true;
    if (o.send_forward) offered_[{s, s + 1, false}][*o.send_forward].first = time;
    if (o.send_backward) offered_[{s, s - 1, true}][*o.send_backward].first = time;
    if (o.receive_forward) offered_[{s - 1, s, false}][*o.receive_forward].second = time;
    if (o.receive_backward) offered_[{s + 1, s, true}][*o.receive_backward].second = time;
  }
  std::optional<int> met_at(int s, const PipelineOperation& o) {
    int time = 0;
    const auto meets = [&](const Key& key, const std::optional<int>& micro_batch) {
      if (!micro_batch) return true;
      const auto& [sent, received] = offered_[key][*micro_batch];
      if (!sent || !received) return false;
      time = std::max({time, *sent, *received});
      return true;
    };
    const bool all = meets({s, s + 1, false}, o.send_forward) && meets({s, s - 1, true}, o.send_backward) &&
                     meets({s - 1, s, false}, o.receive_forward) &&
                     meets({s + 1, s, true}, o.receive_backward);
    return all ? std::optional(time) : std::nullopt;
  }
  void compute(int s, const PipelineOperation& o) {
    ++passes_;
    auto& kept = kept_[static_cast<std::size_t>(s)];
    if (o.kind == PipelineOperation::Kind::forward) {
      EXPECT_TRUE(s == 0 || offered_.at({s - 1, s, false}).contains(o.micro_batch)) << "its input came";
      kept.push_back(o.micro_batch);
      max_kept_ =
          std::max(max_kept_, static_cast<int>(kept.size()) - passes_kept(s, stages_, micro_batches_));
    } else {
      EXPECT_TRUE(s + 1 == stages_ || offered_.at({s + 1, s, true}).contains(o.micro_batch));
      ASSERT_FALSE(kept.empty());
      EXPECT_EQ(kept.front(), o.micro_batch);
      kept.pop_front();
    }
  }

  const int stages_, micro_batches_;
  std::vector<std::deque<PipelineOperation>> left_;
  std::vector<std::deque<int>> kept_;
  std::map<int, bool> begun_;
  std::map<Key, std::map<int, std::pair<std::optional<int>, std::optional<int>>>> offered_;
  int max_kept_ = 0, passes_ = 0;
};

TEST(PipelineSchedule, EveryExchangeIsMetAndTheBubbleIsTheFormulas) {
  for (int stages = 1; stages <= 9; ++stages)
    for (int micro_batches = 1; micro_batches <= 24; ++micro_batches) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", stages, micro_batches));
      PipelineSimulation simulation(stages, micro_batches);
      const int time = simulation.run();
      EXPECT_EQ(simulation.passes(), 2 * stages * micro_batches);
      EXPECT_LE(simulation.max_kept(), 0) << "activations of more passes than there is memory for";
      // Forward and backward passes of equal length.
      EXPECT_EQ(time, 2 * (micro_batches + stages - 1));
      EXPECT_NEAR(1 - 2.0 * micro_batches / time, bubble_share(stages, micro_batches), 1e-12);
    }
}

}  // namespace
}  // namespace egt
