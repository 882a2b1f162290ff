#include "device/cuda/cuda_device.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "device/arguments.hpp"
#include "device/cuda/cuda_device_info.hpp"
#include "device/cuda/cuda_gemm.hpp"
#include "device/cuda/cuda_graph.hpp"
#include "device/cuda/cuda_native.hpp"
#include "device/cuda/cuda_shared.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "egt/core/units.hpp"
#include "egt/core/wait.hpp"
#include "kernels/launch.hpp"

namespace egt {
namespace {

constexpr std::uint64_t small_device_bytes = std::uint64_t{16} << 30;

/// Column sums need partial sums, whose width the scratch memory limits.
Status check_column_sums(const MatrixView& matrix) {
  if (matrix.columns <= kernels::widest_column_sums) return {};
  return Status(StatusCode::unsupported, fmt::format("a layer of {} neurons is wider than {}, the most here",
                                                     matrix.columns, kernels::widest_column_sums));
}

class CudaDevice : public Device {
 public:
  CudaDevice(int index, CudaDeviceInfo found)
      : index_(index),
        info_(std::move(found.info)),
        capability_(found.capability),
        shared_(index, info_.pci_bus_id) {}

  const DeviceInfo& info() const override { return info_; }
  Support supports(Precision precision) const override {
    return supported_by({info_, capability_}, precision);
  }
  Result<MemoryInfo> memory() const override { return cuda_memory(index_); }

  Result<Buffer> allocate(std::size_t bytes) override { return allocate_cuda_memory(index_, bytes); }
  Result<Buffer> allocate_pinned(std::size_t bytes) override { return allocate_pinned_memory(index_, bytes); }
  Result<std::unique_ptr<Stream>> create_stream(StreamPriority priority, StreamUse use) override;
  Result<std::unique_ptr<Event>> create_event(EventUse use) override;

  Status record(Event& event, Stream& stream) override;
  Status wait(Stream& stream, const Event& event) override;
  Result<bool> done(const Event& event) override;
  Result<double> elapsed_ms(const Event& from, const Event& to) override;
  Result<double> busy_ms(const Event& from, const Event& to) override { return elapsed_ms(from, to); }
  Status synchronize(Stream& stream, double timeout_seconds) override;
  Status forget_failure(Stream& stream, double timeout_seconds) override;

  Result<std::unique_ptr<CapturedWork>> capture(Stream& stream, std::function<Status()> enqueue) override {
    EGT_TRY(select_cuda_device(index_));
    return capture_graph(as_cuda(stream), enqueue);
  }
  Status enqueue_captured(CapturedWork& work, Stream& stream) override {
    return put_held(stream, "a graph", [&](CudaStream& s) { return launch_graph(work, s); });
  }
  Status allow_holds() override { return hold_.allow(*this); }
  void hold(bool is_held) override { hold_.set(is_held); }
  Result<SharedBuffer> allocate_shared(std::size_t bytes) override;
  Result<Buffer> open_shared(const std::string& handle) override { return shared_.open(handle); }
  Result<Buffer> register_signals(void* pages, std::size_t bytes) override {
    EGT_TRY(check_signals(pages, bytes));
    return signals_.register_pages(index_, pages, bytes);
  }

 protected:
  Status enqueue_checked(const Operation& operation, Stream& stream) override {
    return std::visit([&](const auto& call) { return start(call, stream); }, operation);
  }

 private:
  kernels::Launch launch_on(CudaStream& stream) const {
    const int width = static_cast<int>(std::ceil(stream.width() * info_.multiprocessors));
    return {stream.native(), info_.multiprocessors, width, stream.scratch(), overlaps_};
  }

