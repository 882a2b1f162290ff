#include "workload/train/train_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "egt/core/json_access.hpp"
#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"
#include "workload/common/standalone_rate.hpp"

namespace egt {

namespace {

constexpr double epoch_period_s = 1;  // shorter epochs are reported together
/// Blocks per multiprocessor for transcendental chains while memory-resident GEMMs lead.
constexpr double width_beside_products = 3;

Json mean(const Histogram& figures) {
  return figures.count() > 0 ? Json(figures.mean()) : Json(nullptr);
}

/// Difference between the 95th and 5th percentiles, in percent of the mean.
Json spread_percent(const Histogram& figures) {
  if (figures.count() < 2) return nullptr;
  return 100 * (figures.quantile(0.95) - figures.quantile(0.05)) / figures.mean();
}

}  // namespace

TrainWorkload::TrainWorkload(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                             std::vector<std::int64_t> max_samples, GoldenBook& golden)
    : environment_(environment),
      options_(options),
      batch_(batch),
      balance_(batch, environment.place, std::move(max_samples), samples_unit(options.precisions)),
      golden_(golden) {}

Status TrainWorkload::prepare() {
  if (environment_.place.size > max_voters)
    return {StatusCode::unsupported, "at most 65535 ranks can vote on the end of a run"};
  is_default_rate_ = !options_.learning_rate;
  const double rate = options_.learning_rate.value_or(
      default_learning_rate(options_.layers, options_.optimizer, batch_.global));
  EGT_TRY_ASSIGN(auto trainer,
                 MlpTrainer::create(environment_.device, environment_.communicator,
                                    {.neurons = options_.layers,
                                     .batch = batch_,
                                     .max_samples = balance_.max_samples(environment_.place.rank),
                                     .precisions = options_.precisions,
                                     .optimizer = options_.optimizer,
                                     .learning_rate = rate,
                                     .gradient_type = options_.gradient_type,
                                     .extreme_iterations = options_.extreme_iterations,
                                     .seed = environment_.seed,
                                     .keeps_states = true,
                                     .has_second_pass = options_.covers_all()}));
  options_.learning_rate = rate;
  steps_ = std::make_unique<TrainingSteps>(environment_, options_, batch_, balance_, std::move(trainer));
  checks_ = std::make_unique<TrainingChecks>(environment_, options_, batch_, *steps_, golden_);
  EGT_TRY(checks_->prepare());
  environment_.load.set_precision(options_.precisions.front());
  return measure_rates();
}

/// Called in `prepare`, while memory is free. Later calls keep the faster rates.
Status TrainWorkload::measure_rates() {
  Stream& stream = steps_->trainer().compute_stream();
  for (const Precision precision : options_.precisions) {
    EGT_TRY_ASSIGN(const double rate,
                   product_rate_alone(environment_.device, stream, precision, environment_.rate_window_ms));
    product_rates_[precision] = std::max(product_rates_[precision], rate);
  }
  const int iterations = options_.extreme_iterations;
  if (iterations == 0) return {};
  EGT_TRY_ASSIGN(const double rate,
                 extreme_rate_alone(environment_.device, stream, iterations, environment_.rate_window_ms));
  extreme_rate_ = std::max(extreme_rate_.value_or(0), rate);
  if (iterations > max_short_turns) return {};
  EGT_TRY_ASSIGN(const double longer,
                 extreme_rate_alone(environment_.device, stream, longer_chains * iterations,
                                    environment_.rate_window_ms));
  long_chain_rate_ = std::max(long_chain_rate_, longer);
  return {};
}

/// A rate is refuted if the work was faster than the rate permits: the device was busy during the
/// measurement. The rate is then measured again. If the memory for this is in use, the rates are kept.
Status TrainWorkload::correct_rates() {
  const LoadFigures load = load_figures();
  const double seconds = seconds_since(started_);
  if (std::max(load.products.value_or(0), load.extreme.value_or(0)) <= seconds) return {};
  const Status measured = measure_rates();
  return measured.code() == StatusCode::out_of_memory ? Status() : measured;
}

LoadFigures TrainWorkload::load_figures() const {
  LoadFigures load;
  for (const auto& [precision, flops] : flops_)
    load.products = load.products.value_or(0) + flops / product_rates_.at(precision);
  if (extreme_rate_) load.extreme = turns_of(samples_) / *extreme_rate_;
  return load;
}

double TrainWorkload::summed_bytes() const {
  return static_cast<double>(steps_->trainer().layout().parameter_count()) *
         static_cast<double>(size_of(options_.gradient_type));
}

Status TrainWorkload::start() {
  started_ = Clock::now();
  return checks_->start();
}

double TrainWorkload::flops_of(std::int64_t samples) const {
  return flops_per_sample(options_.layers) * static_cast<double>(samples);
}

std::int64_t TrainWorkload::activations_of(std::int64_t samples) const {
  std::int64_t neurons = 0;
  for (std::size_t l = 1; l + 1 < options_.layers.size(); ++l) neurons += options_.layers[l];
  return neurons * samples;
}

double TrainWorkload::turns_of(std::int64_t samples) const {
  return static_cast<double>(activations_of(samples)) * options_.extreme_iterations;
}

Status TrainWorkload::enqueue(const Step& step) {
  const LoadLead lead = lead_of(step.index, options_.epoch_steps);
  environment_.load.set_lead(lead);
  environment_.load.set_precision(steps_->precision_of(step.index));
  steps_->trainer().compute_stream().set_width(lead == LoadLead::products ? width_beside_products : 0);
  EGT_TRY(steps_->enqueue(step));
  return checks_->after_step(step.index);
}

Status TrainWorkload::give_up_steps(double timeout_seconds) {
  return steps_->trainer().give_up_steps(timeout_seconds);
}

Status TrainWorkload::resume(RestartInfo& restart) {
  // Steps discarded by a restart do not count as work.
  if (options_.covers_all()) {
    const Computed open = uncompared(static_cast<std::int64_t>(checks_->figures().compared_steps));
    for (const auto& [precision, flops] : open.flops) flops_[precision] -= flops;
    samples_ -= open.samples;
  }
  EGT_TRY_ASSIGN(restart.next_step, checks_->resume());
  balance_.restart(restart.next_step);
  retired_ = restart.next_step;
  return {};
}

/// Waits first for this rank's own pass, before any wait for peers. This distinguishes a stuck device from
/// stuck peers.
Status TrainWorkload::wait_for_pass(std::int64_t step) {
  ProgressBoard::Line& line = environment_.board.line("main");
  line.begin("train: pass", step);
  EGT_TRY(steps_->trainer().wait_for_pass(step, environment_.peer_timeout_seconds));
  line.wait_for_peers("train: sums");
  return {};
}

Status TrainWorkload::retire(std::int64_t step, StepOutcome& outcome) {
  EGT_TRY(wait_for_pass(step));
  EGT_TRY_ASSIGN(const StepResult result,
                 steps_->trainer().retire_step(step, environment_.peer_timeout_seconds));
  const StopVote decision = decode_votes(result.votes);
  if (decision < steps_->vote(step))  // else the run would never end
    return {StatusCode::internal,
            fmt::format("the votes of step {} changed in transit: this rank's vote to stop is lost", step)};
  outcome.decision = std::max(outcome.decision, decision);
  const std::int64_t samples = samples_of(step), computed = computed_of(step);
  ++retired_;
  ++epoch_.steps;
  samples_ += computed;
  if (result.step_ms) {
    timed_samples_ += samples;
    epoch_.samples += samples;
    step_ms_.add(*result.step_ms);
    device_ms_ += *result.step_ms;
    if (lead_of(step, options_.epoch_steps) == LoadLead::products) products_led_ms_ += *result.step_ms;
    epoch_.ms += *result.step_ms;
    ++epoch_.timed_steps;
  }
  flops_[steps_->precision_of(step)] += flops_of(computed);
  add_compute_times(step, result);
  EGT_TRY(steps_->slow().learn(step, result));
  if (!loss_first_) loss_first_ = result.loss;
  loss_last_ = result.loss;
  loss_trend_.add(step, result.loss);
  if (step % options_.epoch_steps == options_.epoch_steps / 2) EGT_TRY(look_at_times(step, result));
  EGT_TRY(checks_->retire(step, result));
  if (ends_epoch(step) && (step < options_.epoch_steps || seconds_since(epoch_told_) >= epoch_period_s))
    close_epoch(step);
  if (ends_epoch(step)) balance_.end_epoch(step, steps_->precision_of(step + 1));
  return {};
}

std::int64_t TrainWorkload::computed_of(std::int64_t step) const {
  const std::optional<BatchShare> second = steps_->second_share(step);
  return samples_of(step) + (second ? second->local : 0);
}

void TrainWorkload::add_compute_times(std::int64_t step, const StepResult& result) {
  if (result.compute_ms) {
    compute_ms_ += *result.compute_ms;
    computed_samples_ += samples_of(step);
  }
  balance_.add(step, steps_->precision_of(step), result.all_compute_ms);
  const std::vector<double>& all = result.all_compute_ms;
  if (!std::all_of(all.begin(), all.end(), [](double ms) { return std::isfinite(ms) && ms > 0; })) return;
  all_compute_ms_.resize(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) all_compute_ms_[rank] += all[rank];
  ++all_compute_steps_;
}

Status TrainWorkload::look_at_times(std::int64_t step, const StepResult& result) {
  EGT_TRY_ASSIGN(const StepTimes times, steps_->trainer().measured_times());
  breakdown_.add(times, result.pass_ms);
  if (const double ms = times.of(StepPhase::activation); ms > 0)
    activation_ms_.add(ms * static_cast<double>(batch_.local) / static_cast<double>(samples_of(step)));
  if (const double rate = times.all_reduce_gb_per_s(); environment_.place.size > 1 && rate > 0) {
    epoch_all_reduce_gb_per_s_ = rate;
    all_reduce_gb_per_s_.add(rate);
  }
  return {};
}

void TrainWorkload::close_epoch(std::int64_t step) {
  const double timed = static_cast<double>(epoch_.timed_steps);
  const double samples = static_cast<double>(batch_.global) * timed;
  const bool measured = epoch_.ms > 0;
  const bool in_turn = epoch_.steps > options_.epoch_steps && options_.precisions.size() > 1;
  environment_.records.emit(
      RecordKind::epoch, step,
      {{"epoch", step / options_.epoch_steps},
       {"steps", epoch_.steps},
       {"ms", measured ? Json(epoch_.ms / timed * static_cast<double>(epoch_.steps)) : Json(nullptr)},
       {"samples_per_second", measured ? Json(samples / epoch_.ms * 1e3) : Json(nullptr)},
       {"tflops", measured ? Json(flops_of(epoch_.samples) / epoch_.ms / 1e9) : Json(nullptr)},
       {"loss", *loss_last_},
       {"all_reduce_gb_per_s", or_null(epoch_all_reduce_gb_per_s_)},
       {"precision", in_turn ? "cycle" : to_string(steps_->precision_of(step))}});
  epoch_told_ = Clock::now();
  epoch_ = {};
}

Status TrainWorkload::finish(const Shutdown& ending) {
  const Status checked = ending.hurry || retired_ == 0 ? Status() : checks_->finish();
  if (checks_) checks_->close(!ending.hurry && checked.ok());
  if (ending.hurry || !checked.ok() || !steps_) return checked;
  return correct_rates();
}

/// A repeating fault looks like divergence, so only a user-defined learning rate is blamed.
std::string TrainWorkload::divergence(std::int64_t step, const std::optional<LossApart>& first) const {
  std::string text = fmt::format(
      "the loss is not finite from step {} on, and was so again when the steps were repeated: training "
      "diverges",
      step);
  if (!is_default_rate_ && !first)
    return text + fmt::format("; use a --learning-rate below {:.3g}", options_.learning_rate.value_or(0));
  text += ", or a device computes wrong; compare with `verify`";
  return first ? text +
                     fmt::format("; the loss of rank {} diverged first, at step {}", first->rank, first->step)
               : text;
}

/// Failure of this rank's training; empty: none.
std::string TrainWorkload::failure_of(const CheckFigures& checks) const {
  if (checks.own_wrong_checks > 0)
    return fmt::format("{} found wrong results of this rank", counted(checks.own_wrong_checks, "check"));
  if (checks.undecided_checks > 0)
    return fmt::format("{} found wrong results of this rank or of another, not known which",
                       counted(checks.undecided_checks, "check"));
  if (const std::string undone = left_undone(checks); !undone.empty()) return undone;
  return retired_ == 0 ? "no step was trained" : "";
}

/// Why training proves nothing, although no result was wrong; empty: it does.
std::string TrainWorkload::left_undone(const CheckFigures& checks) const {
  const auto& [diverged_step, diverged_first, unexamined_step] = checks.losses;
  if (diverged_step) return divergence(*diverged_step, diverged_first);
  if (unexamined_step)
    return fmt::format(
        "the loss of step {} was not finite, and the run ended or was restarted before that step was "
        "repeated",
        *unexamined_step);
  if (loss_trend_.stands_still())
    return fmt::format(
        "the loss did not fall: {:.6g} at first, {:.6g} at the lowest of {} steps{}", *loss_first_,
        loss_trend_.lowest(), retired_,
        options_.learning_rate ? fmt::format(", with --learning-rate {}", *options_.learning_rate) : "");
  return "";
}

PartReport TrainWorkload::report() const {
  const CheckFigures checks = checks_ ? checks_->figures() : CheckFigures();
  PartReport part;
  part.name = "train";
  part.description = "Trains the network on every rank; passes and weights must repeat bit for bit";
  part.failure = failure_of(checks);
  part.success = part.failure.empty();
  const std::string weight_digest = checks_ ? checks_->weight_digest() : std::string();
  const bool timed = step_ms_.count() > 0;
  const double seconds = device_ms_ / 1e3;
  Json names = Json::array();
  for (const Precision precision : options_.precisions) names.push_back(to_string(precision));
  const Json step_ms = {{"p50", step_ms_.quantile(0.5)},
                        {"p95", step_ms_.quantile(0.95)},
                        {"p99", step_ms_.quantile(0.99)},
                        {"max", step_ms_.max()}};
  part.figures = {
      {"steps", retired_},
      {"undone", left_undone(checks).empty() ? Json() : Json(left_undone(checks))},
      {"precisions", names},
      {"optimizer", options_.optimizer == Optimizer::adam ? "adam" : "sgd"},
      {"learning_rate", or_null(options_.learning_rate)},
      {"parameters", steps_ ? Json(steps_->trainer().layout().parameter_count()) : Json(nullptr)},
      {"loss_first", or_null(loss_first_)},
      {"loss_last", or_null(loss_last_)},
      {"loss_halving_steps", or_null(loss_trend_.halving_steps())},
      {"step_ms", timed ? step_ms : Json(nullptr)},
      {"breakdown", breakdown_.figures(checks.fraction)},
      {"samples_per_second", timed ? Json(static_cast<double>(timed_samples_) / seconds) : Json(nullptr)},
      {"tflops", timed ? Json(flops_of(timed_samples_) / seconds / 1e12) : Json(nullptr)},
      {"all_reduce_gb_per_s", mean(all_reduce_gb_per_s_)},
      {"all_reduce_spread_percent", spread_percent(all_reduce_gb_per_s_)},
      {"compute_ms", computed_samples_ > 0 ? Json(compute_ms_ * static_cast<double>(batch_.local) /
                                                  static_cast<double>(computed_samples_))
                                           : Json(nullptr)},
      {"compute_tflops",
       compute_ms_ > 0 ? Json(flops_of(computed_samples_) / compute_ms_ / 1e9) : Json(nullptr)},
      {"replays", checks.replays},
      {"coverage", options_.covers_all() ? "full" : "sampled"},
      {"compared_steps", checks.compared_steps},
      {"replica_checks", checks.replica_checks},
      {"digests_compared", checks.digests_compared},
      {"gemms_verified", checks.gemms_verified},
      {"operations_sampled", checks.operations_sampled},
      {"wrong_checks", checks.wrong_checks},
      {"repeated_steps", checks.repeated_steps},
      {"checks_fraction", or_null(checks.fraction)},
      {"check_period_steps", checks.period_steps},
      {"golden", checks.golden_compared.empty()  ? checks.golden_unknown.empty() ? Json() : Json("not known")
                  : checks.golden_unknown.empty() ? Json("checked")
                                                 : Json("checked in part")},
      {"weight_digest", weight_digest.empty() ? Json(nullptr) : Json(weight_digest)}};
  note_checks_not_run(checks, part);
  if (options_.balance == Balance::automatic) part.figures.update(balance_.figures());
  // Rank 0 reports for all ranks over the same steps; its straggler_detector compares these values.
  if (environment_.place.rank == 0 && environment_.place.size > 1)
    part.figures["peers"] = {{"steps", all_compute_steps_}, {"compute_ms_sums", all_compute_ms_}};
  part.load = load_figures();
  for (const auto& [precision, rate] : product_rates_)
    part.load.alone["product_tflops"][std::string(to_string(precision))] = rate * 1e-12;
  if (extreme_rate_) {
    part.load.alone["giga_turns_per_second"] = *extreme_rate_ * 1e-9;
    part.load.alone["ratio_long_chains"] = ratio_or_null(*extreme_rate_, long_chain_rate_);
  }
  const double led = timed ? products_led_ms_ / device_ms_ : 0;
  part.load.mix = {{"load", options_.load == LoadKind::train ? "train" : "mix"},
                   {"led_by_extreme", timed ? Json(1 - led) : Json(nullptr)},
                   {"led_by_products", timed ? Json(led) : Json(nullptr)}};
  part.shares = shares(checks);
  part.work.replays = checks.replays;
  part.work.replica_checks = checks.replica_checks;
  // Equal weights on all ranks do not verify the GEMMs of their different batches; only replays and second
  // passes do.
  const auto replayed = static_cast<double>(batch_.global / environment_.place.size);
  part.work.gemm_flops = flops_per_sample(options_.layers) *
                         (replayed * static_cast<double>(checks.replays) +
                          2 * static_cast<double>(batch_.local) * static_cast<double>(checks.compared_steps));
  return part;
}

/// Work of the last steps, whose passes are not compared yet.
TrainWorkload::Computed TrainWorkload::uncompared(std::int64_t compared_steps) const {
  Computed computed;
  for (std::int64_t step = compared_steps; step < retired_; ++step) {
    computed.flops[steps_->precision_of(step)] += flops_of(computed_of(step));
    computed.samples += computed_of(step);
  }
  return computed;
}

/// With sampled coverage, known-answer passes are additional work, and the only verified passes.
std::vector<WorkShare> TrainWorkload::shares(const CheckFigures& checks) const {
  if (!steps_) return {};
  std::vector<WorkShare> all;
  const bool is_full = options_.covers_all();
  const auto compared_steps = static_cast<std::int64_t>(checks.compared_steps);
  const Computed open = is_full ? uncompared(compared_steps) : Computed();
  const double replayed_samples = static_cast<double>(checks.replays) *
                                  static_cast<double>(batch_.global / environment_.place.size),
               replayed_share = 1 / static_cast<double>(options_.precisions.size());
  const auto add = [&](WorkKind kind, std::string precision, double done, double open_work, double replayed) {
    all.push_back({.kind = kind,
                   .precision = std::move(precision),
                   .done = done + (is_full ? 0 : replayed),
                   .verified = is_full ? done - open_work : replayed});
  };
  for (const auto& [precision, flops] : flops_) {
    const auto not_yet = open.flops.find(precision);
    add(WorkKind::gemm, std::string(to_string(precision)), flops,
        not_yet != open.flops.end() ? not_yet->second : 0,
        replayed_share * replayed_samples * flops_per_sample(options_.layers));
  }
  if (options_.extreme_iterations > 0)
    add(WorkKind::transcendental, std::string(to_string(Precision::fp32)), turns_of(samples_),
        turns_of(open.samples), replayed_samples * turns_of(1));
  const auto parameters = static_cast<double>(steps_->trainer().layout().parameter_count());
  const auto of_steps = [&](WorkKind kind, std::int64_t verified) {
    all.push_back({.kind = kind,
                   .done = static_cast<double>(retired_) * parameters,
                   .verified = static_cast<double>(std::min(verified, retired_)) * parameters});
  };
  of_steps(WorkKind::update, checks.verified_updates);
  if (environment_.place.size > 1) of_steps(WorkKind::all_reduce, compared_steps);
  return all;
}

void TrainWorkload::note_checks_not_run(const CheckFigures& checks, PartReport& part) const {
  const bool is_alone = environment_.place.size == 1, is_full = options_.covers_all();
  const bool has_golden = !options_.golden.empty();
  const auto note = [&](bool is_skipped, const std::string& check, const std::string& reason) {
    if (is_skipped) note_not_run(part, check, reason);
  };
  const bool no_peers = is_alone && !is_full;
  note(no_peers || checks.replica_checks == 0, "weight consistency check",
       no_peers ? "one rank has no peers to compare with" : "the run ended before the first one");
  note(checks.replays == 0, "known-answer test", "the run ended before there was an answer to compare with");
  note(checks.checks_in_steps == 0 && retired_ > 0, "training checks between the first and the last step",
       options_.check_every > retired_
           ? fmt::format("--check-every {} is beyond the {} steps of the run", options_.check_every, retired_)
           : "the run ended before the first one");
  note(!is_full, "comparison of every training pass", "--coverage sampled");
  note(is_alone || !is_full, "all-reduce check",
       is_alone ? "one rank has no all-reduces" : "--coverage sampled");
  note(!has_golden, "golden digests", "only `burn --golden FILE` compares them");
  for (const std::string& precision : checks.golden_unknown)
    note(true, fmt::format("golden digests in {}", precision),
         fmt::format("{} does not have this device, software or work", options_.golden));
  note(has_golden && checks.golden_compared.empty() && checks.golden_unknown.empty(), "golden digests",
       fmt::format("{} did not exist before this run", options_.golden));
  note(options_.extreme_iterations == 0, "transcendental chains", "--extreme-iterations 0");
  if (options_.load == LoadKind::train)
    for (const char* check : {"host copies", "peer copies", "multiprocessor vote"})
      note_not_run(part, check, "--load train");
}

PartReport TrainWorkload::extreme_report() const {
  const double turns = turns_of(batch_.local);
  PartReport part;
  part.name = "extreme";
  part.description = "Transcendental chains on every activation, in the data's path";
  part.success = options_.extreme_iterations == 0 || retired_ > 0;
  if (!part.success) part.failure = "no step was trained";
  part.figures = {{"iterations", options_.extreme_iterations},
                  {"activations_per_step", activations_of(batch_.local)},
                  {"turns", turns_of(samples_)},
                  {"ms_per_step", mean(activation_ms_)},
                  {"ms_per_step_spread_percent", spread_percent(activation_ms_)},
                  {"giga_turns_per_second",
                   activation_ms_.count() > 0 ? Json(turns / activation_ms_.mean() / 1e6) : Json(nullptr)}};
  return part;
}

std::vector<PartReport> TrainWorkload::reports() const {
  return {report(), extreme_report()};
}

}  // namespace egt
