#include "model/mlp_trainer.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "egt/core/profiler_range.hpp"
#include "egt/core/wait.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_pass.hpp"
#include "model/mlp_state.hpp"
#include "model/parallel/gradient_all_reduce.hpp"
#include "model/pass_comparison.hpp"
#include "model/pending_updates.hpp"
#include "model/step_tail.hpp"
#include "model/step_timeline.hpp"

namespace egt {

namespace {

using mlp::EventHandle;
using mlp::ParameterSet;
using mlp::StepTail;
using mlp::Workspace;

// Random sequence of replays. A step's sequence is its step number.
constexpr std::uint64_t replay_sequence = std::uint64_t{1} << 62;
constexpr double initialization_timeout_s = 60.0;

/// A single rank needs no all-reduce. Each layer's weight gradient is then one GEMM, and one update covers
/// all layers.
std::int64_t bucket_elements(const Communicator& communicator) {
  return communicator.size() > 1 ? usual_bucket_elements : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

namespace {

MlpConfig without_kept_states(MlpConfig config) {
  config.keeps_states = false;
  return config;
}

}  // namespace

struct MlpTrainer::Impl : mlp::PassObserver {
  Impl(Device& d, Communicator& c, const MlpConfig& m)
      : device(d),
        communicator(c),
        config(m),
        share(m.batch),
        second_share(m.batch),
        layout(m.neurons, bucket_elements(c)),
        trained(device, config, layout),
        second_config(without_kept_states(m)),
        second(m.has_second_pass && c.size() == 1
                   ? std::make_unique<mlp::TrainedState>(device, second_config, layout)
                   : nullptr),
        sums(device, communicator, config, layout),
        comparison(device, communicator, config, layout),
        updates(device, layout, sums, trained, workspace, second.get(), comparison.gradient()) {}

  Status allocate();
  Status make_streams_and_events();
  Status initialize();
  Status close_step(const StepMessage& note);
  Status make_second_pass();
  Status check(const BatchShare& wanted) const;
  Status settle() {
    OperationObserver nothing;
    return updates.settle(precision, *compute, nothing);
  }
  /// Makes later work on the communication stream wait for all earlier work on the compute stream.
  Status show_to_communication();
  /// Compute time of the step's pass, excluding its communication wait.
  Result<double> compute_ms(const StepTail& tail);
  Status await_sums(std::size_t layer);
  Status update(std::size_t first_layer, std::size_t last_layer);
  Status begin_phase(std::optional<StepPhase> phase) { return timeline.mark(device, phase, *compute); }

  // Hooks of a training step's pass
  Status before_layer(std::size_t layer) override;
  Status before(const Operation& operation) override;
  Status after(const Operation& operation, const PassTensor& tensor) override;
  Status before_backward() override;
  Digest* chains_digest(const PassTensor& chains) override {
    return config.has_second_pass ? comparison.digest_of(chains) : nullptr;
  }
  Status made(const PassTensor& tensor, WordsView words) override {
    return config.has_second_pass ? comparison.add(tensor, words, *compute) : Status();
  }
  Status bucket_made(std::size_t bucket) override;

  Device& device;
  Communicator& communicator;
  const MlpConfig config;
  BatchShare share, second_share;
  const ParameterLayout layout;
  Precision precision = Precision::fp32;
  std::optional<std::int64_t> last_retired;
  float last_compute_ms = 0;       // not sent to the peers yet; 0: none
  double second_ms = 0;            // of the retired step before the last one
  std::int64_t enqueued_step = 0;  // the step being enqueued
  StepTail* enqueued = nullptr;    // tail of that step
  ExtraWork extra_work;

  // Members are destroyed in reverse order, so streams are destroyed before the memory that their work uses.
  mlp::TrainedState trained;
  const MlpConfig second_config;
  /// A single rank has no peers to compare its state with. It keeps a second state, which the second passes'
  /// gradients update. Null: no second state.
  const std::unique_ptr<mlp::TrainedState> second;
  mlp::GradientAllReduce sums;
  ParameterSet known;  // weights of replays: the initial ones, but with nonzero biases
  Workspace workspace;
  Buffer replay_loss;
  mlp::PassComparison comparison;
  mlp::StepTails tails;
  mlp::PendingUpdates updates;
  mlp::StepTimeline timeline;
  EventHandle shown;
  std::unique_ptr<Stream> compute, communication;
  std::unique_ptr<mlp::Pass> pass;
};

Result<std::unique_ptr<MlpTrainer>> MlpTrainer::create(Device& device, Communicator& communicator,
                                                       const MlpConfig& config) {
  for (const Precision precision : config.precisions) {
    const Support support = supports_training(device, precision);
    if (!support.yes()) return Status(StatusCode::unsupported, support.why_not);
    if (precision == Precision::fp8) EGT_TRY(mlp::check_fp8_shapes(config.neurons, config.batch.local));
  }
  auto impl = std::make_unique<Impl>(device, communicator, config);
  EGT_TRY(impl->allocate());
  EGT_TRY(impl->make_streams_and_events());
  EGT_TRY(impl->initialize());
  std::unique_ptr<MlpTrainer> trainer(new MlpTrainer(std::move(impl)));
  EGT_TRY(trainer->set_precision(config.precisions.front()));
  // From here on every stream may read the weights.
  EGT_TRY(device.synchronize(*trainer->impl_->compute, initialization_timeout_s));
  return trainer;
}

MlpTrainer::MlpTrainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MlpTrainer::~MlpTrainer() = default;

Status MlpTrainer::Impl::allocate() {
  EGT_TRY(trained.allocate());
  if (second) EGT_TRY(second->allocate());
  EGT_TRY(sums.allocate());
  EGT_TRY_ASSIGN(known, ParameterSet::allocate(device, config.precisions, layout.size()));
  EGT_TRY_ASSIGN(workspace, Workspace::allocate(device, config, layout));
  EGT_TRY_ASSIGN(replay_loss, device.allocate(sizeof(float)));
  if (config.has_second_pass) EGT_TRY(comparison.allocate(workspace));
  return tails.allocate(device, communicator.size());
}

Status MlpTrainer::Impl::make_streams_and_events() {
  EGT_TRY_ASSIGN(compute, device.create_stream(StreamPriority::normal));
  EGT_TRY_ASSIGN(communication, device.create_stream(StreamPriority::high, StreamUse::without_products));
  EGT_TRY(updates.allocate());
  EGT_TRY(timeline.allocate(device, layout.layers().size(), layout.buckets().size()));
  EGT_TRY_ASSIGN(shown, device.create_event(EventUse::order));
  pass = std::make_unique<mlp::Pass>(device, config, layout, workspace, *compute);
  return pass->allocate();
}

Status MlpTrainer::Impl::initialize() {
  EGT_TRY(trained.initialize(*compute));
  if (second) EGT_TRY(second->initialize(*compute));
  EGT_TRY(known.initialize(device, layout, nullptr, config.seed, *compute));
  EGT_TRY(known.randomize_biases(device, layout, config.seed, *compute));
  if (config.has_second_pass) EGT_TRY(comparison.initialize(*compute));
  EGT_TRY(device.set_zero(workspace.gradient.data(), workspace.gradient.bytes(), *compute));
  if (!sums.are_verified()) return {};
  // Load the kernels now. A later load may wait for kernels that wait for a peer. Step 0 overwrites the
  // evidence.
  comparison.begin_step(0);
  return sums.verify(layout.buckets()[0], workspace, comparison.evidence_of(0), *compute);
}

Status MlpTrainer::set_precision(Precision precision) {
  Impl& m = *impl_;
  EGT_TRY(m.settle());
  m.precision = precision;
  for (mlp::TrainedState* const state : {&m.trained, m.second.get()}) {
    if (state == nullptr) continue;
    const VectorView copy = state->parameters.compute_copy(precision);
    if (copy.data != nullptr) EGT_TRY(m.device.cast(copy, state->parameters.master(), *m.compute));
  }
  return {};
}

Status MlpTrainer::set_share(const BatchShare& share) {
  EGT_TRY(impl_->check(share));
  impl_->share = share;
  return {};
}

Status MlpTrainer::set_second_share(const BatchShare& share) {
  if (!impl_->config.has_second_pass) return {StatusCode::internal, "no memory for a second pass"};
  EGT_TRY(impl_->check(share));
  impl_->second_share = share;
  return {};
}

Status MlpTrainer::Impl::check(const BatchShare& wanted) const {
  if (wanted.local < 1 || wanted.local > std::max(config.batch.local, config.max_samples) ||
      wanted.global != config.batch.global)
    return {StatusCode::invalid_argument, "a share of a batch that there is no memory for"};
  return {};
}

Status MlpTrainer::enqueue_step(std::int64_t step, const StepMessage& note, bool measure) {
  Impl& m = *impl_;
  const ProfilerRange range("train step");
  m.timeline.begin(measure);
  m.enqueued = &m.tails.of(step);
  m.enqueued->rows = m.share.local;
  m.enqueued_step = step;
  m.comparison.begin_step(step);
  EGT_TRY(m.pass->enqueue({.precision = m.precision,
                           .parameters = m.trained.parameters,
                           .sequence = static_cast<std::uint64_t>(step),
                           .first_sample = m.share.first,
                           .rows = m.share.local,
                           .loss = m.enqueued->loss(),
                           .of = StepPass::first,
                           .fuses_activation = true},
                          m));
  m.trained.step_made();
  if (m.second) m.second->step_made();
  EGT_TRY(m.close_step(note));
  return m.config.has_second_pass ? m.make_second_pass() : Status();
}

/// The second pass follows the step's own pass, so that the step's all-reduces overlap with it. On a single
/// rank it reads the second state, so that a wrong copy of the weights shows.
Status MlpTrainer::Impl::make_second_pass() {
  const ProfilerRange range("second pass");
  EGT_TRY(pass->enqueue({.precision = precision,
                         .parameters = second ? second->parameters : trained.parameters,
                         .sequence = static_cast<std::uint64_t>(enqueued_step),
                         .first_sample = second_share.first,
                         .rows = second_share.local,
                         .loss = comparison.loss(),
                         .gradient = &comparison.gradient(),
                         .of = StepPass::second,
                         .fuses_activation = true},
                        comparison.second_pass(*compute)));
  EGT_TRY(device.record(*enqueued->second_end, *compute));
  return comparison.exchange(*compute, *communication);
}

/// All-reduces finish in bucket order, with the first layer's and then the second layer's last. All others
/// are complete with the first layer's, and are applied while the second layer's may still be in flight.
Status MlpTrainer::Impl::before_layer(std::size_t layer) {
  if (layer == 0) {
    EGT_TRY(await_sums(0));
    EGT_TRY(device.record(*enqueued->compute_begin, *compute));
    EGT_TRY(update(0, 0));
  }
  if (layer == 1) {
    EGT_TRY(update(2, layout.layers().size()));
    EGT_TRY(device.record(*enqueued->wait_begin, *compute));
    EGT_TRY(await_sums(1));
    EGT_TRY(device.record(*enqueued->wait_end, *compute));
    EGT_TRY(update(1, 1));
  }
  EGT_TRY(begin_phase(StepPhase::forward));
  if (layer > 0) return {};
  return extra_work ? extra_work(enqueued_step, *compute) : Status();
}

Status MlpTrainer::Impl::await_sums(std::size_t layer) {
  EGT_TRY(begin_phase(StepPhase::wait));
  return updates.await_sums(layer, *compute);
}

Status MlpTrainer::Impl::update(std::size_t first_layer, std::size_t last_layer) {
  EGT_TRY(begin_phase(StepPhase::update));
  return updates.update(first_layer, last_layer, precision, *compute);
}

Status MlpTrainer::Impl::before(const Operation& operation) {
  return std::holds_alternative<Activation>(operation) ? begin_phase(StepPhase::activation) : Status();
}

Status MlpTrainer::Impl::after(const Operation& operation, const PassTensor&) {
  return std::holds_alternative<Activation>(operation) ? begin_phase(StepPhase::forward) : Status();
}

Status MlpTrainer::Impl::before_backward() {
  return begin_phase(StepPhase::backward);
}

Status MlpTrainer::Impl::bucket_made(std::size_t bucket) {
  if (config.has_second_pass)
    EGT_TRY(comparison.add(bucket, workspace.gradient_range(0, layout.size()), enqueued->loss(), *compute));
  // Record before the last all-reduce, so that this event is reached when the step is complete.
  if (bucket + 1 == layout.buckets().size()) {
    EGT_TRY(begin_phase({}));
    EGT_TRY(device.record(*enqueued->compute_end, *compute));
  }
  return updates.sum(bucket, sums.are_verified() ? comparison.evidence_of(bucket) : mlp::AllReduceEvidence(),
                     *compute, *communication, timeline);
}

Status MlpTrainer::Impl::close_step(const StepMessage& note) {
  // The last all-reduce follows the loss. The next step's GEMMs need not wait for this step's message.
  return enqueued->close(device, communicator, note, std::exchange(last_compute_ms, 0.0f), *communication);
}

Result<double> MlpTrainer::Impl::compute_ms(const StepTail& tail) {
  if (layout.layers().size() < 2) return device.busy_ms(*tail.compute_begin, *tail.compute_end);
  EGT_TRY_ASSIGN(const double before, device.busy_ms(*tail.compute_begin, *tail.wait_begin));
  EGT_TRY_ASSIGN(const double behind, device.busy_ms(*tail.wait_end, *tail.compute_end));
  return before + behind;
}

Result<StepResult> MlpTrainer::retire_step(std::int64_t step, double timeout_seconds) {
  Impl& m = *impl_;
  const StepTail& tail = m.tails.of(step);
  const std::string what = "the end of training step " + std::to_string(step);
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(m.communicator.check());
        return m.device.done(*tail.done);
      },
      {.seconds = timeout_seconds, .what = what.c_str()}));
  const double outputs =
      static_cast<double>(m.config.batch.global) * static_cast<double>(m.config.neurons.back());
  StepResult result = tail.read(m.communicator.size(), outputs);
  if (m.last_retired == step - 1) {
    const StepTail& before = m.tails.of(step - 1);
    EGT_TRY_ASSIGN(result.step_ms, m.device.elapsed_ms(*before.done, *tail.done));
    EGT_TRY_ASSIGN(result.pass_ms, m.device.elapsed_ms(*before.compute_end, *tail.compute_end));
    if (m.config.has_second_pass) {
      EGT_TRY_ASSIGN(m.second_ms, m.device.elapsed_ms(*before.compute_end, *before.second_end));
    }
  }
  m.last_retired = step;
  EGT_TRY_ASSIGN(result.compute_ms, m.compute_ms(tail));
  m.last_compute_ms = static_cast<float>(*result.compute_ms * static_cast<double>(m.config.batch.local) /
                                         static_cast<double>(tail.rows));
  return result;
}

