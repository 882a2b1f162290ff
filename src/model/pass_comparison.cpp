#include "model/pass_comparison.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace egt::mlp {

namespace {

/// If bias and ReLU are fused into a GEMM, its raw result is no tensor. The activation is compared instead.
std::vector<PassTensor> compared_tensors(const ParameterLayout& layout, const MlpConfig& config) {
  std::vector<PassTensor> all = Pass::tensors(layout, config);
  std::erase_if(all, [&](const PassTensor& tensor) {
    const bool is_hidden = static_cast<std::size_t>(tensor.layer) + 1 < layout.layers().size();
    return (tensor.kind == TensorKind::product && is_hidden && config.extreme_iterations == 0) ||
           tensor.kind == TensorKind::weight_gradient || tensor.kind == TensorKind::sent_gradient ||
           tensor.kind == TensorKind::kept_gradient;
  });
  return all;
}

}  // namespace

Digest* TensorDigests::digest_of(const PassTensor& tensor) const {
  if (digests_ == nullptr) return nullptr;
  const auto found = std::find(tensors_.begin(), tensors_.end(), tensor);
  return found == tensors_.end() ? nullptr : digests_ + (found - tensors_.begin());
}

PassComparison::PassComparison(Device& device, Communicator& communicator, const MlpConfig& config,
                               const ParameterLayout& layout)
    : TensorDigests(device, compared_tensors(layout, config)),
      communicator_(communicator),
      config_(config),
      layout_(layout) {}

std::vector<std::string> PassComparison::tensors() const {
  std::vector<std::string> names;
  for (const PassTensor& tensor : tensors_) names.push_back(to_string(tensor));
  for (std::size_t bucket = 0; bucket < buckets(); ++bucket) names.push_back(bucket_name(bucket));
  names.emplace_back("the loss");
  return names;
}

std::string PassComparison::bucket_name(std::size_t bucket) const {
  const auto& pieces = layout_.buckets()[bucket].pieces;
  const int first = pieces.front().layer + 1, last = pieces.back().layer + 1;
  return first == last ? fmt::format("weight gradient of layer {}", last)
                       : fmt::format("weight gradients of layers {} to {}", last, first);
}

std::string PassComparison::place_in_sum(std::size_t bucket, int rank, std::uint64_t index) const {
  const GradientBucket& of = layout_.buckets()[bucket];
  const std::int64_t place = of.offset + static_cast<std::int64_t>(index) +
                             rank * GradientAllReduce::slice_elements(of, communicator_.size());
  const auto& layers = layout_.layers();
  const auto layer =
      std::find_if(layers.begin(), layers.end(), [&](const LinearLayer& one) { return place < one.end; });
  return fmt::format("element {} of the gradient of layer {}", place - layer->weights,
                     layer - layers.begin() + 1);
}

/// The gradient is zeroed because the padding between layers is digested, too.
Status PassComparison::prepare(std::size_t slots, Stream& compute, Stream& communication) {
  if (!config_.has_second_pass) return {};
  compute_ = &compute;
  communication_ = &communication;
  EGT_TRY_ASSIGN(gradient_,
                 device_.allocate(static_cast<std::size_t>(layout_.size()) * size_of(config_.gradient_type)));
  EGT_TRY_ASSIGN(loss_, device_.allocate(sizeof(float)));
  for (std::size_t i = 0; i < slots; ++i) {
    Slot& slot = slots_.emplace_back(DigestExchange(device_, communicator_, communication, nullptr));
    EGT_TRY(slot.digests.prepare(sent()));
    EGT_TRY_ASSIGN(slot.made, device_.create_event(EventUse::order));
  }
  return device_.set_zero(gradient_.data(), gradient_.bytes(), compute);
}

void PassComparison::begin_step(std::int64_t step) {
  if (slots_.empty()) return;
  slot_ = &slots_[static_cast<std::size_t>(step) % slots_.size()];
  digest_to(slot_->digests.own(), *compute_);
}

Status PassComparison::add(std::size_t index, const VectorView& gradient, float* loss) {
  if (slots_.empty()) return {};
  const GradientBucket& bucket = layout_.buckets()[index];
  Digest* const digest = digests_ + tensors_.size() + index;
  if (index + 1 == buckets())
    EGT_TRY(device_.digest({reinterpret_cast<std::uint32_t*>(loss), 1}, digest + 1, *compute_));
  char* const begin =
      static_cast<char*>(gradient.data) + static_cast<std::size_t>(bucket.offset) * size_of(gradient.type);
  return device_.digest(VectorView{begin, gradient.type, bucket.count}.words(), digest, *compute_);
}

AllReduceEvidence PassComparison::evidence_of(std::size_t bucket) {
  Digest* const sums = slot_->digests.own() + 2 * digests();
  return {sums + bucket, reinterpret_cast<Mismatches*>(sums + buckets()) + bucket};
}

Status PassComparison::bucket_made(std::size_t bucket) {
  return add(bucket, {gradient_.data(), config_.gradient_type, layout_.size()}, loss());
}

Status PassComparison::exchange() {
  EGT_TRY(device_.record(*slot_->made, *compute_));
  EGT_TRY(device_.wait(*communication_, *slot_->made));
  return slot_->digests.enqueue(sent());
}

Result<PassDigests> PassComparison::collect(std::int64_t step, double timeout_seconds) const {
  const Slot& slot = slots_[static_cast<std::size_t>(step) % slots_.size()];
  EGT_TRY_ASSIGN(const auto all, slot.digests.collect(timeout_seconds, step));
  const std::size_t each = digests();
  PassDigests ranks;
  for (const Answers& rank : all) {
    const Digest *const first = rank.data(), *const second = first + each, *const sums = second + each;
    ranks.push_back({.first = {first, second}, .second = {second, sums}, .sums = {}, .wrong_in_sums = {}});
    if (all.size() == 1) continue;
    const auto* const wrong = reinterpret_cast<const Mismatches*>(sums + buckets());
    ranks.back().sums.assign(sums, sums + buckets());
    ranks.back().wrong_in_sums.assign(wrong, wrong + buckets());
  }
  return ranks;
}

}  // namespace egt::mlp
