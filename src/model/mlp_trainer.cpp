#include "egt/model/mlp_trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "egt/core/wait.hpp"
#include "mlp_buffers.hpp"
#include "mlp_pass.hpp"

namespace egt {

namespace {

using mlp::EventHandle;
using mlp::ParameterSet;
using mlp::Workspace;

// Sequences of random numbers: a step's is its number.
constexpr std::uint64_t weight_sequences = std::uint64_t{1} << 63;
constexpr std::uint64_t replay_sequence = std::uint64_t{1} << 62;
constexpr double initialization_timeout_s = 60.0;
constexpr float output_gain = 0.1f;  // the last layer starts small: see default_learning_rate

/// He's initialization (2015), uniform: variance 2 / inputs.
float initial_scale(const LinearLayer& layer, bool last) {
  return (last ? output_gain : 1.0f) * std::sqrt(6.0f / static_cast<float>(layer.inputs));
}

/// Alone, gradients need not travel: every layer's weight gradient is one product, and one update takes them
/// all.
std::int64_t bucket_elements(const Communicator& communicator) {
  constexpr std::int64_t shared = 16 << 20;
  return communicator.size() > 1 ? shared : std::numeric_limits<std::int64_t>::max();
}

/// The end of a step, summed over ranks behind the last bucket: [0] the sum of squared errors, [1 ..] the
/// notes, then in a place of each rank its own part of [0], and behind these the time of its pass.
struct Tail {
  static constexpr std::size_t notes = 1, own_losses = 4;
  static std::size_t own_times(int ranks) { return own_losses + static_cast<std::size_t>(ranks); }
  static std::size_t count(int ranks) { return own_losses + 2 * static_cast<std::size_t>(ranks); }

  float* device = nullptr;
  float* notes_in = nullptr;  // pinned, written by the host before the step is enqueued; the time comes last
  float* result = nullptr;    // pinned, valid once `done` is reached
  EventHandle done;
  EventHandle compute_begin, compute_end;  // of the pass, without waits for peers
};

}  // namespace

/// With output gain g and unit-variance inputs, the largest curvature of the loss (1/2 the squared error
/// summed over outputs, mean over the batch) is about the squared norm of the last hidden layer plus g^2
/// times those before it; heavy-ball momentum is stable to 2 (1 + 0.9) over that. A twentieth of it leaves
/// room for curvature that grows in training. Adam moves every weight by the rate: it is bounded so that a
/// step moves an output by about 0.3.
double default_learning_rate(const std::vector<std::int64_t>& neurons, Optimizer optimizer) {
  const std::size_t hidden = neurons.size() - 2;
  const double last = static_cast<double>(neurons[hidden]) + 1.0;
  double curvature = last, reach = last;
  for (std::size_t l = 0; l < hidden; ++l) {
    curvature += output_gain * output_gain * static_cast<double>(neurons[l]);
    reach += output_gain * std::sqrt(static_cast<double>(neurons[l + 1])) * static_cast<double>(neurons[l]);
  }
  return optimizer == Optimizer::adam ? 0.3 / reach : 0.19 / curvature;
}

double flops_per_sample(const std::vector<std::int64_t>& neurons) {
  double products = 0;
  for (std::size_t l = 0; l + 1 < neurons.size(); ++l)
    products += static_cast<double>(neurons[l] * neurons[l + 1]);
  return 2.0 * (3.0 * products - static_cast<double>(neurons[0] * neurons[1]));
}

struct MlpTrainer::Impl : mlp::PassCompanion {
  Impl(Device& d, Communicator& c, const MlpConfig& m)
      : device(d), communicator(c), config(m), layout(m.neurons, bucket_elements(c)) {}

  Status allocate();
  Status make_streams_and_events();
  Status make_tails();
  Status initialize_weights(const ParameterSet& set);
  Status update(const GradientBucket& bucket);
  Status close_step(Tail& tail, const StepNote& note);
  std::vector<const Buffer*> state_buffers() const;
  Status copy_state(const std::vector<Buffer>& kept, bool back);
  WordsView layer_words(const Buffer& flat, int layer) const;
  /// What is put in the communication stream from here on comes behind what is in `from`.
  Status show_to_communication(Stream& from);

