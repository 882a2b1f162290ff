#include "model/mlp_state.hpp"

#include <cmath>

#include "model/mlp_pass.hpp"

namespace egt::mlp {

namespace {

/// Kingma and Ba (2015), with the bias corrections of step `t`, which counts from 1.
math::Adam adam_rule(float rate, std::int64_t t, float gradient_scale) {
  constexpr double beta1 = 0.9, beta2 = 0.999;
  const auto step = static_cast<double>(t);
  return {.rate = rate,
          .beta1 = static_cast<float>(beta1),
          .beta2 = static_cast<float>(beta2),
          .epsilon = 1e-8f,
          .correction1 = static_cast<float>(1.0 - std::pow(beta1, step)),
          .correction2 = static_cast<float>(1.0 - std::pow(beta2, step)),
          .gradient_scale = gradient_scale};
}

}  // namespace

Status TrainedState::allocate(bool keeps_states) {
  const std::size_t bytes = static_cast<std::size_t>(layout_.size()) * sizeof(float);
  EGT_TRY_ASSIGN(parameters, ParameterSet::allocate(device_, config_.precisions, layout_.size()));
  if (config_.optimizer == Optimizer::adam || config_.momentum != 0.0f) {
    EGT_TRY_ASSIGN(first_moment_, device_.allocate(bytes));
  }
  if (config_.optimizer == Optimizer::adam) {
    EGT_TRY_ASSIGN(second_moment_, device_.allocate(bytes));
  }
  if (config_.top_k_share > 0) {
    EGT_TRY_ASSIGN(residual, device_.allocate(bytes));
  }
  if (!keeps_states) return {};
  for (auto& slot : kept_)
    for (std::size_t i = 0; i < buffers().size(); ++i) {
      EGT_TRY_ASSIGN(Buffer copy, device_.allocate(bytes));
      slot.push_back(std::move(copy));
    }
  return {};
}

Status TrainedState::initialize(Stream& stream) {
  for (const Buffer* buffer : {&first_moment_, &second_moment_, &residual})
    if (buffer->bytes() > 0) EGT_TRY(device_.set_zero(buffer->data(), buffer->bytes(), stream));
  return parameters.initialize(device_, layout_, config_.part ? &*config_.part : nullptr, config_.seed,
                               stream);
}

OptimizerStep TrainedState::step_of(const GradientBucket& bucket, VectorView gradient,
                                    Precision precision) const {
  const float rate = static_cast<float>(config_.learning_rate);
  const float unscale = 1.0f / loss_scale(precision, config_.batch.global);
  const auto moment = [&](const Buffer& buffer) {
    return buffer.bytes() > 0 ? buffer.as<float>() + bucket.offset : nullptr;
  };
  OptimizerStep step{
      .range = {.weights = parameters.weights.as<float>() + bucket.offset,
                .gradient = gradient,
                .compute_copy = parameters.compute_copy_range(precision, bucket.offset, bucket.count),
                .count = bucket.count},
      .first = moment(first_moment_),
      .second = moment(second_moment_),
      .rule = math::Sgd{.rate = rate, .momentum = config_.momentum, .gradient_scale = unscale}};
  if (config_.optimizer == Optimizer::adam) step.rule = adam_rule(rate, updates_, unscale);
  return step;
}

Status TrainedState::update(const OptimizerStep& step, Stream& stream) {
  return device_.enqueue(step, stream);
}

std::vector<const Buffer*> TrainedState::buffers() const {
  std::vector<const Buffer*> all;
  for (const Buffer* buffer : {&parameters.weights, &first_moment_, &second_moment_, &residual})
    if (buffer->bytes() > 0) all.push_back(buffer);
  return all;
}

std::uint64_t TrainedState::bytes() const {
  return parameters.bytes() + first_moment_.bytes() + second_moment_.bytes();
}

WordsView TrainedState::layer_words(const Buffer& flat, int layer) const {
  const LinearLayer& l = layout_.layers()[static_cast<std::size_t>(layer)];
  return {flat.as<std::uint32_t>() + l.weights, static_cast<std::uint64_t>(l.end - l.weights)};
}

std::vector<StateTensor> TrainedState::tensors() const {
  std::vector<StateTensor> all;
  const std::size_t kinds = buffers().size() - (residual.bytes() > 0 ? 1 : 0);
  for (std::size_t kind = 0; kind < kinds; ++kind)
    for (std::size_t l = 0; l < layout_.layers().size(); ++l)
      all.push_back({static_cast<StateKind>(kind), static_cast<int>(l)});
  return all;
}

WordsView TrainedState::words(const StateTensor& tensor) const {
  return layer_words(*buffers()[static_cast<std::size_t>(tensor.kind)], tensor.layer);
}

WordsView TrainedState::kept_words(int slot, const StateTensor& tensor) const {
  return layer_words(kept_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(tensor.kind)],
                     tensor.layer);
}

Status TrainedState::copy(const std::vector<Buffer>& kept, bool back, Stream& stream) {
  const auto current = buffers();
  for (std::size_t i = 0; i < current.size(); ++i)
    EGT_TRY(device_.copy((back ? *current[i] : kept[i]).data(), (back ? kept[i] : *current[i]).data(),
                         kept[i].bytes(), stream));
  return {};
}

Status TrainedState::keep(int slot, Stream& stream) {
  kept_updates_[static_cast<std::size_t>(slot)] = updates_;
  return copy(kept_[static_cast<std::size_t>(slot)], false, stream);
}

Status TrainedState::restore(int slot, Stream& stream) {
  updates_ = kept_updates_[static_cast<std::size_t>(slot)];
  return copy(kept_[static_cast<std::size_t>(slot)], true, stream);
}

Status TrainedState::assign(const TrainedState& other, Stream& stream) {
  updates_ = other.updates_;
  const auto own = buffers(), theirs = other.buffers();
  for (std::size_t i = 0; i < own.size(); ++i)
    EGT_TRY(device_.copy(own[i]->data(), theirs[i]->data(), own[i]->bytes(), stream));
  return {};
}

}  // namespace egt::mlp
