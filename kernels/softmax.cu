#include "egt/core/math/math.hpp"
#include "kernels/vector.cuh"

/// Softmax with cross entropy. One block per row reads the row three times, twice from the cache. Every sum
/// has the order of math::softmax_sums: each thread computes one of the partial sums.
namespace egt::kernels {
namespace {

constexpr int softmax_threads = math::softmax_sums;

/// Tree reduction over the block in a fixed order, so that the result is deterministic: value i becomes
/// combine(value i, value (i + n)) for n = 128, 64, .., 1. All threads get the result. Each call needs its
/// own `shared`, softmax_threads elements.
template <typename T, typename Combine>
__device__ __forceinline__ T combine_threads(T value, T* shared, const Combine& combine) {
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = value;
  __syncthreads();
  for (int n = softmax_threads / 2; n > 0; n /= 2) {
    if (thread < n) shared[thread] = combine(shared[thread], shared[thread + n]);
    __syncthreads();
  }
  return shared[0];
}

template <typename T>
__global__ void __launch_bounds__(softmax_threads) softmax_loss_kernel(const SoftmaxLoss call) {
  __shared__ float largest_of[softmax_threads], sums[softmax_threads];
  __shared__ std::int32_t counts[softmax_threads];
  const std::int64_t row = blockIdx.x, columns = call.logits.columns;
  T* const logits = static_cast<T*>(call.logits.data) + row * call.logits.leading;
  const std::int64_t label = call.labels ? call.labels[row] : call.first_label + row;
  const bool has_label = label >= 0 && label < columns;
  const float not_a_number = float_from_bits(0x7FC00000u);
  const float label_logit = has_label ? Element<T>::load(logits[label]) : not_a_number;

  float own_largest = float_from_bits(0xFF800000u);  // minus infinity
  std::int32_t own_count = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += softmax_threads) {
    const float logit = Element<T>::load(logits[c]);
    own_largest = logit > own_largest ? logit : own_largest;
    own_count += math::ranks_before_label(logit, c, label_logit, label) ? 1 : 0;
  }
  if (call.larger != nullptr) {
    const std::int32_t count =
        combine_threads(own_count, counts, [](std::int32_t a, std::int32_t b) { return a + b; });
    if (threadIdx.x == 0) call.larger[row] = count;  // without a label: all columns
  }
  if (call.losses == nullptr && call.gradient_scale == 0.0f) return;

  math::SoftmaxRow of_row{};
  of_row.largest = combine_threads(own_largest, largest_of, [](float a, float b) { return b > a ? b : a; });
  float own_sum = 0.0f;
  for (std::int64_t c = threadIdx.x; c < columns; c += softmax_threads)
    own_sum += math::softmax_term(Element<T>::load(logits[c]), of_row.largest);
  of_row.sum = combine_threads(own_sum, sums, [](float a, float b) { return a + b; });
  if (!has_label) of_row.sum = not_a_number;
  if (call.losses != nullptr && threadIdx.x == 0) call.losses[row] = math::softmax_loss(label_logit, of_row);
  if (call.gradient_scale == 0.0f) return;
  // All threads have read the label's logit before the first barrier.
  for (std::int64_t c = threadIdx.x; c < columns; c += softmax_threads)
    logits[c] = Element<T>::store(math::softmax_gradient(Element<T>::load(logits[c]), c == label, of_row) *
                                  call.gradient_scale);
}

}  // namespace

int enqueue(const Launch& launch, const SoftmaxLoss& call) {
  if (call.logits.count() == 0) return cudaSuccess;
  return with_gradient_type(call.logits.type, [&](auto type) {
    return start(launch, dim3(static_cast<unsigned>(call.logits.rows)), dim3(softmax_threads), 0,
                 softmax_loss_kernel<decltype(type)>, call);
  });
}

}  // namespace egt::kernels
