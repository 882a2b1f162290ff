#include "model/pass_comparison.hpp"

#include <fmt/format.h>

#include "egt/core/wait.hpp"

namespace egt::mlp {

std::vector<std::string> PassComparison::tensors() const {
  std::vector<std::string> names;
  const int layers = static_cast<int>(layout_.layers().size());
  if (config_.extreme_iterations > 0)
    for (int layer = 0; layer + 1 < layers; ++layer) names.push_back(to_string({TensorKind::extreme, layer}));
  for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
    if (b + 1 == layout_.buckets().size()) names.emplace_back("the loss");
    const std::vector<GradientPiece>& pieces = layout_.buckets()[b].pieces;
    const int first = pieces.front().layer + 1, last = pieces.back().layer + 1;
    names.push_back(first == last ? fmt::format("weight gradient of layer {}", last)
                                  : fmt::format("weight gradients of layers {} to {}", last, first));
  }
  return names;
}

Status PassComparison::allocate(const Workspace& workspace) {
  const auto ranks = static_cast<std::size_t>(communicator_.size());
  const std::size_t each = digests() * (ranks + 1);
  EGT_TRY_ASSIGN(gradient_, device_.allocate(workspace.gradient.bytes()));
  EGT_TRY_ASSIGN(loss_, device_.allocate(sizeof(float)));
  EGT_TRY_ASSIGN(memory_, device_.allocate(slots_.size() * each * sizeof(Digest)));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(slots_.size() * digests() * ranks * sizeof(Digest)));
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.own = memory_.as<Digest>() + i * each;
    slot.all = slot.own + digests();
    slot.pinned = pinned_.as<Digest>() + i * digests() * ranks;
    EGT_TRY_ASSIGN(slot.made, device_.create_event(EventUse::order));
    EGT_TRY_ASSIGN(slot.done, device_.create_event(EventUse::order));
  }
  return {};
}

/// The padding between layers is digested, too.
Status PassComparison::initialize(Stream& stream) {
  return device_.set_zero(gradient_.data(), gradient_.bytes(), stream);
}

void PassComparison::begin(std::int64_t step) {
  slot_ = &slot_of(step);
  next_ = slot_->own;
}

Status PassComparison::add(std::size_t index, const VectorView& gradient, float* loss, Stream& compute) {
  const GradientBucket& bucket = layout_.buckets()[index];
  if (index + 1 == layout_.buckets().size())
    EGT_TRY(device_.digest({reinterpret_cast<std::uint32_t*>(loss), 1}, next_digest(), compute));
  char* const begin =
      static_cast<char*>(gradient.data) + static_cast<std::size_t>(bucket.offset) * size_of(gradient.type);
  return device_.digest(VectorView{begin, gradient.type, bucket.count}.words(), next_digest(), compute);
}

PassCompanion& PassComparison::second_pass(Stream& compute) {
  second_.compute = &compute;
  return second_;
}

Status PassComparison::SecondPass::bucket_made(std::size_t bucket) {
  PassComparison& all = comparison_;
  return all.add(bucket, {all.gradient_.data(), all.config_.gradient_type, all.layout_.size()}, all.loss(),
                 *compute);
}

Status PassComparison::exchange(Stream& compute, Stream& communication) {
  if (next_ != slot_->own + digests())
    return {StatusCode::internal, "two passes with another number of digests"};
  const std::size_t bytes = digests() * sizeof(Digest);
  EGT_TRY(device_.record(*slot_->made, compute));
  EGT_TRY(device_.wait(communication, *slot_->made));
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
  const std::size_t each = digests() / 2;
  std::vector<MlpTrainer::PassDigests> ranks;
  for (const Digest* at = slot.pinned; ranks.size() < static_cast<std::size_t>(communicator_.size());
       at += 2 * each)
    ranks.push_back({{at, at + each}, {at + each, at + 2 * each}});
  return ranks;
}

}  // namespace egt::mlp
