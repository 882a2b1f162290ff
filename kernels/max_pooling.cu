#include "kernels/vector.cuh"

/// Gradient of max pooling by gathering: the thread of an element of x checks all windows that contain it,
/// and adds the gradient of those whose max it is. No two threads add to the same element.
namespace egt::kernels {
namespace {

constexpr int pooling_threads = 256;

/// NaN equals NaN here, because max pooling propagates it.
__device__ __forceinline__ bool is_same(float a, float b) {
  return a == b || (a != a && b != b);
}

/// True if this element is a window's first max: among equal ones the first in row-major order gets the
/// gradient. Each thread handles a pack of N channels of a pixel.
template <typename T, int N>
__global__ void __launch_bounds__(pooling_threads)
    max_pooling_gradient_kernel(const MaxPoolingArguments call) {
  const unsigned thread = blockIdx.x * pooling_threads + threadIdx.x;
  const unsigned packs = static_cast<unsigned>(call.channels / N), width = static_cast<unsigned>(call.width),
                 height = static_cast<unsigned>(call.height);
  const unsigned pixel = thread / packs, row = pixel / width;
  const int x = static_cast<int>(pixel % width), y = static_cast<int>(row % height),
            image = static_cast<int>(row / height), channel = static_cast<int>(thread % packs) * N;
  if (image >= call.images) return;

  const auto at = [&](int py, int px) {
    return ((image * call.height + py) * call.width + px) * call.channels + channel;
  };
  const T* const from = static_cast<const T*>(call.x);
  const Pack<T, N> own = Pack<T, N>::load(from + at(y, x));
  float sum[N] = {};
  const int low_y = y + call.padding - call.kernel, low_x = x + call.padding - call.kernel;
  const int first_y = low_y < 0 ? 0 : low_y / call.stride + 1,
            first_x = low_x < 0 ? 0 : low_x / call.stride + 1;
  for (int wy = first_y; wy < call.windows_y && wy * call.stride <= y + call.padding; ++wy)
    for (int wx = first_x; wx < call.windows_x && wx * call.stride <= x + call.padding; ++wx) {
      const int window = ((image * call.windows_y + wy) * call.windows_x + wx) * call.channels + channel;
      const Pack<T, N> maximum = Pack<T, N>::load(static_cast<const T*>(call.y) + window);
      bool is_first[N], is_any = false;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        is_first[j] = is_same(Element<T>::load(own.v[j]), Element<T>::load(maximum.v[j]));
        is_any = is_any || is_first[j];
      }
      if (!is_any) continue;
      const int begin_y = wy * call.stride - call.padding, begin_x = wx * call.stride - call.padding;
      for (int py = begin_y < 0 ? 0 : begin_y; py <= y; ++py)
        for (int px = begin_x < 0 ? 0 : begin_x; px < (py < y ? begin_x + call.kernel : x); ++px) {
          if (px >= call.width) break;
          const Pack<T, N> before = Pack<T, N>::load(from + at(py, px));
#pragma unroll
          for (int j = 0; j < N; ++j)
            is_first[j] =
                is_first[j] && !is_same(Element<T>::load(before.v[j]), Element<T>::load(maximum.v[j]));
        }
      const Pack<T, N> gradient = Pack<T, N>::load(static_cast<const T*>(call.y_gradient) + window);
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (is_first[j]) sum[j] += Element<T>::load(gradient.v[j]);
    }
  Pack<T, N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) result.v[j] = Element<T>::store(sum[j]);
  result.store(static_cast<T*>(call.x_gradient) + at(y, x));
}

}  // namespace

int max_pooling_gradient(const Launch& launch, ElementType type, const MaxPoolingArguments& call) {
  return with_gradient_type(type, [&](auto of_type) {
    using T = decltype(of_type);
    constexpr int n = vector_bytes / static_cast<int>(sizeof(T));
    const bool packs = call.channels % n == 0 && aligned_head({{call.x, sizeof(T)},
                                                               {call.y, sizeof(T)},
                                                               {call.y_gradient, sizeof(T)},
                                                               {call.x_gradient, sizeof(T)}},
                                                              n) == 0;
    const std::int64_t pixels = std::int64_t{call.images} * call.height * call.width,
                       threads = pixels * (call.channels / (packs ? n : 1));
    const dim3 grid(static_cast<unsigned>(divide_up(threads, std::int64_t{pooling_threads})));
    return packs ? start(launch, grid, dim3(pooling_threads), 0, max_pooling_gradient_kernel<T, n>, call)
                 : start(launch, grid, dim3(pooling_threads), 0, max_pooling_gradient_kernel<T, 1>, call);
  });
}

}  // namespace egt::kernels