std::vector<std::string> MlpTrainer::compared_tensors() const {
  return impl_->comparison.tensors();
}

int MlpTrainer::compared_layer(std::size_t question) const {
  return impl_->comparison.layer_of(question);
}

Result<std::vector<MlpTrainer::PassDigests>> MlpTrainer::pass_digests(std::int64_t step,
                                                                      double timeout_seconds) const {
  return impl_->comparison.collect(step, timeout_seconds);
}

std::string MlpTrainer::bucket_name(std::size_t bucket) const {
  return mlp::name_of(impl_->layout.buckets()[bucket]);
}

std::string MlpTrainer::place_in_sum(std::size_t bucket, int rank, std::uint64_t index) const {
  const GradientBucket& of = impl_->layout.buckets()[bucket];
  const std::int64_t place = of.offset + static_cast<std::int64_t>(index) +
                             rank * mlp::GradientAllReduce::slice_elements(of, impl_->communicator.size());
  const auto& layers = impl_->layout.layers();
  const auto layer =
      std::find_if(layers.begin(), layers.end(), [&](const LinearLayer& one) { return place < one.end; });
  return fmt::format("element {} of the gradient of layer {}", place - layer->weights,
                     layer - layers.begin() + 1);
}

Status MlpTrainer::wait_for_pass(std::int64_t step, double timeout_seconds) const {
  return wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(impl_->communicator.check());
        return impl_->device.done(*impl_->tails.of(step).compute_end);
      },
      {.seconds = timeout_seconds, .what = "a pass of training"});
}

