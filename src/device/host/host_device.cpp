#include "device/host/host_device.hpp"

#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "device/arguments.hpp"
#include "device/host/host_event.hpp"
#include "device/host/host_operations.hpp"
#include "device/host/host_topology.hpp"
#include "device/shared/shared_pages.hpp"
#include "egt/core/process_limits.hpp"
#include "egt/core/system_files.hpp"
#include "egt/core/units.hpp"
#include "egt/core/wait.hpp"

namespace egt {
namespace {

HostEvent& as_host_event(Event& event) {
  return static_cast<HostEvent&>(event);
}
const HostEvent& as_host_event(const Event& event) {
  return static_cast<const HostEvent&>(event);
}

/// Enqueuing is cheap on the host, so captured work is enqueued again.
struct HostCapturedWork final : CapturedWork {
  explicit HostCapturedWork(std::function<Status()> work) : enqueue(std::move(work)) {}
  const std::function<Status()> enqueue;
};

class HostDevice final : public Device {
 public:
  HostDevice(DeviceInfo info, const HostDeviceConfig& config, const HostShare& share)
      : info_(std::move(info)),
        root_(config.root),
        local_size_(static_cast<std::uint64_t>(config.local_size)),
        available_at_open_(share.available_bytes) {}

  const DeviceInfo& info() const override { return info_; }
  Support supports(Precision) const override { return {}; }
  Result<MemoryInfo> memory() const override;
  Result<Buffer> allocate(std::size_t bytes) override { return allocate_aligned(bytes, 256); }
  Result<Buffer> allocate_pinned(std::size_t bytes) override { return allocate_aligned(bytes, 4096); }

  Result<std::unique_ptr<Stream>> create_stream(StreamPriority priority, StreamUse use) override {
    EGT_TRY_ASSIGN(auto stream, HostStream::create(priority, info_.multiprocessors, use, hold_));
    return std::unique_ptr<Stream>(std::move(stream));
  }
  Result<std::unique_ptr<Event>> create_event(EventUse use) override {
    return std::unique_ptr<Event>(std::make_unique<HostEvent>(use));
  }
  Status record(Event& event, Stream& stream) override {
    as_host_event(event).record(as_host_stream(stream));
    return {};
  }
  Status wait(Stream& stream, const Event& event) override {
    as_host_event(event).make_wait(as_host_stream(stream));
    return {};
  }
  Result<bool> done(const Event& event) override { return as_host_event(event).done(); }
  Result<double> elapsed_ms(const Event& from, const Event& to) override;
  Result<double> busy_ms(const Event& from, const Event& to) override;
  Status forget_failure(Stream& stream, double timeout_seconds) override;
  Status synchronize(Stream& stream, double timeout_seconds) override;

