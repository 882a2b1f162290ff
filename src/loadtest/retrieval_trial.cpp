#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "loadtest/load_test.hpp"
#include "loadtest/retrieval/retrieval_model.hpp"

namespace egt {
namespace {

constexpr double min_recall_gain = 10;  // min ratio of recall@1 to chance

/// Trains an encoder twice, step by step: on this device alone, and in shards on all. Both must give the same
/// bits on all ranks.
class RetrievalTest final : public LoadJob {
 public:
  RetrievalTest(Environment& environment, const LoadTestParts& parts)
      : environment_(environment), parts_(parts) {}

  Status open(Communicator& alone);
  std::int64_t iterations() const override {
    return (parts_.options.quick ? 100 : 200) * parts_.options.epochs;
  }
  Status run(std::int64_t count, std::vector<double>& ms) override;
  const std::vector<LoadAnswer>& answers() const override { return answers_; }
  Status enqueue_answers(Digest* digests, int round) override;
  Stream& stream() override { return all_->stream(); }
  Result<std::string> inject(const Injection& injection, Flip& flip) override;
  LoadJobFigures figures() const override;
  std::string failure() const override;
  Status give_up(double timeout_seconds) override {
    EGT_TRY(environment_.device.forget_failure(alone_->stream(), timeout_seconds));
    return environment_.device.forget_failure(all_->stream(), timeout_seconds);
  }

 private:
  static constexpr std::size_t digests_a_round = 4;

  Result<RetrievalStep> step(RetrievalModel& model);
  double chance() const { return 1.0 / static_cast<double>(all_->config().evaluated); }

