#include "device/host/host_device.hpp"

#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <type_traits>
#include <variant>
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

std::uint64_t words_of(const VerifySum& call) {
  return static_cast<std::uint64_t>(call.sum.count);
}
std::uint64_t words_of(const auto& call) {
  return call.words.count;
}

template <typename T>
void enqueue_on(HostStream& stream, const T& call) {
  // An operation of its own: if the verification does not run, its words remain counted as mismatches.
  if constexpr (std::is_same_v<T, Verify> || std::is_same_v<T, VerifyAndFill> || std::is_same_v<T, VerifySum>)
    stream.enqueue([report = call.report, words = words_of(call)] {
      report->count += words;
      return Status();
    });
  stream.enqueue([call, &stream]() -> Status {
    if constexpr (std::is_void_v<decltype(host::run(call, stream))>)
      return host::run(call, stream), Status();
    else
      return host::run(call, stream);
  });
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
        available_at_open_(share.available_bytes) {
    if (config.on_progress)
      progress_ = std::make_shared<const HostProgress>(HostProgress{.report = config.on_progress});
  }

  const DeviceInfo& info() const override { return info_; }
  Support supports(Precision) const override { return {}; }
  Result<MemoryInfo> memory() const override;
  Result<Buffer> allocate(std::size_t bytes) override { return allocate_aligned(bytes, 256); }
  Result<Buffer> allocate_pinned(std::size_t bytes) override { return allocate_aligned(bytes, 4096); }

  Result<std::unique_ptr<Stream>> create_stream(StreamPriority priority, StreamUse use) override {
    EGT_TRY_ASSIGN(auto stream, HostStream::create(priority, info_.multiprocessors, use, hold_, progress_));
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

 protected:
  Status enqueue_checked(const Operation& operation, Stream& stream) override {
    if (const auto* gemm = std::get_if<Gemm>(&operation)) EGT_TRY(host::check(*gemm));
    std::visit([&](const auto& call) { enqueue_on(as_host_stream(stream), call); }, operation);
    return {};
  }

 private:
  Result<Buffer> allocate_aligned(std::size_t bytes, std::size_t alignment);
  Status take(std::size_t bytes);
  bool reserve(std::size_t bytes);
  Status no_memory(std::size_t bytes, std::uint64_t left, const std::string& of_what) const;
  std::uint64_t available_to_rank(const NodeMemory& node) const;

  const std::shared_ptr<HostHold> hold_ = std::make_shared<HostHold>();
  std::shared_ptr<const HostProgress> progress_;  ///< null: not reported
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

/// Allocated pages count as used only once they are written. Ranks that allocate at the same time would all
/// see the same available memory. The limit is therefore the unused part of the share that this rank had when
/// it opened the device, or an equal share of the memory available now if that is larger.
std::uint64_t HostDevice::available_to_rank(const NodeMemory& node) const {
  const std::uint64_t unused = available_at_open_ - std::min(available_at_open_, allocated_bytes_.load());
  return std::min(node.available_bytes, std::max(unused, node.available_bytes / local_size_));
}

/// Reserves `bytes` of this rank's share; false if less is left.
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