Status MlpTrainer::settle() {
  return impl_->settle();
}

Status MlpTrainer::give_up_steps(double timeout_seconds) {
  Impl& m = *impl_;
  EGT_TRY(m.device.forget_failure(*m.communication, timeout_seconds));
  EGT_TRY(m.device.forget_failure(*m.compute, timeout_seconds));
  m.last_retired.reset();
  m.last_compute_ms = 0;
  m.updates.drop();
  return {};
}

void MlpTrainer::set_extra_work(ExtraWork work) {
  impl_->extra_work = std::move(work);
}

Result<StepTimes> MlpTrainer::measured_times() const {
  const Impl& m = *impl_;
  EGT_TRY_ASSIGN(StepTimes times, m.timeline.times(m.device));
  times.phase_ms[static_cast<std::size_t>(StepPhase::second)] = m.second_ms;
  for (const GradientBucket& bucket : m.layout.buckets())
    times.sum_bytes.push_back(static_cast<double>(bucket.count) *
                              static_cast<double>(size_of(m.config.gradient_type)));
  return times;
}

namespace {

/// Digests the tensors of a replay and forwards its operations to an observer.
class ReplayObserver : public mlp::PassObserver {
 public:
  ReplayObserver(Device& device, Stream& stream, const std::vector<PassTensor>& tensors, Digest* answers,
                 OperationObserver& observer)
      : device_(device), stream_(stream), tensors_(tensors), answers_(answers), observer_(observer) {}