  Status copy(void* to, const void* from, std::size_t bytes, Stream& stream) override {
    return host::copy(to, from, bytes, as_host_stream(stream));
  }
  Status set_zero(void* data, std::size_t bytes, Stream& stream) override {
    return host::set_zero(data, bytes, as_host_stream(stream));
  }
  Result<std::unique_ptr<CapturedWork>> capture(Stream&, std::function<Status()> enqueue) override {
    return std::unique_ptr<CapturedWork>(std::make_unique<HostCapturedWork>(std::move(enqueue)));
  }
  Status enqueue_captured(CapturedWork& work, Stream&) override {
    return static_cast<HostCapturedWork&>(work).enqueue();
  }
  Status allow_holds() override { return {}; }
  void hold(bool is_held) override { hold_->set(is_held); }
  Result<SharedBuffer> allocate_shared(std::size_t bytes) override;
  Result<Buffer> open_shared(const std::string& handle) override;
  Result<Buffer> register_signals(void* pages, std::size_t bytes) override {
    EGT_TRY(check_signals(pages, bytes));
    return Buffer(pages, bytes, [](void*) {});
  }
  Status write_signal(std::uint32_t* signal, std::uint32_t number, Stream& stream) override;
  Status await_signal(const std::uint32_t* signal, std::uint32_t number, Stream& stream) override;
  Status add(VectorView sum, VectorView term, Stream& stream) override {
    return host::add(sum, term, as_host_stream(stream));
  }
  Status gemm(const Gemm& call, Stream& stream) override {
    EGT_TRY(check_takes_products(stream));
    return host::gemm(call, as_host_stream(stream));
  }
  Status quantize(const Quantization& call, Stream& stream) override {
    return host::quantize(call, as_host_stream(stream));
  }
  Status cast(VectorView to, VectorView from, Stream& stream) override {
    return host::cast(to, from, as_host_stream(stream));
  }
  Status randomize(VectorView out, const RandomSequence& sequence, Stream& stream) override {
    return host::randomize(out, sequence, as_host_stream(stream));
  }
  Status activate(MatrixView h, const float* bias, const ExtremeTerm& extreme, Stream& stream) override {
    return host::activate(h, bias, extreme, as_host_stream(stream));
  }
  Status activation_gradient(MatrixView gradient, MatrixView h, VectorView bias_gradient,
                             Stream& stream) override {
    EGT_TRY(check_takes_products(stream));
    return host::activation_gradient(gradient, h, bias_gradient, as_host_stream(stream));
  }
  Status loss_gradient(const LossGradient& call, Stream& stream) override {
    EGT_TRY(check_takes_products(stream));
    return host::loss_gradient(call, as_host_stream(stream));
  }
  Status softmax_loss(const SoftmaxLoss& call, Stream& stream) override {
    return host::softmax_loss(call, as_host_stream(stream));
  }
  Status sgd_step(const ParameterRange& range, float* velocity, const math::Sgd& rule,
                  Stream& stream) override {
    return host::sgd_step(range, velocity, rule, as_host_stream(stream));
  }
  Status adam_step(const ParameterRange& range, float* first, float* second, const math::Adam& rule,
                   Stream& stream) override {
    return host::adam_step(range, first, second, rule, as_host_stream(stream));
  }
  Status select_top_k(const TopKSelection& call, Stream& stream) override {
    return host::select_top_k(call, as_host_stream(stream));
  }
  Status scatter_add(VectorView sum, SparseView elements, Stream& stream) override {
    return host::scatter_add(sum, elements, as_host_stream(stream));
  }
  Status fill(WordsView words, const Pattern& pattern, Stream& stream) override {
    return host::fill(words, pattern, as_host_stream(stream));
  }
  Status reset(Mismatches* report, Stream& stream) override {
    return host::reset(report, as_host_stream(stream));
  }
  Status verify(WordsView words, const Pattern& expected, Mismatches* report, Stream& stream) override {
    return host::verify(words, expected, report, as_host_stream(stream));
  }
  Status verify_sum(VectorView sum, const void* terms, int count, Mismatches* report,
                    Stream& stream) override {
    return host::verify_sum(sum, terms, count, report, as_host_stream(stream));
  }
  Status verify_and_fill(WordsView words, const Pattern& expected, const Pattern& next, Direction direction,
                         Mismatches* report, Stream& stream) override {
    return host::verify_and_fill(words, expected, next, direction, report, as_host_stream(stream));
  }
  Status digest(WordsView words, Digest* digest, Stream& stream) override {
    return host::digest(words, digest, as_host_stream(stream));
  }
  Status sum(WordsView words, Digest* sums, Stream& stream) override {
    return host::sum(words, sums, as_host_stream(stream));
  }
  Status sine_exponential(WordsView words, int iterations, Digest* digest, Stream& stream) override {
    return host::sine_exponential(words, iterations, digest, as_host_stream(stream));
  }
  Status flip(WordsView words, const Flip& flip, Stream& stream) override {
    return host::flip(words, flip, as_host_stream(stream));
  }
  Status voxelize(const Voxelization& call, Stream& stream) override {
    return host::voxelize(call, as_host_stream(stream));
  }
  Status fuse(const StreamFusion& call, Stream& stream) override {
    return host::fuse(call, as_host_stream(stream));
  }
  Status verify_gemm(const Gemm& call, GemmMismatches* report, Stream& stream) override {
    return host::verify_gemm(call, report, as_host_stream(stream));
  }

 private:
  Result<Buffer> allocate_aligned(std::size_t bytes, std::size_t alignment);
  Status take(std::size_t bytes);
  bool reserve(std::size_t bytes);
  Status no_memory(std::size_t bytes, std::uint64_t left, const std::string& of_what) const;
  std::uint64_t available_to_rank(const NodeMemory& node) const;

