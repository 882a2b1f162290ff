#include "model/parallel/gradient_all_reduce.hpp"

#include <algorithm>
#include <cmath>

namespace egt::mlp {

Status GradientAllReduce::allocate() {
  if (are_verified()) {
    std::int64_t most = 0;
    for (const GradientBucket& bucket : layout_.buckets())
      most = std::max(most, slice_elements(bucket, slices()));
    EGT_TRY_ASSIGN(
        terms_, device_.allocate(static_cast<std::size_t>(most * slices()) * size_of(config_.gradient_type)));
  }
  if (config_.top_k_share == 0) return {};
  if (config_.gradient_type != ElementType::f32)
    return {StatusCode::invalid_argument, "of gradients that are not fp32 no share is sent"};
  const auto& buckets = layout_.buckets();
  const auto largest = std::max_element(buckets.begin(), buckets.end(),
                                        [](const auto& a, const auto& b) { return a.count < b.count; });
  const std::size_t bytes = selected(*largest).bytes();
  EGT_TRY_ASSIGN(selected_, device_.allocate(bytes));
  EGT_TRY_ASSIGN(gathered_, device_.allocate(bytes * static_cast<std::size_t>(communicator_.size())));
  EGT_TRY_ASSIGN(scratch_, device_.allocate(sizeof(TopKScratch)));
  EGT_TRY_ASSIGN(known_, device_.allocate(static_cast<std::size_t>(largest->count) * sizeof(float)));
  return {};
}

SparseView GradientAllReduce::selected(const GradientBucket& bucket) const {
  const auto k =
      static_cast<std::int64_t>(std::ceil(config_.top_k_share * static_cast<double>(bucket.count)));
  return {selected_.as<SparseElement>(), std::clamp<std::int64_t>(k, 1, bucket.count)};
}

TopKSelection GradientAllReduce::selection(const GradientBucket& bucket, const Workspace& workspace,
                                           float* residual) const {
  return {.gradient = workspace.gradient_range(bucket.offset, bucket.count),
          .residual = residual,
          .selected = selected(bucket),
          .scratch = scratch_.as<TopKScratch>()};
}

Status GradientAllReduce::sum(const GradientBucket& bucket, const Workspace& workspace, float* residual,
                              Stream& stream) {
  const VectorView gradient = workspace.gradient_range(bucket.offset, bucket.count);
  if (config_.top_k_share == 0) {
    EGT_TRY(tamper(TensorKind::sent_terms, bucket, gradient, stream));
    EGT_TRY(communicator_.all_reduce(gradient.data, static_cast<std::size_t>(gradient.count), gradient.type,
                                     stream));
    return tamper(TensorKind::received_sum, bucket, gradient, stream);
  }
  const SparseView own = selected(bucket);
  EGT_TRY(device_.select_top_k(selection(bucket, workspace, residual + bucket.offset), stream));
  EGT_TRY(communicator_.all_gather(own.data, gathered_.data(), own.bytes(), stream));
  EGT_TRY(device_.set_zero(gradient.data, gradient.bytes(), stream));
  for (int rank = 0; rank < communicator_.size(); ++rank)
    EGT_TRY(
        device_.scatter_add(gradient, {gathered_.as<SparseElement>() + rank * own.count, own.count}, stream));
  return {};
}

VectorView GradientAllReduce::slice_of(int rank, const GradientBucket& bucket,
                                       const Workspace& workspace) const {
  const std::int64_t each = slice_elements(bucket, slices()), first = std::min(bucket.count, rank * each);
  return workspace.gradient_range(bucket.offset + first, std::min(each, bucket.count - first));
}

Status GradientAllReduce::exchange_terms(const GradientBucket& bucket, const Workspace& workspace,
                                         Stream& stream) {
  const VectorView own = slice_of(communicator_.rank(), bucket, workspace);
  const std::size_t bytes = own.bytes();
  std::vector<Message> sends, receives;
  for (int rank = 0; rank < slices(); ++rank) {
    const VectorView theirs = slice_of(rank, bucket, workspace);
    sends.push_back({theirs.data, theirs.bytes(), rank});
    receives.push_back({terms_.as<std::byte>() + static_cast<std::size_t>(rank) * bytes, bytes, rank});
  }
  return communicator_.exchange(sends, receives, stream);
}

Status GradientAllReduce::verify(const GradientBucket& bucket, const Workspace& workspace,
                                 const AllReduceEvidence& evidence, Stream& stream) {
  const VectorView whole = workspace.gradient_range(bucket.offset, bucket.count);
  EGT_TRY(device_.digest(whole.words(), evidence.result, stream));
  EGT_TRY(device_.reset(evidence.wrong, stream));
  return device_.verify_sum(slice_of(communicator_.rank(), bucket, workspace), terms_.data(), slices(),
                            evidence.wrong, stream);
}

Status GradientAllReduce::tamper(TensorKind kind, const GradientBucket& bucket, const VectorView& gradient,
                                 Stream& stream) {
  for (const TensorFault& one : tensor_faults_)
    if (one.tensor.kind == kind && &bucket == &layout_.buckets()[one.bucket])
      EGT_TRY(device_.flip(gradient.words(), one.flip, stream));
  return {};
}

Status GradientAllReduce::answer(const Workspace& workspace, Digest* answers, Stream& stream) {
  if (config_.top_k_share == 0) return {};
  for (const GradientBucket& bucket : layout_.buckets()) {
    const TopKSelection call = selection(bucket, workspace, known_.as<float>());
    const SparseView& sent = call.selected;
    EGT_TRY(device_.copy(known_.data(), call.gradient.data, call.gradient.bytes(), stream));
    EGT_TRY(device_.select_top_k(call, stream));
    EGT_TRY(
        device_.digest({reinterpret_cast<std::uint32_t*>(sent.data), sent.bytes() / sizeof(std::uint32_t)},
                       answers++, stream));
    EGT_TRY(device_.scatter_add({known_.data(), ElementType::f32, bucket.count}, sent, stream));
    EGT_TRY(device_.digest({known_.as<std::uint32_t>(), static_cast<std::uint64_t>(bucket.count)}, answers++,
                           stream));
  }
  return {};
}

double GradientAllReduce::sent_bytes() const {
  const double ranks = communicator_.size();
  double bytes = 0;
  for (const GradientBucket& bucket : layout_.buckets())
    bytes += config_.top_k_share > 0 ? (ranks - 1) * static_cast<double>(selected(bucket).bytes())
                                     : 2 * (ranks - 1) / ranks * static_cast<double>(bucket.count) *
                                           static_cast<double>(size_of(config_.gradient_type));
  return bytes;
}

}  // namespace egt::mlp
