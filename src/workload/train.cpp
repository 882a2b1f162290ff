#include "egt/workload/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace egt {

namespace {

constexpr double step_timeout_s = 60.0;
constexpr float interrupted_weight =
    4096.0f;  // above the sum of any number of `finished` votes of fewer ranks

float encode(StopVote vote) {
  return vote == StopVote::none ? 0.0f : vote == StopVote::finished ? 1.0f : interrupted_weight;
}

StopVote decode(float votes) {
  return votes >= interrupted_weight ? StopVote::interrupted
         : votes > 0.5f              ? StopVote::finished
                                     : StopVote::none;
}

Json or_null(const std::optional<double>& figure) {
  return figure ? Json(*figure) : Json(nullptr);
}

}  // namespace

BatchShare share_batch(std::int64_t global, int rank, int size) {
  const std::int64_t each = global / size, rest = global % size;
  return {.global = global,
          .first = rank * each + std::min<std::int64_t>(rank, rest),
          .local = each + (rank < rest ? 1 : 0)};
}

TrainWorkload::TrainWorkload(const Environment& environment, const TrainOptions& options,
                             const BatchShare& batch)
    : environment_(environment), options_(options), batch_(batch) {}

Status TrainWorkload::prepare() {
  rate_is_ours_ = !options_.learning_rate;
  const double rate =
      options_.learning_rate.value_or(default_learning_rate(options_.layers, options_.optimizer));
  EGT_TRY_ASSIGN(trainer_, MlpTrainer::create(environment_.device, environment_.communicator,
                                              {.neurons = options_.layers,
                                               .batch = batch_,
                                               .precisions = options_.precisions,
                                               .optimizer = options_.optimizer,
                                               .learning_rate = rate,
                                               .gradient_type = options_.gradient_type,
                                               .extreme_iterations = options_.extreme_iterations,
                                               .seed = environment_.seed}));
  options_.learning_rate = rate;
  return {};
}

Precision TrainWorkload::precision_of(std::int64_t step) const {
  const auto epoch = static_cast<std::size_t>(step / options_.epoch_steps);
  return options_.precisions[epoch % options_.precisions.size()];
}

double TrainWorkload::step_flops() const {
  return flops_per_sample(options_.layers) * static_cast<double>(batch_.local);
}

Status TrainWorkload::enqueue(const Step& step) {
  if (const Precision wanted = precision_of(step.index); wanted != precision_) {
    EGT_TRY(trainer_->set_precision(wanted));
    precision_ = wanted;
  }
  const bool measure = step.index % options_.epoch_steps == options_.epoch_steps / 2;
  EGT_TRY(trainer_->enqueue_step(step.index, encode(step.vote), measure));
  return checks_replicas(step.index) ? trainer_->enqueue_replica_check() : Status();
}

Status TrainWorkload::retire(std::int64_t step, StepOutcome& outcome) {
  EGT_TRY_ASSIGN(const StepResult result, trainer_->retire_step(step, step_timeout_s));
  outcome.decision = std::max(outcome.decision, decode(result.votes));
  ++retired_;
  ++epoch_steps_;
  if (result.step_ms) {
    step_ms_.add(*result.step_ms);
    device_ms_ += *result.step_ms;
    epoch_ms_ += *result.step_ms;
    ++epoch_timed_steps_;
  }
  look_at_loss(step, result.loss);
  if (step % options_.epoch_steps == options_.epoch_steps / 2) EGT_TRY(look_at_times());
  if (checks_replicas(step)) EGT_TRY(look_at_replicas(step));
  if (ends_epoch(step)) close_epoch(step);
  return {};
}

