#include <cmath>
#include <limits>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"
#include "egt/core/math/math.hpp"

namespace egt::host {
namespace {

template <typename T>
float largest_logit(const T* logits, std::int64_t columns) {
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t c = 0; c < columns; ++c) {
    const float logit = Element<T>::load(logits[c]);
    largest = logit > largest ? logit : largest;
  }
  return largest;
}

/// See math::softmax_sums.
template <typename T>
float sum_of_terms(const T* logits, std::int64_t columns, float largest) {
  float sums[math::softmax_sums] = {};
  for (std::int64_t first = 0; first < columns; first += math::softmax_sums) {
    const std::int64_t count = std::min<std::int64_t>(math::softmax_sums, columns - first);
    for (std::int64_t i = 0; i < count; ++i)
      sums[i] += math::softmax_term(Element<T>::load(logits[first + i]), largest);
  }
  for (int n = math::softmax_sums / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) sums[i] += sums[i + n];
  return sums[0];
}

template <typename T>
std::int32_t count_before_label(const T* logits, std::int64_t columns, std::int64_t label) {
  const float label_logit = Element<T>::load(logits[label]);
  std::int32_t count = 0;
  for (std::int64_t c = 0; c < columns; ++c)
    count += math::ranks_before_label(Element<T>::load(logits[c]), c, label_logit, label) ? 1 : 0;
  return count;
}

template <typename T>
void softmax_row(const SoftmaxLoss& call, std::int64_t r) {
  constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
  T* const logits = row<T>(call.logits, r);
  const std::int64_t columns = call.logits.columns;
  const std::int64_t label = call.labels ? call.labels[r] : call.first_label + r;
  const bool has_label = label >= 0 && label < columns;
  if (call.larger != nullptr)
    call.larger[r] =
        has_label ? count_before_label(logits, columns, label) : static_cast<std::int32_t>(columns);
  if (call.losses == nullptr && call.gradient_scale == 0.0f) return;
  math::SoftmaxRow of_row{largest_logit(logits, columns), not_a_number};
  if (has_label) of_row.sum = sum_of_terms(logits, columns, of_row.largest);
  if (call.losses != nullptr)
    call.losses[r] = has_label ? math::softmax_loss(Element<T>::load(logits[label]), of_row) : not_a_number;
  if (call.gradient_scale == 0.0f) return;
  for (std::int64_t c = 0; c < columns; ++c)
    logits[c] = Element<T>::store(math::softmax_gradient(Element<T>::load(logits[c]), c == label, of_row) *
                                  call.gradient_scale);
}

}  // namespace

void run(const SoftmaxLoss& call, HostStream& stream) {
  constexpr std::int64_t elements = chunk_elements / 8;  // two exponentials each
  const auto run = [&]<typename T>(T) {
    for_ranges(stream, call.logits.rows, rows_per_chunk(call.logits.columns, elements),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) softmax_row<T>(call, r);
               });
  };
  if (call.logits.type == ElementType::f32)
    run(float{});
  else
    run(Bfloat16{});
}

}  // namespace egt::host