  // Along a training step's pass
  Status before_layer(std::size_t layer) override;
  Status before_activation(std::size_t layer) override;
  Status made(const PassTensor& tensor, WordsView words) override;
  Status bucket_made(std::size_t bucket) override;

  /// Where gradients are summed over ranks and weights are updated. Alone there is nothing to hide behind
  /// backward: an update beside a product only takes multiprocessors from it.
  Stream& sums() { return communicator.size() > 1 ? *communication : *compute; }
  Tail& tail_of(std::int64_t step) { return tails[static_cast<std::size_t>(step) % tails.size()]; }

  Device& device;
  Communicator& communicator;
  const MlpConfig config;
  const ParameterLayout layout;
  Precision precision = Precision::fp32;
  std::int64_t updates = 0;  // begun, for Adam's correction
  std::optional<std::int64_t> last_retired;
  float last_compute_ms = 0;       // not told to the peers yet; 0: none
  std::int64_t enqueued_step = 0;  // that is being put in line
  Tail* enqueued = nullptr;        // of it
  ExtraWork extra_work;
  bool measuring = false;

  // Streams die before the memory that their work uses: members are destroyed from the last to the first.
  ParameterSet parameters, known;      // of training; of replays, as training began with
  Buffer first_moment, second_moment;  // fp32, flat, where the optimizer has them
  Workspace workspace;
  std::array<std::vector<Buffer>, 2> kept;  // weights and moments
  std::array<std::int64_t, 2> kept_updates{};
  Buffer tail_memory, tail_pinned, replay_loss;
  std::array<Tail, depth + 2> tails;
  std::vector<EventHandle> ready, updated;                    // a bucket each
  std::vector<EventHandle> sum_begin, sum_end;                // a bucket each, of the measured step
  std::vector<EventHandle> activation_begin, activation_end;  // a hidden layer each, of the measured step
  EventHandle shown;
  std::unique_ptr<Stream> compute, communication;
  std::unique_ptr<mlp::Pass> pass;
};

Result<std::unique_ptr<MlpTrainer>> MlpTrainer::create(Device& device, Communicator& communicator,
                                                       const MlpConfig& config) {
  for (const Precision precision : config.precisions) {
    const Support support = device.supports(precision);
    if (!support.yes()) return Status(StatusCode::unsupported, support.why_not);
  }
  auto impl = std::make_unique<Impl>(device, communicator, config);
  EGT_TRY(impl->allocate());
  EGT_TRY(impl->make_streams_and_events());
  EGT_TRY(impl->make_tails());
  for (const Buffer* buffer : {&impl->first_moment, &impl->second_moment, &impl->workspace.gradient})
    if (buffer->bytes() > 0) EGT_TRY(device.set_zero(buffer->data(), buffer->bytes(), *impl->compute));
  EGT_TRY(impl->initialize_weights(impl->parameters));
  EGT_TRY(impl->initialize_weights(impl->known));
  std::unique_ptr<MlpTrainer> trainer(new MlpTrainer(std::move(impl)));
  EGT_TRY(trainer->set_precision(config.precisions.front()));
  // From here on every stream may read the weights.
  EGT_TRY(device.synchronize(*trainer->impl_->compute, initialization_timeout_s));
  return trainer;
}

MlpTrainer::MlpTrainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MlpTrainer::~MlpTrainer() = default;

Status MlpTrainer::Impl::allocate() {
  const std::size_t bytes = static_cast<std::size_t>(layout.size()) * sizeof(float);
  EGT_TRY_ASSIGN(parameters, ParameterSet::allocate(device, config.precisions, layout.size()));
  EGT_TRY_ASSIGN(known, ParameterSet::allocate(device, config.precisions, layout.size()));
  if (config.optimizer == Optimizer::adam || config.momentum != 0.0f) {
    EGT_TRY_ASSIGN(first_moment, device.allocate(bytes));
  }
  if (config.optimizer == Optimizer::adam) {
    EGT_TRY_ASSIGN(second_moment, device.allocate(bytes));
  }
  EGT_TRY_ASSIGN(workspace, Workspace::allocate(device, config, layout));
  EGT_TRY_ASSIGN(replay_loss, device.allocate(sizeof(float)));
  if (!config.keeps_states) return {};
  for (auto& slot : kept)
    for (std::size_t i = 0; i < state_buffers().size(); ++i) {
      EGT_TRY_ASSIGN(Buffer copy, device.allocate(bytes));
      slot.push_back(std::move(copy));
    }
  return {};
}

Status MlpTrainer::Impl::make_streams_and_events() {
  EGT_TRY_ASSIGN(compute, device.create_stream(StreamPriority::normal));
  EGT_TRY_ASSIGN(communication, device.create_stream(StreamPriority::high));
  const auto make = [&](std::vector<EventHandle>& events, std::size_t count) -> Status {
    for (std::size_t i = 0; i < count; ++i) {
      EGT_TRY_ASSIGN(EventHandle event, device.create_event());
      events.push_back(std::move(event));
    }
    return {};
  };
  for (auto* events : {&ready, &updated, &sum_begin, &sum_end})
    EGT_TRY(make(*events, layout.buckets().size()));
  for (auto* events : {&activation_begin, &activation_end})
    EGT_TRY(make(*events, layout.layers().size() - 1));
  EGT_TRY_ASSIGN(shown, device.create_event());
  pass = std::make_unique<mlp::Pass>(device, config, layout, workspace, *compute);
  return {};
}

Status MlpTrainer::Impl::make_tails() {
  constexpr std::size_t line = 64;  // floats: 256 bytes
  const std::size_t stride = (Tail::count(communicator.size()) + line - 1) / line * line;
  EGT_TRY_ASSIGN(tail_memory, device.allocate(tails.size() * stride * sizeof(float)));
  EGT_TRY_ASSIGN(tail_pinned, device.allocate_pinned(tails.size() * (stride + line) * sizeof(float)));
  for (std::size_t i = 0; i < tails.size(); ++i) {
    tails[i].device = tail_memory.as<float>() + i * stride;
    tails[i].result = tail_pinned.as<float>() + i * (stride + line);
    tails[i].notes_in = tails[i].result + stride;
    for (EventHandle* event : {&tails[i].done, &tails[i].compute_begin, &tails[i].compute_end}) {
      EGT_TRY_ASSIGN(*event, device.create_event());
    }
  }
  return {};
}

Status MlpTrainer::Impl::initialize_weights(const ParameterSet& set) {
  EGT_TRY(device.set_zero(set.weights.data(), set.weights.bytes(), *compute));
  for (std::size_t l = 0; l < layout.layers().size(); ++l) {
    const LinearLayer& layer = layout.layers()[l];
    const VectorView weights{set.weights.as<float>() + layer.weights, ElementType::f32,
                             layer.inputs * layer.outputs};
    EGT_TRY(device.randomize(weights,
                             {.seed = config.seed,
                              .sequence = weight_sequences + l,
                              .first = 0,
                              .scale = initial_scale(layer, l + 1 == layout.layers().size())},
                             *compute));
  }
  return {};
}

Status MlpTrainer::set_precision(Precision precision) {
  Impl& m = *impl_;
  m.precision = precision;
  const VectorView copy = m.parameters.compute_copy(precision);
  if (copy.data == nullptr) return {};
  // The last bucket's update is the last thing that wrote weights or their copy.
  EGT_TRY(m.device.wait(*m.compute, *m.updated.back()));
  EGT_TRY(m.device.cast(copy, weights(), *m.compute));
  return {};
}

Status MlpTrainer::enqueue_step(std::int64_t step, const StepNote& note, bool measure) {
  Impl& m = *impl_;
  m.measuring = measure;
  ++m.updates;
  Tail& tail = m.tail_of(step);
  m.enqueued = &tail;
  m.enqueued_step = step;
  EGT_TRY(m.pass->enqueue({.precision = m.precision,
                           .parameters = m.parameters,
                           .sequence = static_cast<std::uint64_t>(step),
                           .first_sample = m.config.batch.first,
                           .rows = m.config.batch.local,
                           .loss = tail.device},
                          m));
  return m.close_step(tail, note);
}

/// The first layer's bucket is the last to be summed: once its update is over so are all, and from there on
/// the pass waits for nobody.
Status MlpTrainer::Impl::before_layer(std::size_t layer) {
  EGT_TRY(device.wait(*compute,
                      *updated[static_cast<std::size_t>(layout.last_bucket_of(static_cast<int>(layer)))]));
  if (layer > 0) return {};
  EGT_TRY(device.record(*enqueued->compute_begin, *compute));
  return extra_work ? extra_work(enqueued_step, *compute) : Status();
}

Status MlpTrainer::Impl::before_activation(std::size_t layer) {
  return measuring ? device.record(*activation_begin[layer], *compute) : Status();
}

Status MlpTrainer::Impl::made(const PassTensor& tensor, WordsView) {
  if (!measuring || tensor.kind != TensorKind::activation) return {};
  return device.record(*activation_end[static_cast<std::size_t>(tensor.layer)], *compute);
}

Status MlpTrainer::Impl::bucket_made(std::size_t index) {
  const GradientBucket& bucket = layout.buckets()[index];
  // Before `ready`, so that a step which is over has it reached.
  if (index + 1 == layout.buckets().size()) EGT_TRY(device.record(*enqueued->compute_end, *compute));
  EGT_TRY(device.record(*ready[index], *compute));
  EGT_TRY(device.wait(sums(), *ready[index]));
  if (measuring) EGT_TRY(device.record(*sum_begin[index], sums()));
  const VectorView gradient = workspace.gradient_range(bucket.offset, bucket.count);
  EGT_TRY(communicator.all_reduce(gradient.data, static_cast<std::size_t>(gradient.count), gradient.type,
                                  sums()));
  if (measuring) EGT_TRY(device.record(*sum_end[index], sums()));
  EGT_TRY(update(bucket));
  return device.record(*updated[index], sums());
}

Status MlpTrainer::Impl::update(const GradientBucket& bucket) {
  const ParameterRange range{
      .weights = parameters.weights.as<float>() + bucket.offset,
      .gradient = workspace.gradient_range(bucket.offset, bucket.count),
      .compute_copy = parameters.compute_copy_range(precision, bucket.offset, bucket.count),
      .count = bucket.count};
  const float rate = static_cast<float>(config.learning_rate);
  const float unscale = 1.0f / mlp::loss_scale(precision, config.batch.global);
  const auto state = [&](const Buffer& buffer) {
    return buffer.bytes() > 0 ? buffer.as<float>() + bucket.offset : nullptr;
  };
  float* first = state(first_moment);
  if (config.optimizer == Optimizer::sgd)
    return device.sgd_step(range, first,
                           {.rate = rate, .momentum = config.momentum, .gradient_scale = unscale}, sums());
  constexpr double beta1 = 0.9, beta2 = 0.999;
  const auto t = static_cast<double>(updates);
  const math::Adam rule{.rate = rate,
                        .beta1 = static_cast<float>(beta1),
                        .beta2 = static_cast<float>(beta2),
                        .epsilon = 1e-8f,
                        .correction1 = static_cast<float>(1.0 - std::pow(beta1, t)),
                        .correction2 = static_cast<float>(1.0 - std::pow(beta2, t)),
                        .gradient_scale = unscale};
  return device.adam_step(range, first, state(second_moment), rule, sums());
}

Status MlpTrainer::Impl::close_step(Tail& tail, const StepNote& note) {
  // The last update comes after the loss; the next step's products need not wait for what is told of this
  // one.
  EGT_TRY(device.wait(*communication, *updated.back()));
  const float notes[] = {note.vote, note.check_ms, note.step_ms, std::exchange(last_compute_ms, 0.0f)};
  constexpr std::size_t own_time = std::size(notes) - 1;
  std::copy(std::begin(notes), std::end(notes), tail.notes_in);
  EGT_TRY(device.copy(tail.device + Tail::notes, tail.notes_in, own_time * sizeof(float), *communication));
  const auto ranks = static_cast<std::size_t>(communicator.size());
  float* const own_losses = tail.device + Tail::own_losses;
  float* const own_times = tail.device + Tail::own_times(communicator.size());
  EGT_TRY(device.set_zero(own_losses, 2 * ranks * sizeof(float), *communication));
  EGT_TRY(device.copy(own_losses + communicator.rank(), tail.device, sizeof(float), *communication));
  EGT_TRY(
      device.copy(own_times + communicator.rank(), tail.notes_in + own_time, sizeof(float), *communication));
  const std::size_t count = Tail::count(communicator.size());
  EGT_TRY(communicator.all_reduce(tail.device, count, ElementType::f32, *communication));
  EGT_TRY(device.copy(tail.result, tail.device, count * sizeof(float), *communication));
  return device.record(*tail.done, *communication);
}

Result<StepResult> MlpTrainer::retire_step(std::int64_t step, double timeout_seconds) {
  Impl& m = *impl_;
  const Tail& tail = m.tail_of(step);
  const std::string what = "the end of training step " + std::to_string(step);
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(m.communicator.check());
        return m.device.done(*tail.done);
      },
      {.seconds = timeout_seconds, .what = what.c_str()}));
  StepResult result;
  const double outputs =
      static_cast<double>(m.config.batch.global) * static_cast<double>(m.config.neurons.back());
  result.loss = static_cast<double>(tail.result[0]) / outputs;
  const float* const notes = tail.result + Tail::notes;
  result.notes = {.vote = notes[0], .check_ms = notes[1], .step_ms = notes[2]};
  for (int rank = 0; rank < m.communicator.size(); ++rank)
    if (!std::isfinite(tail.result[Tail::own_losses + static_cast<std::size_t>(rank)]))
      result.not_finite.push_back(rank);
  if (m.last_retired == step - 1) {
    EGT_TRY_ASSIGN(result.step_ms, m.device.elapsed_ms(*m.tail_of(step - 1).done, *tail.done));
  }
  m.last_retired = step;
  EGT_TRY_ASSIGN(result.compute_ms, m.device.busy_ms(*tail.compute_begin, *tail.compute_end));
  m.last_compute_ms = static_cast<float>(*result.compute_ms);
  const float* const times = tail.result + Tail::own_times(m.communicator.size());
  result.all_compute_ms.assign(times, times + m.communicator.size());
  return result;
}