void TrainWorkload::look_at_loss(std::int64_t step, double loss) {
  if (!loss_first_) loss_first_ = loss;
  loss_last_ = loss;
  if (std::isfinite(loss) || !loss_was_finite_) return;
  loss_was_finite_ = false;  // once is enough: what is not finite stays so
  if (!rate_is_ours_)
    return;  // training may diverge at a rate of the user's: no evidence against the hardware
  // The loss is summed over ranks, so every rank sees it; rank 0 tells it.
  if (environment_.place.rank != 0) return;
  Fault fault;
  fault.kind = "nonfinite";
  fault.detector = "loss";
  fault.step = step;
  fault.phase = "train";
  fault.where = fmt::format("the loss, in {}", to_string(precision_of(step)));
  fault.expected = "finite";
  fault.actual = fmt::format("{}", loss);
  fault.blame = Blame::ambiguous;
  environment_.records.emit(fault);
}

Status TrainWorkload::look_at_times() {
  EGT_TRY_ASSIGN(const StepTimes times, trainer_->measured_times());
  activation_ms_ = times.activation_ms;
  if (environment_.place.size > 1 && times.all_reduce_ms > 0)
    all_reduce_gb_per_s_ = times.all_reduce_bytes / times.all_reduce_ms / 1e6;
  return {};
}

Status TrainWorkload::look_at_replicas(std::int64_t step) {
  EGT_TRY_ASSIGN(const auto ranks, trainer_->collect_replica_check(step_timeout_s));
  Digest whole;
  const auto& own = ranks[static_cast<std::size_t>(environment_.place.rank)];
  for (std::size_t l = 0; l < own.size(); ++l) {
    add_to_digest(whole.a, whole.b, 2 * l, static_cast<std::uint32_t>(own[l].a));
    add_to_digest(whole.a, whole.b, 2 * l + 1, static_cast<std::uint32_t>(own[l].a >> 32));
  }
  weight_digest_ = to_string(whole);
  if (ranks.size() < 2) return {};  // nobody to compare with: nothing proven
  ++replica_checks_;
  for (std::size_t l = 0; l < own.size(); ++l) {
    const bool alike =
        std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return rank[l] == ranks[0][l]; });
    if (alike) continue;
    if (++replica_mismatches_ == 1 && environment_.place.rank == 0) report_divergence(step, ranks, l);
    return {};
  }
  if (replica_mismatches_ == 0) steps_proven_ = step + 1;
  return {};
}

/// Names the ranks that differ from a majority; without one, all of them in one ambiguous fault.
void TrainWorkload::report_divergence(std::int64_t step, const std::vector<std::vector<Digest>>& ranks,
                                      std::size_t layer) {
  const auto votes_for = [&](const Digest& digest) {
    return std::count_if(ranks.begin(), ranks.end(), [&](const auto& rank) { return rank[layer] == digest; });
  };
  const auto size = static_cast<std::ptrdiff_t>(ranks.size());
  const auto majority = std::find_if(ranks.begin(), ranks.end(),
                                     [&](const auto& rank) { return 2 * votes_for(rank[layer]) > size; });
  Fault fault;
  fault.kind = "replica";
  fault.detector = "weight digest";
  fault.step = step;
  fault.phase = "train";
  fault.where = fmt::format("weights of layer {}", layer + 1);
  if (majority == ranks.end()) {
    fault.blame = Blame::ambiguous;
    fault.where += fmt::format(", unlike on ranks 0 to {}", ranks.size() - 1);
    fault.expected = to_string(ranks.front()[layer]);
    fault.actual = to_string(ranks.back()[layer]);
    environment_.records.emit(fault);
    return;
  }
  fault.blame = Blame::majority;
  fault.expected = to_string((*majority)[layer]);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r][layer] == (*majority)[layer]) continue;
    fault.rank = static_cast<int>(r);
    fault.actual = to_string(ranks[r][layer]);
    environment_.records.emit(fault);
  }
}

void TrainWorkload::close_epoch(std::int64_t step) {
  const double timed = static_cast<double>(epoch_timed_steps_);
  const double samples = static_cast<double>(batch_.global) * timed;
  const bool measured = epoch_ms_ > 0;
  environment_.records.emit(
      RecordKind::epoch, step,
      {{"epoch", step / options_.epoch_steps},
       {"steps", epoch_steps_},
       {"ms", measured ? Json(epoch_ms_ / timed * static_cast<double>(epoch_steps_)) : Json(nullptr)},
       {"samples_per_second", measured ? Json(samples / epoch_ms_ * 1e3) : Json(nullptr)},
       {"tflops", measured ? Json(step_flops() * timed / epoch_ms_ / 1e9) : Json(nullptr)},
       {"loss", *loss_last_},
       {"all_reduce_gb_per_s", or_null(all_reduce_gb_per_s_)},
       {"precision", to_string(precision_of(step))}});
  epoch_ms_ = 0;
  epoch_steps_ = epoch_timed_steps_ = 0;
}