  Status before(const Operation& operation) override { return observer_.before(operation, stream_); }
  Status after(const Operation& operation, const PassTensor& tensor) override {
    return observer_.after(operation, tensor, stream_);
  }
  Digest* chains_digest(const PassTensor& chains) override { return answer_of(chains); }
  Status made(const PassTensor& tensor, WordsView words) override {
    return device_.digest(words, answer_of(tensor), stream_);
  }

 private:
  Digest* answer_of(const PassTensor& tensor) const {
    return answers_ + (std::find(tensors_.begin(), tensors_.end(), tensor) - tensors_.begin());
  }

  Device& device_;
  Stream& stream_;
  const std::vector<PassTensor>& tensors_;
  Digest* const answers_;
  OperationObserver& observer_;
};

}  // namespace

std::vector<PassTensor> MlpTrainer::replay_tensors() const {
  return mlp::Pass::tensors(impl_->layout, impl_->config);
}

Status MlpTrainer::enqueue_replay(Precision precision, Digest* answers, OperationObserver* observer) {
  Impl& m = *impl_;
  OperationObserver nothing;
  OperationObserver& observed_by = observer ? *observer : nothing;
  const std::int64_t rows = std::min(m.config.batch.local, m.config.batch.global / m.communicator.size());
  // The replay writes its gradients to the same memory. A wrong all-reduce may have corrupted the padding
  // between layers, which no pass overwrites.
  EGT_TRY(m.updates.settle(m.precision, *m.compute, observed_by));
  EGT_TRY(m.device.set_zero(m.workspace.gradient.data(), m.workspace.gradient.bytes(), *m.compute));
  if (const VectorView copy = m.known.compute_copy(precision); copy.data != nullptr)
    EGT_TRY(m.device.cast(copy, m.known.master(), *m.compute));
  // A GEMM that is fused with its activation has no digest.
  const std::vector<PassTensor> tensors = replay_tensors();
  EGT_TRY(m.device.set_zero(answers, tensors.size() * sizeof(Digest), *m.compute));
  ReplayObserver companion(m.device, *m.compute, tensors, answers, observed_by);
  EGT_TRY(m.pass->enqueue({.precision = precision,
                           .parameters = m.known,
                           .sequence = replay_sequence,
                           .first_sample = 0,
                           .rows = rows,
                           .loss = m.replay_loss.as<float>(),
                           .fuses_activation = true},
                          companion));
  const auto compressed = std::find_if(tensors.begin(), tensors.end(), [](const PassTensor& tensor) {
    return tensor.kind == TensorKind::sent_gradient;
  });
  EGT_TRY(m.sums.answer(m.workspace, answers + (compressed - tensors.begin()), *m.compute));
  return m.show_to_communication();
}