Result<bool> MlpTrainer::is_computed(std::int64_t step) const {
  EGT_TRY(impl_->communicator.check());
  return impl_->device.done(*impl_->tail_of(step).compute_end);
}

Status MlpTrainer::give_up_steps(double timeout_seconds) {
  Impl& m = *impl_;
  EGT_TRY(m.device.forget_failure(*m.communication, timeout_seconds));
  EGT_TRY(m.device.forget_failure(*m.compute, timeout_seconds));
  m.last_retired.reset();
  m.last_compute_ms = 0;
  return {};
}

void MlpTrainer::set_extra_work(ExtraWork work) {
  impl_->extra_work = std::move(work);
}

Result<StepTimes> MlpTrainer::measured_times() const {
  const Impl& m = *impl_;
  StepTimes times;
  for (std::size_t b = 0; b < m.sum_begin.size(); ++b) {
    EGT_TRY_ASSIGN(const double ms, m.device.elapsed_ms(*m.sum_begin[b], *m.sum_end[b]));
    times.all_reduce_ms += ms;
    times.all_reduce_bytes += static_cast<double>(m.layout.buckets()[b].count) *
                              static_cast<double>(size_of(m.config.gradient_type));
  }
  for (std::size_t l = 0; l < m.activation_begin.size(); ++l) {
    EGT_TRY_ASSIGN(const double ms, m.device.elapsed_ms(*m.activation_begin[l], *m.activation_end[l]));
    times.activation_ms += ms;
  }
  return times;
}