  const std::shared_ptr<HostHold> hold_ = std::make_shared<HostHold>();
  const DeviceInfo info_;
  const std::filesystem::path root_;
  const std::uint64_t local_size_;         ///< ranks that share this node
  const std::uint64_t available_at_open_;  ///< this rank's share
  std::atomic<std::uint64_t> allocated_bytes_{0};
};

Result<MemoryInfo> HostDevice::memory() const {
  EGT_TRY_ASSIGN(const NodeMemory node, node_memory(root_));
  const std::uint64_t allocated = std::min(allocated_bytes_.load(), info_.memory_total_bytes);
  const std::uint64_t available = available_to_rank(node);
  const std::uint64_t left = info_.memory_total_bytes - allocated;
  return MemoryInfo{.total_bytes = info_.memory_total_bytes,
                    .free_bytes = std::min(left, available),
                    .others_bytes = left - std::min(left, available)};
}

/// Allocated pages count as used only once they are written. So ranks that allocate at the same time all see
/// the same available memory. Each rank is limited to its share of the memory available when the device was
/// opened, or of that available now.
std::uint64_t HostDevice::available_to_rank(const NodeMemory& node) const {
  const std::uint64_t unused = available_at_open_ - std::min(available_at_open_, allocated_bytes_.load());
  return std::min(node.available_bytes, std::max(unused, node.available_bytes / local_size_));
}

/// Reserves `bytes` of the share; false if less is left.
bool HostDevice::reserve(std::size_t bytes) {
  std::uint64_t allocated = allocated_bytes_;
  do {
    if (bytes > info_.memory_total_bytes - allocated) return false;
  } while (!allocated_bytes_.compare_exchange_weak(allocated, allocated + bytes));
  return true;
}

Status HostDevice::no_memory(std::size_t bytes, std::uint64_t left, const std::string& of_what) const {
  return Status(StatusCode::out_of_memory,
                fmt::format("no {} of memory: {} has {} left; ask for less, or run fewer ranks on the node",
                            format_bytes(bytes), of_what, format_bytes(left)));
}

/// Reserves `bytes` or returns why it cannot; also checks the node's available memory.
Status HostDevice::take(std::size_t bytes) {
  EGT_TRY_ASSIGN(const NodeMemory node, node_memory(root_));
  const std::uint64_t available = available_to_rank(node);
  if (bytes > available)
    return no_memory(bytes, available, fmt::format("this rank's share of {}", node.limited_by));
  if (reserve(bytes)) return {};
  return no_memory(bytes, info_.memory_total_bytes - allocated_bytes_, "this rank's share of the node");
}

Result<SharedBuffer> HostDevice::allocate_shared(std::size_t bytes) {
  EGT_TRY(check_allocate_shared(bytes));
  EGT_TRY(take(bytes));
  Result<SharedPages> made = SharedPages::create(bytes);
  if (!made.ok()) {
    allocated_bytes_ -= bytes;
    return made.status();
  }
  const auto pages = std::make_shared<SharedPages>(std::move(made.value()));
  Buffer buffer(pages->data(), bytes, [this, pages, bytes](void*) { allocated_bytes_ -= bytes; });
  return SharedBuffer{std::move(buffer), pages->handle()};
}

Result<Buffer> HostDevice::open_shared(const std::string& handle) {
  EGT_TRY_ASSIGN(const SharedHandle parsed, SharedHandle::parse(handle));
  EGT_TRY_ASSIGN(SharedPages opened, SharedPages::open(parsed));
  const auto pages = std::make_shared<SharedPages>(std::move(opened));
  return Buffer(pages->data(), pages->bytes(), [pages](void*) {});
}

Status HostDevice::write_signal(std::uint32_t* signal, std::uint32_t number, Stream& stream) {
  as_host_stream(stream).enqueue([signal, number] {
    std::atomic_ref(*signal).store(number, std::memory_order_release);
    return Status();
  });
  return {};
}

Status HostDevice::await_signal(const std::uint32_t* signal, std::uint32_t number, Stream& stream) {
  HostStream& own = as_host_stream(stream);
  own.enqueue([&own, signal = const_cast<std::uint32_t*>(signal), number] {
    const auto has_come = [&]() -> Result<bool> {
      const std::uint32_t now = std::atomic_ref(*signal).load(std::memory_order_acquire);
      if (static_cast<std::int32_t>(now - number) >= 0) return true;
      if (own.is_ending()) return Status(StatusCode::aborted, "the stream ended before a signal came");
      return false;
    };
    return wait_until(has_come, {.seconds = std::numeric_limits<double>::infinity()});
  });
  return {};
}

Result<Buffer> HostDevice::allocate_aligned(std::size_t bytes, std::size_t alignment) {
  if (bytes == 0) return Buffer();
  EGT_TRY(take(bytes));
  void* const data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) {
    allocated_bytes_ -= bytes;
    EGT_TRY_ASSIGN(const NodeMemory node, node_memory(root_));
    return no_memory(bytes, node.available_bytes, node.limited_by);
  }
  return Buffer(data, bytes, [this, bytes](void* released) {
    std::free(released);
    allocated_bytes_ -= bytes;
  });
}

Result<double> HostDevice::elapsed_ms(const Event& from, const Event& to) {
  EGT_TRY(check_times("elapsed_ms", from, to));
  EGT_TRY_ASSIGN(const Clock::time_point start, as_host_event(from).reached_at());
  EGT_TRY_ASSIGN(const Clock::time_point end, as_host_event(to).reached_at());
  return std::chrono::duration<double, std::milli>(end - start).count();
}

Result<double> HostDevice::busy_ms(const Event& from, const Event& to) {
  EGT_TRY(check_times("busy_ms", from, to));
  EGT_TRY_ASSIGN(const double start, as_host_event(from).cpu_ms());
  EGT_TRY_ASSIGN(const double end, as_host_event(to).cpu_ms());
  if (&from != &to && !as_host_event(from).same_stream(as_host_event(to)))
    return Status(StatusCode::invalid_argument, "busy_ms: the events are of two streams");
  return end - start;
}

Status HostDevice::synchronize(Stream& stream, double timeout_seconds) {
  if (!as_host_stream(stream).wait_idle(timeout_seconds))
    return Status(StatusCode::timeout,
                  fmt::format("the host's stream was still busy after {} s", timeout_seconds));
  return as_host_stream(stream).status();
}

Status HostDevice::forget_failure(Stream& stream, double timeout_seconds) {
  if (!as_host_stream(stream).wait_idle(timeout_seconds))
    return Status(StatusCode::timeout,
                  fmt::format("the host's stream was still busy after {} s", timeout_seconds));
  as_host_stream(stream).forget_failure();
  return {};
}

/// OpenBLAS maps a buffer per computing thread at first use. It retries forever if the process's address
/// space is limited and full. So check for space, and run a first GEMM now to map the buffers.
Status prepare_products(int threads) {
  constexpr std::size_t buffer_bytes = std::size_t{128} << 20;  // x86-64; smaller on other architectures
  constexpr int callers = 3;                                    // concurrent GEMM streams
  constexpr int size = 256;
  if (!is_address_space_limited()) return {};
  EGT_TRY(check_address_space(fmt::format("computing on {} threads", threads),
                              (static_cast<std::size_t>(threads) + callers) * buffer_bytes));
  const std::vector<float> ones(std::size_t{size} * size, 1);
  std::vector<float> product(ones.size());
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, size, size, 1, ones.data(), size, ones.data(),
              size, 0, product.data(), size);
  return {};
}

