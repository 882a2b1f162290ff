#include "model/pass_comparison.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "egt/core/wait.hpp"

namespace egt::mlp {

std::string name_of(const GradientBucket& bucket) {
  const int first = bucket.pieces.front().layer + 1, last = bucket.pieces.back().layer + 1;
  return first == last ? fmt::format("weight gradient of layer {}", last)
                       : fmt::format("weight gradients of layers {} to {}", last, first);
}

/// If bias and ReLU are fused into a GEMM, its raw result is no tensor. The activation is compared instead.
std::vector<PassTensor> PassComparison::compared_tensors(const ParameterLayout& layout,
                                                         const MlpConfig& config) {
  std::vector<PassTensor> all = Pass::tensors(layout, config);
  std::erase_if(all, [&](const PassTensor& tensor) {
    const bool is_hidden = static_cast<std::size_t>(tensor.layer) + 1 < layout.layers().size();
    return (tensor.kind == TensorKind::product && is_hidden && config.extreme_iterations == 0) ||
           tensor.kind == TensorKind::weight_gradient || tensor.kind == TensorKind::sent_gradient ||
           tensor.kind == TensorKind::kept_gradient;
  });
  return all;
}

std::vector<std::string> PassComparison::tensors() const {
  std::vector<std::string> names;
  for (const PassTensor& tensor : tensors_) names.push_back(to_string(tensor));
  for (const GradientBucket& bucket : layout_.buckets()) names.push_back(name_of(bucket));
  names.emplace_back("the loss");
  return names;
}

Status PassComparison::allocate(const Workspace& workspace) {
  const auto ranks = static_cast<std::size_t>(communicator_.size());
  const std::size_t own = sent(), each = own * (ranks + 1);
  EGT_TRY_ASSIGN(gradient_, device_.allocate(workspace.gradient.bytes()));
  EGT_TRY_ASSIGN(loss_, device_.allocate(sizeof(float)));
  EGT_TRY_ASSIGN(memory_, device_.allocate(slots_.size() * each * sizeof(Digest)));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(slots_.size() * own * ranks * sizeof(Digest)));
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.own = memory_.as<Digest>() + i * each;
    slot.all = slot.own + own;
    slot.pinned = pinned_.as<Digest>() + i * own * ranks;
    EGT_TRY_ASSIGN(slot.made, device_.create_event(EventUse::order));
    EGT_TRY_ASSIGN(slot.done, device_.create_event(EventUse::order));
  }
  return {};
}

/// Zeroed because the padding between layers is digested, too.
Status PassComparison::initialize(Stream& stream) {
  return device_.set_zero(gradient_.data(), gradient_.bytes(), stream);
}

void PassComparison::begin_step(std::int64_t step) {
  slot_ = &slot_of(step);
  pass_ = slot_->own;
}

Digest* PassComparison::digest_of(const PassTensor& tensor) {
  const auto found = std::find(tensors_.begin(), tensors_.end(), tensor);
  return found == tensors_.end() ? nullptr : pass_ + (found - tensors_.begin());
}

Status PassComparison::add(const PassTensor& tensor, WordsView words, Stream& compute) {
  Digest* const digest = digest_of(tensor);
  return digest == nullptr ? Status() : device_.digest(words, digest, compute);
}

Status PassComparison::add(std::size_t index, const VectorView& gradient, float* loss, Stream& compute) {
  const GradientBucket& bucket = layout_.buckets()[index];
  Digest* const digest = pass_ + tensors_.size() + index;
  if (index + 1 == layout_.buckets().size())
    EGT_TRY(device_.digest({reinterpret_cast<std::uint32_t*>(loss), 1}, digest + 1, compute));
  char* const begin =
      static_cast<char*>(gradient.data) + static_cast<std::size_t>(bucket.offset) * size_of(gradient.type);
  return device_.digest(VectorView{begin, gradient.type, bucket.count}.words(), digest, compute);
}

AllReduceEvidence PassComparison::evidence_of(std::size_t bucket) {
  Digest* const sums = slot_->own + 2 * digests();
  return {sums + bucket, reinterpret_cast<Mismatches*>(sums + buckets()) + bucket};
}

PassObserver& PassComparison::second_pass(Stream& compute) {
  second_.compute = &compute;
  pass_ = slot_->own + digests();
  return second_;
}

Status PassComparison::SecondPass::bucket_made(std::size_t bucket) {
  PassComparison& all = comparison_;
  return all.add(bucket, {all.gradient_.data(), all.config_.gradient_type, all.layout_.size()}, all.loss(),
                 *compute);
}

Status PassComparison::exchange(Stream& compute, Stream& communication) {
  const std::size_t bytes = sent() * sizeof(Digest);
  slot_->stamp = ++exchanges_;
  EGT_TRY(device_.record(*slot_->made, compute));
  EGT_TRY(device_.wait(communication, *slot_->made));
  EGT_TRY(device_.fill(
      {reinterpret_cast<std::uint32_t*>(slot_->own + sent() - 1), sizeof(Digest) / sizeof(std::uint32_t)},
      {.kind = PatternKind::solid, .parameter = slot_->stamp}, communication));
  EGT_TRY(communicator_.all_gather(slot_->own, slot_->all, bytes, communication));
  EGT_TRY(device_.copy(slot_->pinned, slot_->all, bytes * static_cast<std::size_t>(communicator_.size()),
                       communication));
  return device_.record(*slot_->done, communication);
}

Result<std::vector<MlpTrainer::PassDigests>> PassComparison::collect(std::int64_t step,
                                                                     double timeout_seconds) const {
  const Slot& slot = slots_[static_cast<std::size_t>(step) % slots_.size()];
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(communicator_.check());
        return device_.done(*slot.done);
      },
      {.seconds = timeout_seconds, .what = "the digests of a step's passes"}));
  if (slot.pinned[(static_cast<std::size_t>(communicator_.rank()) + 1) * sent() - 1] != stamp(slot.stamp))
    return Status(StatusCode::internal,
                  fmt::format("the digests of step {}'s passes are those of an earlier step", step));
  const std::size_t each = digests();
  std::vector<MlpTrainer::PassDigests> ranks;
  for (const Digest* at = slot.pinned; ranks.size() < static_cast<std::size_t>(communicator_.size());
       at += sent()) {
    ranks.push_back(
        {.first = {at, at + each}, .second = {at + each, at + 2 * each}, .sums = {}, .wrong_in_sums = {}});
    if (communicator_.size() == 1) continue;
    const Digest* const sums = at + 2 * each;
    const auto* const wrong = reinterpret_cast<const Mismatches*>(sums + buckets());
    ranks.back().sums.assign(sums, sums + buckets());
    ranks.back().wrong_in_sums.assign(wrong, wrong + buckets());
  }
  return ranks;
}

}  // namespace egt::mlp