namespace {

/// Digests what a replay makes, and lets its products be audited.
class ReplayCompanion : public mlp::PassCompanion {
 public:
  ReplayCompanion(Device& device, Stream& stream, Digest* answers, const MlpTrainer::ProductAudit& audit)
      : device_(device), stream_(stream), next_(answers), audit_(audit) {}

  Status after_product(const Gemm& gemm, const PassTensor& tensor) override {
    return audit_ ? audit_(gemm, tensor, stream_) : Status();
  }
  Status made(const PassTensor&, WordsView words) override { return device_.digest(words, next_++, stream_); }

 private:
  Device& device_;
  Stream& stream_;
  Digest* next_;
  const MlpTrainer::ProductAudit& audit_;
};

}  // namespace

std::vector<PassTensor> MlpTrainer::replay_tensors() const {
  return mlp::Pass::tensors(impl_->layout);
}

Status MlpTrainer::enqueue_replay(Precision precision, Digest* answers, const ProductAudit& audit) {
  Impl& m = *impl_;
  const std::int64_t rows = std::min(m.config.batch.local, m.config.batch.global / m.communicator.size());
  // The gradients of the last step are still being summed and used up, in the same memory.
  EGT_TRY(m.device.wait(*m.compute, *m.updated.back()));
  if (const VectorView copy = m.known.compute_copy(precision); copy.data != nullptr)
    EGT_TRY(m.device.cast(copy, m.known.master(), *m.compute));
  ReplayCompanion companion(m.device, *m.compute, answers, audit);
  EGT_TRY(m.pass->enqueue({.precision = precision,
                           .parameters = m.known,
                           .sequence = replay_sequence,
                           .first_sample = 0,
                           .rows = rows,
                           .loss = m.replay_loss.as<float>()},
                          companion));
  return m.show_to_communication(*m.compute);
}