Status check_config(const HostDeviceConfig& config) {
  if (config.local_size < 1 || config.local_rank < 0 || config.local_rank >= config.local_size)
    return Status(StatusCode::invalid_argument,
                  fmt::format("there is no local rank {} of {}", config.local_rank, config.local_size));
  if (config.cores && *config.cores < 1)
    return Status(StatusCode::invalid_argument, "a host device needs at least 1 core");
  return {};
}

}  // namespace

Result<std::unique_ptr<Device>> open_host_device(const HostDeviceConfig& config) {
  EGT_TRY(check_config(config));
  EGT_TRY_ASSIGN(const HostShare share, find_host_share(config.local_size, config.root));
  DeviceInfo info;
  info.backend = "host";
  info.index = config.local_rank;
  info.name = share.cpu_model;
  info.memory_total_bytes = config.memory_total_bytes.value_or(share.memory_bytes);
  info.multiprocessors = config.cores.value_or(share.cores);
  info.numa_node = share.numa_node;
  info.libraries = fmt::format("{} {}", openblas_get_config(), openblas_get_corename());
  openblas_set_num_threads(info.multiprocessors);
  EGT_TRY(prepare_products(info.multiprocessors));
  return std::unique_ptr<Device>(std::make_unique<HostDevice>(std::move(info), config, share));
}

}  // namespace egt