  /// Operations that are one launch of kernels.
  template <typename Call>
  Status start(const Call& call, Stream& stream) {
    return put_held(stream, Call::name, [&](CudaStream& s) { return kernels::enqueue(launch_on(s), call); });
  }
  Status start(const Copy& call, Stream& stream);
  Status start(const SetZero& call, Stream& stream);
  Status start(const WriteSignal& call, Stream& stream) {
    return put(stream, call.name,
               [&](CudaStream& s) { return signals_.write(call.signal, call.number, s.native()); });
  }
  Status start(const AwaitSignal& call, Stream& stream) {
    return put(stream, call.name,
               [&](CudaStream& s) { return signals_.await(call.signal, call.number, s.native()); });
  }
  Status start(const Gemm& gemm, Stream& stream);
  Status start(const Activation& call, Stream& stream);
  Status start(const ActivationGradient& call, Stream& stream) {
    EGT_TRY(check_column_sums(call.gradient));
    return start<ActivationGradient>(call, stream);
  }
  Status start(const LossGradient& call, Stream& stream) {
    EGT_TRY(check_column_sums(call.z));
    return start<LossGradient>(call, stream);
  }

  /// Enqueues work: `launch(stream)` returns a cudaError_t as an int. A failed stream rejects further work,
  /// so its first error is the one reported.
  template <typename Launch>
  Status put_held(Stream& stream, std::string_view work, Launch&& launch) {
    EGT_TRY(begin_held(stream));
    return put(stream, work, std::forward<Launch>(launch));
  }
  /// As `put_held`, but never held back.
  template <typename Launch>
  Status put(Stream& any, std::string_view work, Launch&& launch) {
    CudaStream& stream = as_cuda(any);
    EGT_TRY(stream.first_error());
    EGT_TRY(select_cuda_device(index_));
    const auto error = static_cast<cudaError_t>(launch(stream));
    return error == cudaSuccess ? Status() : stream.keep(cuda_status(error, fmt::format("enqueue {}", work)));
  }
  Status begin_held(Stream& stream) {
    if (!hold_.is_allowed()) return {};
    return put(stream, "a hold", [this](CudaStream& s) { return hold_.begin(launch_on(s)); });
  }

