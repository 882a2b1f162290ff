// Bandwidth limit of a GPU pair: plain peer copies of one process, without checks.
//   egt_bench_peer_copy [BYTES [REPEATS]]
// Per pair and direction it prints "PEER from=0 to=1 ways=1 gb_per_second=393.1", the median of the repeats.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "peer_copy: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(3);
}

/// Buffers and stream of one GPU of a pair.
struct Side {
  int device = 0;
  void *source = nullptr, *target = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
};

Side open_side(int device, std::size_t bytes) {
  Side side{.device = device};
  must(cudaSetDevice(device), "select");
  must(cudaMalloc(&side.source, bytes), "allocate");
  must(cudaMalloc(&side.target, bytes), "allocate");
  must(cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking), "stream");
  must(cudaEventCreate(&side.begin), "event");
  must(cudaEventCreate(&side.end), "event");
  return side;
}

void enable(int from, int to) {
  must(cudaSetDevice(from), "select");
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(to, 0);
  if (enabled != cudaErrorPeerAccessAlreadyEnabled) must(enabled, "peer access");
  static_cast<void>(cudaGetLastError());
}

void push(const Side& from, const Side& to, std::size_t bytes) {
  must(cudaSetDevice(from.device), "select");
  must(cudaEventRecord(from.begin, from.stream), "record");
  must(cudaMemcpyPeerAsync(to.target, to.device, from.source, from.device, bytes, from.stream), "copy");
  must(cudaEventRecord(from.end, from.stream), "record");
}

double milliseconds(const Side& side) {
  must(cudaSetDevice(side.device), "select");
  must(cudaEventSynchronize(side.end), "wait");
  float ms = 0;
  must(cudaEventElapsedTime(&ms, side.begin, side.end), "time");
  return ms;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void measure(const Side& a, const Side& b, std::size_t bytes, int repeats) {
  std::vector<double> one_way, both_ways;
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    push(a, b, bytes);
    const double alone = milliseconds(a);
    push(a, b, bytes);
    push(b, a, bytes);
    const double together = std::max(milliseconds(a), milliseconds(b));
    if (repeat == 0) continue;  // warm-up
    one_way.push_back(alone);
    both_ways.push_back(together);
  }
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  std::printf("PEER from=%d to=%d ways=1 gb_per_second=%.2f\n", a.device, b.device,
              gigabytes / median(one_way) * 1e3);
  std::printf("PEER from=%d to=%d ways=2 gb_per_second=%.2f\n", a.device, b.device,
              2 * gigabytes / median(both_ways) * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{1'000'000'000};
  const int repeats = argc > 2 ? std::max(1, std::atoi(argv[2])) : 10;
  int count = 0;
  must(cudaGetDeviceCount(&count), "count the GPUs");
  std::vector<Side> sides;
  for (int device = 0; device < count; ++device) sides.push_back(open_side(device, bytes));
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b)
      if (a != b) enable(a, b);
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b)
      if (a != b)
        measure(sides[static_cast<std::size_t>(a)], sides[static_cast<std::size_t>(b)], bytes, repeats);
  return 0;
}
