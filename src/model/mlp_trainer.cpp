#include "model/mlp_trainer.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "egt/core/profiler_range.hpp"

namespace egt {

namespace {

// Random sequence of replays. A step's sequence is its step number.
constexpr std::uint64_t replay_sequence = std::uint64_t{1} << 62;
constexpr double initialization_timeout_s = 60.0;

/// A single rank needs no all-reduce. Each layer's weight gradient is then one GEMM, and one update covers
/// all layers.
std::int64_t bucket_elements(const Communicator& communicator) {
  return communicator.size() > 1 ? usual_bucket_elements : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

Result<std::unique_ptr<MlpTrainer>> MlpTrainer::create(Device& device, Communicator& communicator,
                                                       const MlpConfig& config) {
  for (const Precision precision : config.precisions) {
    const Support support = supports_training(device, precision);
    if (!support.yes()) return Status(StatusCode::unsupported, support.why_not);
    if (precision == Precision::fp8) EGT_TRY(mlp::check_fp8_shapes(config.neurons, config.batch.local));
  }
  std::unique_ptr<MlpTrainer> trainer(new MlpTrainer(device, communicator, config));
  EGT_TRY(trainer->allocate());
  EGT_TRY(trainer->make_streams_and_events());
  EGT_TRY(trainer->initialize());
  EGT_TRY(trainer->set_precision(config.precisions.front()));
  // From here on every stream may read the weights.
  EGT_TRY(device.synchronize(*trainer->compute_, initialization_timeout_s));
  return trainer;
}

MlpTrainer::MlpTrainer(Device& device, Communicator& communicator, const MlpConfig& config)
    : device_(device),
      communicator_(communicator),
      config_(config),
      share_(config.batch),
      second_share_(config.batch),
      layout_(config.neurons, bucket_elements(communicator)),
      trained_(device_, config_, layout_),
      second_(config.has_second_pass && communicator.size() == 1
                  ? std::make_unique<mlp::TrainedState>(device_, config_, layout_)
                  : nullptr),
      sums_(device_, communicator_, config_, layout_),
      comparison_(device_, communicator_, config_, layout_),
      updates_(device_, layout_, sums_, trained_, workspace_, second_.get(), comparison_.gradient()) {}

Status MlpTrainer::allocate() {
  EGT_TRY(trained_.allocate(config_.keeps_states));
  if (second_) EGT_TRY(second_->allocate(false));
  EGT_TRY(sums_.allocate());
  EGT_TRY_ASSIGN(known_, mlp::ParameterSet::allocate(device_, config_.precisions, layout_.size()));
  EGT_TRY_ASSIGN(workspace_, mlp::Workspace::allocate(device_, config_, layout_));
  EGT_TRY_ASSIGN(replay_loss_, device_.allocate(sizeof(float)));
  return tails_.allocate(device_, communicator_.size(), depth + 2);
}

Status MlpTrainer::make_streams_and_events() {
  EGT_TRY_ASSIGN(compute_, device_.create_stream(StreamPriority::normal));
  EGT_TRY_ASSIGN(communication_, device_.create_stream(StreamPriority::high, StreamUse::without_products));
  EGT_TRY(updates_.allocate());
  EGT_TRY(timeline_.allocate(device_, layout_.layers().size(), layout_.buckets().size()));
  EGT_TRY_ASSIGN(shown_, device_.create_event(EventUse::order));
  pass_ = std::make_unique<mlp::Pass>(device_, config_, layout_, workspace_, *compute_);
  return pass_->allocate();
}

Status MlpTrainer::initialize() {
  EGT_TRY(trained_.initialize(*compute_));
  if (second_) EGT_TRY(second_->initialize(*compute_));
  EGT_TRY(known_.initialize(device_, layout_, nullptr, config_.seed, *compute_));
  EGT_TRY(known_.randomize_biases(device_, layout_, config_.seed, *compute_));
  EGT_TRY(comparison_.prepare(tails_.size(), *compute_, *communication_));
  EGT_TRY(device_.set_zero(workspace_.gradient.data(), workspace_.gradient.bytes(), *compute_));
  if (!sums_.are_verified()) return {};
  // Load the kernels now. A later load may wait for kernels that wait for a peer. Step 0 overwrites the
  // evidence.
  comparison_.begin_step(0);
  return sums_.verify(layout_.buckets()[0], workspace_, comparison_.evidence_of(0), *compute_);
}

Status MlpTrainer::set_precision(Precision precision) {
  EGT_TRY(settle());
  precision_ = precision;
  for (mlp::TrainedState* const state : {&trained_, second_.get()}) {
    if (state == nullptr) continue;
    const VectorView copy = state->parameters.compute_copy(precision);
    if (copy.data != nullptr) EGT_TRY(device_.cast(copy, state->parameters.master(), *compute_));
  }
  return {};
}

Status MlpTrainer::set_shares(const BatchShare& own, const std::optional<BatchShare>& second) {
  EGT_TRY(check(own));
  share_ = own;
  if (!second) return {};
  if (!config_.has_second_pass) return {StatusCode::internal, "no memory for a second pass"};
  EGT_TRY(check(*second));
  second_share_ = *second;
  return {};
}

Status MlpTrainer::check(const BatchShare& wanted) const {
  if (wanted.local < 1 || wanted.local > std::max(config_.batch.local, config_.max_samples) ||
      wanted.global != config_.batch.global)
    return {StatusCode::invalid_argument, "a share of a batch that there is no memory for"};
  return {};
}

Status MlpTrainer::enqueue_step(std::int64_t step, float vote, bool measure) {
  const ProfilerRange range("train step");
  timeline_.begin(measure);
  enqueued_ = &tails_.of(step);
  enqueued_->rows = share_.local;
  enqueued_step_ = step;
  comparison_.begin_step(step);
  EGT_TRY(pass_->enqueue({.precision = precision_,
                          .parameters = trained_.parameters,
                          .sequence = static_cast<std::uint64_t>(step),
                          .first_sample = share_.first,
                          .rows = share_.local,
                          .loss = enqueued_->loss(),
                          .of = StepPass::first,
                          .fuses_activation = true},
                         *this));
  trained_.step_made();
  if (second_) second_->step_made();
  // The last all-reduce follows the loss. The next step's GEMMs need not wait for this step's votes.
  EGT_TRY(
      enqueued_->close(device_, communicator_, vote, std::exchange(last_compute_ms_, 0.0f), *communication_));
  return config_.has_second_pass ? make_second_pass() : Status();
}

/// The second pass follows the step's own pass, so that the step's all-reduces overlap with it. On a single
/// rank it reads the second state, so that a wrong copy of the weights shows.
Status MlpTrainer::make_second_pass() {
  const ProfilerRange range("second pass");
  comparison_.begin_second_pass();
  EGT_TRY(pass_->enqueue({.precision = precision_,
                          .parameters = second_ ? second_->parameters : trained_.parameters,
                          .sequence = static_cast<std::uint64_t>(enqueued_step_),
                          .first_sample = second_share_.first,
                          .rows = second_share_.local,
                          .loss = comparison_.loss(),
                          .gradient = &comparison_.gradient(),
                          .of = StepPass::second,
                          .fuses_activation = true},
                         comparison_));
  EGT_TRY(device_.record(*enqueued_->second_end, *compute_));
  return comparison_.exchange();
}

/// All-reduces finish in bucket order, with the first layer's and then the second layer's last. All others
/// are complete with the first layer's, and are applied while the second layer's may still be in flight.
Status MlpTrainer::before_layer(std::size_t layer) {
  if (layer == 0) {
    EGT_TRY(await_sums(0));
    EGT_TRY(device_.record(*enqueued_->compute_begin, *compute_));
    EGT_TRY(update(0, 0));
  }
  if (layer == 1) {
    EGT_TRY(update(2, layout_.layers().size()));
    EGT_TRY(device_.record(*enqueued_->wait_begin, *compute_));
    EGT_TRY(await_sums(1));
    EGT_TRY(device_.record(*enqueued_->wait_end, *compute_));
    EGT_TRY(update(1, 1));
  }
  EGT_TRY(begin_phase(StepPhase::forward));
  if (layer > 0) return {};
  return extra_work_ ? extra_work_(enqueued_step_, *compute_) : Status();
}

Status MlpTrainer::await_sums(std::size_t layer) {
  EGT_TRY(begin_phase(StepPhase::wait));
  return updates_.await_sums(layer, *compute_);
}

Status MlpTrainer::update(std::size_t first_layer, std::size_t last_layer) {
  EGT_TRY(begin_phase(StepPhase::update));
  return updates_.update(first_layer, last_layer, precision_, *compute_, unobserved_);
}

Status MlpTrainer::before(const Operation& operation) {
  return std::holds_alternative<Activation>(operation) ? begin_phase(StepPhase::activation) : Status();
}

Status MlpTrainer::after(const Operation& operation, const PassTensor&) {
  return std::holds_alternative<Activation>(operation) ? begin_phase(StepPhase::forward) : Status();
}

Status MlpTrainer::bucket_made(std::size_t bucket) {
  EGT_TRY(comparison_.add(bucket, workspace_.gradient_range(0, layout_.size()), enqueued_->loss()));
  // Record before the last all-reduce, so that this event is reached when the step is complete.
  if (bucket + 1 == layout_.buckets().size()) {
    EGT_TRY(begin_phase({}));
    EGT_TRY(device_.record(*enqueued_->compute_end, *compute_));
  }
  return updates_.sum(bucket,
                      sums_.are_verified() ? comparison_.evidence_of(bucket) : mlp::AllReduceEvidence(),
                      *compute_, *communication_, timeline_);
}

Result<double> MlpTrainer::compute_ms(const mlp::StepTail& tail) {
  if (layout_.layers().size() < 2) return device_.busy_ms(*tail.compute_begin, *tail.compute_end);
  EGT_TRY_ASSIGN(const double before, device_.busy_ms(*tail.compute_begin, *tail.wait_begin));
  EGT_TRY_ASSIGN(const double behind, device_.busy_ms(*tail.wait_end, *tail.compute_end));
  return before + behind;
}

Result<StepResult> MlpTrainer::retire_step(std::int64_t step, double timeout_seconds) {
  const mlp::StepTail& tail = tails_.of(step);
  const std::string what = "the end of training step " + std::to_string(step);
  EGT_TRY(wait_with_peers(device_, communicator_, *tail.done, timeout_seconds, what.c_str()));
  const double outputs =
      static_cast<double>(config_.batch.global) * static_cast<double>(config_.neurons.back());
  StepResult result = tail.read(communicator_.size(), outputs);
  if (last_retired_ == step - 1) {
    const mlp::StepTail& before = tails_.of(step - 1);
    EGT_TRY_ASSIGN(result.step_ms, device_.elapsed_ms(*before.done, *tail.done));
    EGT_TRY_ASSIGN(result.pass_ms, device_.elapsed_ms(*before.compute_end, *tail.compute_end));
    if (config_.has_second_pass) {
      EGT_TRY_ASSIGN(second_ms_, device_.elapsed_ms(*before.compute_end, *before.second_end));
    }
  }
  last_retired_ = step;
  EGT_TRY_ASSIGN(result.compute_ms, compute_ms(tail));
  last_compute_ms_ = static_cast<float>(*result.compute_ms * static_cast<double>(config_.batch.local) /
                                        static_cast<double>(tail.rows));
  return result;
}

Status MlpTrainer::wait_for_pass(std::int64_t step, double timeout_seconds) {
  return wait_with_peers(device_, communicator_, *tails_.of(step).compute_end, timeout_seconds,
                         "a pass of training");
}

Status MlpTrainer::give_up_steps(double timeout_seconds) {
  EGT_TRY(device_.forget_failure(*communication_, timeout_seconds));
  EGT_TRY(device_.forget_failure(*compute_, timeout_seconds));
  last_retired_.reset();
  last_compute_ms_ = 0;
  updates_.drop();
  return {};
}

Result<StepTimes> MlpTrainer::measured_times() const {
  EGT_TRY_ASSIGN(StepTimes times, timeline_.times(device_));
  times.phase_ms[static_cast<std::size_t>(StepPhase::second)] = second_ms_;
  for (const GradientBucket& bucket : layout_.buckets())
    times.sum_bytes.push_back(static_cast<double>(bucket.count) *
                              static_cast<double>(size_of(config_.gradient_type)));
  return times;
}

Status MlpTrainer::enqueue_replay(Precision precision, Digest* answers, OperationObserver* observer) {
  const std::int64_t rows = std::min(config_.batch.local, config_.batch.global / communicator_.size());
  // The replay writes its gradients to the same memory. A wrong all-reduce may have corrupted the padding
  // between layers, which no pass overwrites.
  EGT_TRY(settle(observer));
  EGT_TRY(device_.set_zero(workspace_.gradient.data(), workspace_.gradient.bytes(), *compute_));
  if (const VectorView copy = known_.compute_copy(precision); copy.data != nullptr)
    EGT_TRY(device_.cast(copy, known_.master(), *compute_));
  // A GEMM that is fused with its activation has no digest.
  const std::vector<PassTensor> tensors = replay_tensors();
  EGT_TRY(device_.set_zero(answers, tensors.size() * sizeof(Digest), *compute_));
  mlp::TensorDigests digests(device_, tensors, observer);
  digests.digest_to(answers, *compute_);
  EGT_TRY(pass_->enqueue({.precision = precision,
                          .parameters = known_,
                          .sequence = replay_sequence,
                          .first_sample = 0,
                          .rows = rows,
                          .loss = replay_loss_.as<float>(),
                          .fuses_activation = true},
                         digests));
  const auto compressed = std::find_if(tensors.begin(), tensors.end(), [](const PassTensor& tensor) {
    return tensor.kind == TensorKind::sent_gradient;
  });
  EGT_TRY(sums_.answer(workspace_, answers + (compressed - tensors.begin()), *compute_));
  return show_to_communication();
}

void MlpTrainer::set_tensor_faults(std::vector<TensorFault> tensor_faults) {
  sums_.set_tensor_faults(tensor_faults);
  pass_->set_tensor_faults(std::move(tensor_faults));
}

Status MlpTrainer::show_to_communication() {
  EGT_TRY(device_.record(*shown_, *compute_));
  return device_.wait(*communication_, *shown_);
}

Status MlpTrainer::enqueue_state_digests(Digest* answers, bool of_second) {
  EGT_TRY(settle());
  for (const StateTensor& tensor : state_tensors())
    EGT_TRY(device_.digest((of_second ? *second_ : trained_).words(tensor), answers++, *compute_));
  return show_to_communication();
}

Status MlpTrainer::tamper_state(const StateTensor& tensor, const Flip& flip) {
  EGT_TRY(settle());
  return device_.flip(state(tensor), flip, *compute_);
}

Status MlpTrainer::keep_state(int slot) {
  EGT_TRY(settle());
  EGT_TRY(trained_.keep(slot, *compute_));
  return show_to_communication();
}

Status MlpTrainer::restore_state(int slot) {
  last_retired_.reset();
  updates_.drop();
  EGT_TRY(trained_.restore(slot, *compute_));
  return second_ ? second_->assign(trained_, *compute_) : Status();
}

}  // namespace egt
