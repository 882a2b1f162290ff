#include "model/pending_updates.hpp"

#include "egt/core/profiler_range.hpp"

namespace egt::mlp {

Status PendingUpdates::allocate() {
  const std::size_t buckets = layout_.buckets().size();
  for (auto* events : {&ready_, &summed_}) {
    events->resize(buckets);
    for (EventHandle& event : *events) {
      EGT_TRY_ASSIGN(event, device_.create_event(EventUse::order));
    }
  }
  pending_.assign(buckets, false);
  return {};
}

Status PendingUpdates::sum(std::size_t index, const AllReduceEvidence& evidence, Stream& compute,
                           Stream& communication, StepTimeline& timeline) {
  const ProfilerRange range("sum over ranks");
  EGT_TRY(device_.record(*ready_[index], compute));
  EGT_TRY(device_.wait(communication, *ready_[index]));
  const GradientBucket& bucket = layout_.buckets()[index];
  if (sums_.are_verified()) EGT_TRY(sums_.exchange_terms(bucket, workspace_, communication));
  EGT_TRY(timeline.sum_begins(device_, index, communication));
  EGT_TRY(sums_.sum(bucket, workspace_, trained_.residual.as<float>(), communication));
  EGT_TRY(timeline.sum_ends(device_, index, communication));
  if (sums_.are_verified()) EGT_TRY(sums_.verify(bucket, workspace_, evidence, communication));
  EGT_TRY(device_.record(*summed_[index], communication));
  pending_[index] = true;
  return {};
}

/// All-reduces finish in the order of the buckets, so waiting for the last one is enough.
Status PendingUpdates::await_sums(std::size_t layer, Stream& compute) {
  for (std::size_t b = pending_.size(); b-- > 0;)
    if (pending_[b] && layer_of(b) == layer) return device_.wait(compute, *summed_[b]);
  return {};
}

Status PendingUpdates::update(std::size_t first, std::size_t last, Precision precision, Stream& compute,
                              OperationObserver& observer) {
  for (std::size_t b = 0; b < pending_.size(); ++b)
    if (pending_[b] && layer_of(b) >= first && layer_of(b) <= last)
      EGT_TRY(update(b, precision, compute, observer));
  return {};
}

Status PendingUpdates::update(std::size_t index, Precision precision, Stream& compute,
                              OperationObserver& observer) {
  const GradientBucket& bucket = layout_.buckets()[index];
  const ProfilerRange range("update");
  pending_[index] = false;
  if (second_ != nullptr)
    EGT_TRY(second_->update(
        second_->step_of(bucket, workspace_.gradient_range(bucket.offset, bucket.count, &second_gradient_),
                         precision),
        compute));
  const OptimizerStep step =
      trained_.step_of(bucket, workspace_.gradient_range(bucket.offset, bucket.count), precision);
  EGT_TRY(observer.before(step, compute));
  EGT_TRY(trained_.update(step, compute));
  return observer.after(step, {TensorKind::weight_gradient, bucket.pieces.back().layer}, compute);
}

Status PendingUpdates::settle(Precision precision, Stream& compute, OperationObserver& observer) {
  for (std::size_t b = 0; b < pending_.size(); ++b) {
    if (!pending_[b]) continue;
    EGT_TRY(device_.wait(compute, *summed_[b]));
    EGT_TRY(update(b, precision, compute, observer));
  }
  return {};
}

}  // namespace egt::mlp