void MlpTrainer::set_tampering(std::vector<Tampering> tampering) {
  impl_->pass->set_tampering(std::move(tampering));
}

Status MlpTrainer::Impl::show_to_communication(Stream& from) {
  EGT_TRY(device.record(*shown, from));
  return device.wait(*communication, *shown);
}

std::vector<const Buffer*> MlpTrainer::Impl::state_buffers() const {
  std::vector<const Buffer*> all;
  for (const Buffer* buffer : {&parameters.weights, &first_moment, &second_moment})
    if (buffer->bytes() > 0) all.push_back(buffer);
  return all;
}

WordsView MlpTrainer::Impl::layer_words(const Buffer& flat, int layer) const {
  const LinearLayer& l = layout.layers()[static_cast<std::size_t>(layer)];
  return {flat.as<std::uint32_t>() + l.weights, static_cast<std::uint64_t>(l.end - l.weights)};
}

std::vector<StateTensor> MlpTrainer::state_tensors() const {
  std::vector<StateTensor> all;
  for (std::size_t kind = 0; kind < impl_->state_buffers().size(); ++kind)
    for (std::size_t l = 0; l < impl_->layout.layers().size(); ++l)
      all.push_back({static_cast<StateKind>(kind), static_cast<int>(l)});
  return all;
}