Status TrainWorkload::finish(bool hurry) {
  if (hurry || retired_ == 0) return {};
  EGT_TRY(trainer_->enqueue_replica_check());
  return look_at_replicas(retired_ - 1);
}

PartReport TrainWorkload::report() const {
  PartReport part;
  part.name = "train";
  part.description = "Trains the network on every rank; weights must stay equal bit for bit";
  part.success = retired_ > 0 && loss_was_finite_ && replica_mismatches_ == 0;
  if (retired_ == 0) part.failure = "no step was trained";
  if (!loss_was_finite_)
    part.failure =
        rate_is_ours_ ? "the loss is not finite" : "the loss is not finite: use a lower --learning-rate";
  if (replica_mismatches_ > 0) part.failure = "the weights differ between ranks";
  const bool timed = step_ms_.count() > 0;
  const double seconds = device_ms_ / 1e3, steps = static_cast<double>(step_ms_.count());
  Json names = Json::array();
  for (const Precision precision : options_.precisions) names.push_back(to_string(precision));
  const Json step_ms = {{"p50", step_ms_.quantile(0.5)},
                        {"p95", step_ms_.quantile(0.95)},
                        {"p99", step_ms_.quantile(0.99)},
                        {"max", step_ms_.max()}};
  part.figures = {{"steps", retired_},
                  {"precisions", names},
                  {"optimizer", options_.optimizer == Optimizer::adam ? "adam" : "sgd"},
                  {"learning_rate", or_null(options_.learning_rate)},
                  {"parameters", trainer_ ? Json(trainer_->layout().parameter_count()) : Json(nullptr)},
                  {"loss_first", or_null(loss_first_)},
                  {"loss_last", or_null(loss_last_)},
                  {"step_ms", timed ? step_ms : Json(nullptr)},
                  {"samples_per_second",
                   timed ? Json(static_cast<double>(batch_.local) * steps / seconds) : Json(nullptr)},
                  {"tflops", timed ? Json(step_flops() * steps / seconds / 1e12) : Json(nullptr)},
                  {"all_reduce_gb_per_s", or_null(all_reduce_gb_per_s_)},
                  {"replica_checks", replica_checks_},
                  {"replica_mismatches", replica_mismatches_},
                  {"weight_digest", weight_digest_.empty() ? Json(nullptr) : Json(weight_digest_)}};
  part.work.replica_checks = replica_checks_;
  part.work.gemm_flops = step_flops() * static_cast<double>(steps_proven_);
  return part;
}

PartReport TrainWorkload::extreme_report() const {
  std::int64_t activations = 0;
  for (std::size_t l = 1; l + 1 < options_.layers.size(); ++l)
    activations += options_.layers[l] * batch_.local;
  const double turns = static_cast<double>(activations) * options_.extreme_iterations;
  PartReport part;
  part.name = "extreme";
  part.description = "Transcendental chains on every activation, in the data's path";
  part.success = options_.extreme_iterations == 0 || retired_ > 0;
  if (!part.success) part.failure = "no step was trained";
  part.figures = {
      {"iterations", options_.extreme_iterations},
      {"activations_per_step", activations},
      {"turns", turns * static_cast<double>(retired_)},
      {"ms_per_step", or_null(activation_ms_)},
      {"giga_turns_per_second",
       activation_ms_ && *activation_ms_ > 0 ? Json(turns / *activation_ms_ / 1e6) : Json(nullptr)}};
  return part;
}

std::vector<PartReport> TrainWorkload::reports() const {
  return {report(), extreme_report()};
}

}  // namespace egt