  const int index_;
  const DeviceInfo info_;
  const bool overlaps_ = kernels::can_start_early();  // about the thread's current device, which is this one
  const int capability_;
  CudaSharedMemory shared_;
  CudaSignals signals_;
  GemmPlanner gemms_;
  CudaHold hold_;
};

Result<std::unique_ptr<Stream>> CudaDevice::create_stream(StreamPriority priority, StreamUse use) {
  // cuBLAS recommends 32 MiB on Hopper. More lets it choose freely.
  const std::size_t workspace_bytes = std::size_t{info_.memory_total_bytes < small_device_bytes ? 32u : 64u}
                                      << 20;
  EGT_TRY_ASSIGN(std::unique_ptr<Stream> stream, CudaStream::create(index_, priority, use, workspace_bytes));
  return stream;
}

Result<std::unique_ptr<Event>> CudaDevice::create_event(EventUse use) {
  EGT_TRY_ASSIGN(std::unique_ptr<Event> event, CudaEvent::create(index_, use));
  return event;
}

Status CudaDevice::record(Event& event, Stream& stream) {
  return put(stream, "an event",
             [&](CudaStream& s) { return cudaEventRecord(as_cuda(event).native(), s.native()); });
}

Status CudaDevice::wait(Stream& stream, const Event& event) {
  return put(stream, "a wait for an event",
             [&](CudaStream& s) { return cudaStreamWaitEvent(s.native(), as_cuda(event).native(), 0); });
}

Result<bool> CudaDevice::done(const Event& event) {
  EGT_TRY(select_cuda_device(index_));
  const cudaError_t error = cudaEventQuery(as_cuda(event).native());
  if (error == cudaSuccess) {
    EGT_TRY(hold_.status());
    return true;
  }
  const Status status = cuda_status(error, "reach an event");
  if (error == cudaErrorNotReady) return false;
  return status;
}

Result<double> CudaDevice::elapsed_ms(const Event& from, const Event& to) {
  EGT_TRY(check_times("elapsed_ms", from, to));
  EGT_TRY(select_cuda_device(index_));
  float milliseconds = 0;
  EGT_TRY(cuda_status(cudaEventElapsedTime(&milliseconds, as_cuda(from).native(), as_cuda(to).native()),
                      "measure the time between two events"));
  return static_cast<double>(milliseconds);
}

Status CudaDevice::synchronize(Stream& stream, double timeout_seconds) {
  EGT_TRY(select_cuda_device(index_));
  EGT_TRY(wait_until([&] { return as_cuda(stream).finished(); },
                     {.seconds = timeout_seconds, .what = "the work of a GPU stream"}));
  return hold_.status();
}

Status CudaDevice::forget_failure(Stream& stream, double timeout_seconds) {
  EGT_TRY(select_cuda_device(index_));
  as_cuda(stream).forget_failure();
  hold_.forget();
  return synchronize(stream, timeout_seconds);
}

Status CudaDevice::start(const Copy& call, Stream& stream) {
  return put_held(stream, call.name, [&](CudaStream& s) {
    return call.bytes == 0 ? cudaSuccess
                           : cudaMemcpyAsync(call.to, call.from, call.bytes, cudaMemcpyDefault, s.native());
  });
}

Status CudaDevice::start(const SetZero& call, Stream& stream) {
  return put_held(stream, call.name, [&](CudaStream& s) {
    return call.bytes == 0 ? cudaSuccess : cudaMemsetAsync(call.data, 0, call.bytes, s.native());
  });
}

Result<SharedBuffer> CudaDevice::allocate_shared(std::size_t bytes) {
  EGT_TRY(check_allocate_shared(bytes));
  EGT_TRY(select_cuda_device(index_));
  EGT_TRY(cuda_status(static_cast<cudaError_t>(kernels::load_add()), "load the kernels of sums"));
  constexpr std::size_t piece = CudaSharedMemory::granularity;
  EGT_TRY_ASSIGN(Buffer memory, allocate(bytes / piece * piece + (bytes % piece ? piece : 0)));
  return shared_.share(std::move(memory), bytes);
}

Status CudaDevice::start(const Gemm& gemm, Stream& stream) {
  if (const Support support = supports(gemm.precision); !support.yes())
    return Status(StatusCode::unsupported, support.why_not);
  if (gemm.d.count() == 0) return {};
  if (gemm.a.count() == 0)  // a sum without terms: only beta applies
    return put_held(stream, gemm.name,
                    [&](CudaStream& s) { return kernels::scale(launch_on(s), gemm.d, gemm.beta); });
  EGT_TRY(begin_held(stream));
  EGT_TRY(as_cuda(stream).first_error());
  EGT_TRY(select_cuda_device(index_));
  return gemms_.multiply(gemm, as_cuda(stream));
}

/// Splits the work into pieces if it may be held back, so that none lasts much longer than a millisecond.
Status CudaDevice::start(const Activation& call, Stream& stream) {
  const auto& [h, bias, extreme] = call;
  constexpr std::int64_t turns_of_a_piece = 100'000'000;
  const std::int64_t turns_of_a_row = std::max<std::int64_t>(1, h.columns * extreme.iterations);
  const bool is_cut = hold_.is_allowed() && extreme.iterations > 0;
  const std::int64_t rows = is_cut ? std::max<std::int64_t>(1, turns_of_a_piece / turns_of_a_row)
                                   : std::max<std::int64_t>(1, h.rows);
  for (std::int64_t first = 0; first == 0 || first < h.rows; first += rows) {
    const Activation piece{h.row_range(first, std::min(rows, h.rows - first)), bias, extreme};
    EGT_TRY(put_held(stream, call.name,
                     [&](CudaStream& s) { return kernels::enqueue(launch_on(s), piece, first); }));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device(int index) {
  EGT_TRY_ASSIGN(CudaDeviceInfo found, inspect_cuda_device(index));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(index, std::move(found)));
}

}  // namespace egt