WordsView MlpTrainer::state(const StateTensor& tensor) {
  return impl_->layer_words(*impl_->state_buffers()[static_cast<std::size_t>(tensor.kind)], tensor.layer);
}

WordsView MlpTrainer::kept_state(int slot, const StateTensor& tensor) {
  const auto& buffers = impl_->kept[static_cast<std::size_t>(slot)];
  return impl_->layer_words(buffers[static_cast<std::size_t>(tensor.kind)], tensor.layer);
}

Status MlpTrainer::enqueue_state_digests(Digest* answers) {
  Impl& m = *impl_;
  for (const StateTensor& tensor : state_tensors())
    EGT_TRY(m.device.digest(state(tensor), answers++, m.sums()));
  return m.show_to_communication(m.sums());
}

Status MlpTrainer::tamper_state(const StateTensor& tensor, const Flip& flip) {
  return impl_->device.flip(state(tensor), flip, impl_->sums());
}

Status MlpTrainer::Impl::copy_state(const std::vector<Buffer>& copies, bool back) {
  const auto buffers = state_buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i)
    EGT_TRY(device.copy((back ? *buffers[i] : copies[i]).data(), (back ? copies[i] : *buffers[i]).data(),
                        copies[i].bytes(), sums()));
  return {};
}

Status MlpTrainer::keep_state(int slot) {
  Impl& m = *impl_;
  m.kept_updates[static_cast<std::size_t>(slot)] = m.updates;
  EGT_TRY(m.copy_state(m.kept[static_cast<std::size_t>(slot)], false));
  return m.show_to_communication(m.sums());
}

Status MlpTrainer::restore_state(int slot) {
  Impl& m = *impl_;
  m.updates = m.kept_updates[static_cast<std::size_t>(slot)];
  m.last_retired.reset();
  EGT_TRY(m.copy_state(m.kept[static_cast<std::size_t>(slot)], true));
  for (const EventHandle& event : m.updated) EGT_TRY(m.device.record(*event, m.sums()));
  return {};
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
  return impl_->parameters.master();
}

VectorView MlpTrainer::gradient() {
  return impl_->workspace.gradient_range(0, impl_->layout.size());
}

}  // namespace egt