void MlpTrainer::set_tensor_faults(std::vector<TensorFault> tensor_faults) {
  impl_->sums.set_tensor_faults(tensor_faults);
  impl_->pass->set_tensor_faults(std::move(tensor_faults));
}

Status MlpTrainer::Impl::show_to_communication() {
  EGT_TRY(device.record(*shown, *compute));
  return device.wait(*communication, *shown);
}

std::vector<StateTensor> MlpTrainer::state_tensors() const {
  return impl_->trained.tensors();
}

WordsView MlpTrainer::state(const StateTensor& tensor) {
  return impl_->trained.words(tensor);
}

WordsView MlpTrainer::kept_state(int slot, const StateTensor& tensor) {
  return impl_->trained.kept_words(slot, tensor);
}

Status MlpTrainer::enqueue_state_digests(Digest* answers) {
  Impl& m = *impl_;
  EGT_TRY(m.settle());
  for (const StateTensor& tensor : state_tensors())
    EGT_TRY(m.device.digest(state(tensor), answers++, *m.compute));
  return m.show_to_communication();
}

bool MlpTrainer::has_second_state() const {
  return impl_->second != nullptr;
}

Status MlpTrainer::enqueue_second_state_digests(Digest* answers) {
  Impl& m = *impl_;
  EGT_TRY(m.settle());
  for (const StateTensor& tensor : state_tensors())
    EGT_TRY(m.device.digest(m.second->words(tensor), answers++, *m.compute));
  return m.show_to_communication();
}