  Environment& environment_;
  const LoadTestParts& parts_;
  const std::vector<LoadAnswer> answers_ = {{"weights", LoadAnswerKind::state},
                                            {"gradient", LoadAnswerKind::state},
                                            {"embeddings of the queries", LoadAnswerKind::derived},
                                            {"embeddings of the documents", LoadAnswerKind::derived}};
  Buffer pinned_;  ///< digests of both rounds
  std::int64_t made_ = 0;
  double loss_first_ = std::numeric_limits<double>::quiet_NaN(), loss_last_ = loss_first_;
  double alone_seconds_ = 0, all_seconds_ = 0;  ///< of training
  std::optional<RetrievalScores> untrained_, alone_scores_, all_scores_;
  std::unique_ptr<RetrievalModel> alone_, all_;
};

Status RetrievalTest::open(Communicator& alone) {
  Device& device = environment_.device;
  RetrievalConfig config = device.info().backend == "host" ? small_retrieval() : large_retrieval();
  config.precision = parts_.precision;
  config.seed = environment_.seed;
  EGT_TRY_ASSIGN(alone_, RetrievalModel::create(device, alone, config));
  EGT_TRY_ASSIGN(all_, RetrievalModel::create(device, environment_.communicator, config));
  EGT_TRY_ASSIGN(pinned_, device.allocate_pinned(2 * digests_a_round * sizeof(Digest)));
  return {};
}

Result<RetrievalStep> RetrievalTest::step(RetrievalModel& model) {
  EGT_TRY(model.enqueue_step(made_));
  return model.retire_step(made_, environment_.peer_timeout_seconds);
}

Status RetrievalTest::run(std::int64_t count, std::vector<double>& ms) {
  for (std::int64_t i = 0; i < count; ++i, ++made_) {
    EGT_TRY_ASSIGN(const RetrievalStep alone, step(*alone_));
    EGT_TRY_ASSIGN(const RetrievalStep all, step(*all_));
    alone_seconds_ += 1e-3 * alone.ms;
    all_seconds_ += 1e-3 * all.ms;
    ms.push_back(all.ms);
    loss_last_ = all.loss;
    if (made_ == 0) loss_first_ = all.loss;
  }
  return {};
}

/// Round 0 evaluates on this device alone, round 1 on all.
Status RetrievalTest::enqueue_answers(Digest* digests, int round) {
  const double seconds = environment_.peer_timeout_seconds;
  RetrievalModel& model = round == 0 ? *alone_ : *all_;
  EGT_TRY_ASSIGN(const RetrievalScores scores,
                 model.evaluate(round == 0 ? EvaluationScope::alone : EvaluationScope::all, seconds));
  (round == 0 ? alone_scores_ : all_scores_) = scores;
  if (made_ == 0) untrained_ = scores;
  EGT_TRY_ASSIGN(const RetrievalDigests found, model.digests(seconds));
  Digest* const host = pinned_.as<Digest>() + static_cast<std::size_t>(round) * digests_a_round;
  host[0] = found.weights;
  host[1] = found.gradient;
  host[2] = found.queries;
  host[3] = found.documents;
  return environment_.device.copy(digests, host, digests_a_round * sizeof(Digest), all_->stream());
}

/// Injects into the standalone model. In the shared one, no rank has a part that others could compare.
Result<std::string> RetrievalTest::inject(const Injection& injection, Flip& flip) {
  const VectorView weights = all_->weights();
  if (injection.kind == InjectionKind::weight) {
    flip = choose_flip(injection, static_cast<std::uint64_t>(weights.count), environment_.seed);
    EGT_TRY(all_->tamper_weights(flip));
    return std::string("weights of the encoder");
  }
  const bool of_gradient = injection.kind == InjectionKind::gradient;
  const RetrievalConfig& config = all_->config();
  const auto words =
      static_cast<std::uint64_t>(of_gradient ? weights.count : config.block * config.embedding / 2);
  flip = choose_flip(injection, words, environment_.seed);
  alone_->set_tensor_faults(RetrievalFault{
      .part = of_gradient ? RetrievalPart::gradient : RetrievalPart::embeddings, .index = 0, .flip = flip});
  return std::string(of_gradient ? "gradient of shard 0" : "embeddings of block 0");
}

LoadJobFigures RetrievalTest::figures() const {
  const RetrievalConfig& config = all_->config();
  LoadJobFigures figures;
  figures.loss_first = loss_first_;
  figures.loss_last = loss_last_;
  figures.samples = static_cast<double>(config.shards * config.pairs) / environment_.place.size;
  figures.flops = training_flops(config) / environment_.place.size;
  if (!alone_scores_ || !all_scores_) return figures;
  const auto ratio = [](double a, double b) { return b > 0 ? Json(a / b) : Json(); };
  for (std::size_t i = 0; i < RetrievalScores::firsts.size(); ++i)
    figures.more[fmt::format("recall_at_{}", RetrievalScores::firsts[i])] = all_scores_->recall(i);
  figures.more.update({{"recall_at_1_untrained", untrained_ ? Json(untrained_->recall(0)) : Json()},
                       {"recall_at_1_chance", chance()},
                       {"queries", all_scores_->queries},
                       {"training_single_seconds", alone_seconds_},
                       {"training_all_seconds", all_seconds_},
                       {"training_speedup", ratio(alone_seconds_, all_seconds_)},
                       {"evaluation_single_seconds", alone_scores_->seconds()},
                       {"evaluation_all_seconds", all_scores_->seconds()},
                       {"evaluation_speedup", ratio(alone_scores_->seconds(), all_scores_->seconds())},
                       {"encode_all_seconds", all_scores_->encode_seconds},
                       {"search_all_seconds", all_scores_->search_seconds}});
  return figures;
}

std::string RetrievalTest::failure() const {
  if (made_ == 0 || !all_scores_) return {};
  if (!std::isfinite(loss_last_)) return "the loss is not finite";
  if (alone_scores_->hits != all_scores_->hits)
    return "one device alone finds other documents than all together";
  if (made_ < iterations() || all_scores_->recall(0) >= min_recall_gain * chance()) return {};
  return fmt::format("recall@1 is {:.4g} after training, not even {} times chance ({:.4g})",
                     all_scores_->recall(0), min_recall_gain, chance());
}

}  // namespace

Result<std::unique_ptr<LoadJob>> make_retrieval_test(Environment& environment, const LoadTestParts& parts,
                                                     Communicator& alone) {
  auto job = std::make_unique<RetrievalTest>(environment, parts);
  EGT_TRY(job->open(alone));
  return std::unique_ptr<LoadJob>(std::move(job));
}

}  // namespace egt