Status MlpTrainer::tamper_state(const StateTensor& tensor, const Flip& flip) {
  EGT_TRY(impl_->settle());
  return impl_->device.flip(state(tensor), flip, *impl_->compute);
}

Status MlpTrainer::keep_state(int slot) {
  Impl& m = *impl_;
  EGT_TRY(m.settle());
  EGT_TRY(m.trained.keep(slot, *m.compute));
  return m.show_to_communication();
}

Status MlpTrainer::restore_state(int slot) {
  Impl& m = *impl_;
  m.last_retired.reset();
  m.updates.drop();
  EGT_TRY(m.trained.restore(slot, *m.compute));
  return m.second ? m.second->assign(m.trained, *m.compute) : Status();
}

double MlpTrainer::sent_bytes() const {
  return impl_->sums.sent_bytes();
}

const ParameterLayout& MlpTrainer::layout() const {
  return impl_->layout;
}

Stream& MlpTrainer::communication_stream() {
  return *impl_->communication;
}

Stream& MlpTrainer::compute_stream() {
  return *impl_->compute;
}

VectorView MlpTrainer::weights() {
  return impl_->trained.parameters.master();
}

VectorView MlpTrainer::residual() {
  const Buffer& residual = impl_->trained.residual;
  return {residual.data(), ElementType::f32, residual.bytes() > 0 ? impl_->layout.size() : 0};
}

VectorView MlpTrainer::gradient() {
  return impl_->workspace.gradient_range(0, impl_->layout.size());
}

}  // namespace egt
