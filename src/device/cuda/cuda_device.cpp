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

/// The scratch memory limits the width of partial sums.
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

  Status copy(void* to, const void* from, std::size_t bytes, Stream& stream) override;
  Status set_zero(void* data, std::size_t bytes, Stream& stream) override;

  Result<std::unique_ptr<CapturedWork>> capture(Stream& stream, std::function<Status()> enqueue) override {
    EGT_TRY(select_cuda_device(index_));
    return capture_graph(as_cuda(stream), enqueue);
  }
  Status enqueue_captured(CapturedWork& work, Stream& stream) override {
    return enqueue(stream, "launch a graph", [&](CudaStream& s) { return launch_graph(work, s); });
  }
  Status allow_holds() override { return hold_.allow(*this); }
  void hold(bool is_held) override { hold_.set(is_held); }
  Result<SharedBuffer> allocate_shared(std::size_t bytes) override;
  Result<Buffer> open_shared(const std::string& handle) override { return shared_.open(handle); }
  Result<Buffer> register_signals(void* pages, std::size_t bytes) override {
    EGT_TRY(check_signals(pages, bytes));
    return signals_.register_pages(index_, pages, bytes);
  }
  Status write_signal(std::uint32_t* signal, std::uint32_t number, Stream& stream) override {
    return put(stream, "write a signal",
               [&](CudaStream& s) { return signals_.write(signal, number, s.native()); });
  }
  Status await_signal(const std::uint32_t* signal, std::uint32_t number, Stream& stream) override {
    return put(stream, "await a signal",
               [&](CudaStream& s) { return signals_.await(signal, number, s.native()); });
  }
  Status add(VectorView sum, VectorView term, Stream& stream) override;

  Status gemm(const Gemm& gemm, Stream& stream) override;
  Status verify_gemm(const Gemm& gemm, GemmMismatches* report, Stream& stream) override;
  Status quantize(const Quantization& call, Stream& stream) override;
  Status cast(VectorView to, VectorView from, Stream& stream) override;
  Status randomize(VectorView out, const RandomSequence& sequence, Stream& stream) override;
  Status activate(MatrixView h, const float* bias, const ExtremeTerm& extreme, Stream& stream) override;
  Status activation_gradient(MatrixView gradient, MatrixView h, VectorView bias_gradient,
                             Stream& stream) override;
  Status loss_gradient(const LossGradient& call, Stream& stream) override;
  Status softmax_loss(const SoftmaxLoss& call, Stream& stream) override;
  Status sgd_step(const ParameterRange& range, float* velocity, const math::Sgd& rule,
                  Stream& stream) override;
  Status adam_step(const ParameterRange& range, float* first, float* second, const math::Adam& rule,
                   Stream& stream) override;
  Status select_top_k(const TopKSelection& call, Stream& stream) override;
  Status scatter_add(VectorView sum, SparseView elements, Stream& stream) override;

  Status fill(WordsView words, const Pattern& pattern, Stream& stream) override;
  Status reset(Mismatches* report, Stream& stream) override;
  Status verify(WordsView words, const Pattern& expected, Mismatches* report, Stream& stream) override;
  Status verify_sum(VectorView sum, const void* terms, int count, Mismatches* report,
                    Stream& stream) override;
  Status verify_and_fill(WordsView words, const Pattern& expected, const Pattern& next, Direction direction,
                         Mismatches* report, Stream& stream) override;
  Status digest(WordsView words, Digest* digest, Stream& stream) override;
  Status sum(WordsView words, Digest* sums, Stream& stream) override;
  Status sine_exponential(WordsView words, int iterations, Digest* digest, Stream& stream) override;
  Status flip(WordsView words, const Flip& flip, Stream& stream) override;

  Status voxelize(const Voxelization& call, Stream& stream) override;
  Status fuse(const StreamFusion& call, Stream& stream) override;

 private:
  kernels::Launch launch_on(CudaStream& stream) const {
    const int width = static_cast<int>(std::ceil(stream.width() * info_.multiprocessors));
    return {stream.native(), info_.multiprocessors, width, stream.scratch(), overlaps_};
  }

  /// Enqueues work: `start(stream)` returns a cudaError_t as an int. A failed stream rejects further work, so
  /// its first error is the one reported.
  template <typename Start>
  Status enqueue(Stream& stream, std::string_view doing, Start&& start) {
    EGT_TRY(begin_held(stream));
    return put(stream, doing, std::forward<Start>(start));
  }
  /// The same, but never held back.
  template <typename Start>
  Status put(Stream& any, std::string_view doing, Start&& start) {
    CudaStream& stream = as_cuda(any);
    EGT_TRY(stream.first_error());
    EGT_TRY(select_cuda_device(index_));
    return stream.keep(cuda_status(static_cast<cudaError_t>(start(stream)), doing));
  }
  Status begin_held(Stream& stream) {
    if (!hold_.is_allowed()) return {};
    return put(stream, "hold work back", [this](CudaStream& s) { return hold_.begin(launch_on(s)); });
  }

  const int index_;
  const DeviceInfo info_;
  const bool overlaps_ = kernels::can_start_early();  // the device is the thread's current one
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
  return put(stream, "record an event",
             [&](CudaStream& s) { return cudaEventRecord(as_cuda(event).native(), s.native()); });
}

Status CudaDevice::wait(Stream& stream, const Event& event) {
  return put(stream, "wait for an event",
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
                      "tell the time between two events"));
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

Status CudaDevice::copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
  EGT_TRY(check_copy(to, from, bytes));
  return enqueue(stream, "copy memory", [&](CudaStream& s) {
    return bytes == 0 ? cudaSuccess : cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s.native());
  });
}

Status CudaDevice::set_zero(void* data, std::size_t bytes, Stream& stream) {
  EGT_TRY(check_set_zero(data, bytes));
  return enqueue(stream, "clear memory", [&](CudaStream& s) {
    return bytes == 0 ? cudaSuccess : cudaMemsetAsync(data, 0, bytes, s.native());
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

Status CudaDevice::add(VectorView sum, VectorView term, Stream& stream) {
  EGT_TRY(check_add(sum, term));
  return enqueue(stream, "add vectors", [&](CudaStream& s) { return kernels::add(launch_on(s), sum, term); });
}

Status CudaDevice::gemm(const Gemm& gemm, Stream& stream) {
  if (const Support support = supports(gemm.precision); !support.yes())
    return Status(StatusCode::unsupported, support.why_not);
  EGT_TRY(check_takes_products(stream));
  EGT_TRY(check_gemm(gemm));
  if (gemm.d.count() == 0) return {};
  if (gemm.a.count() == 0)  // an empty sum: only beta applies
    return enqueue(stream, "scale a matrix",
                   [&](CudaStream& s) { return kernels::scale(launch_on(s), gemm.d, gemm.beta); });
  EGT_TRY(begin_held(stream));
  EGT_TRY(as_cuda(stream).first_error());
  EGT_TRY(select_cuda_device(index_));
  return gemms_.multiply(gemm, as_cuda(stream));
}

Status CudaDevice::quantize(const Quantization& call, Stream& stream) {
  EGT_TRY(check_quantize(call));
  return enqueue(stream, "quantize", [&](CudaStream& s) {
    return kernels::quantize(launch_on(s), call.x, call.copy, call.transposed, call.scale);
  });
}

Status CudaDevice::cast(VectorView to, VectorView from, Stream& stream) {
  EGT_TRY(check_cast(to, from));
  return enqueue(stream, "cast", [&](CudaStream& s) { return kernels::cast(launch_on(s), to, from); });
}

Status CudaDevice::randomize(VectorView out, const RandomSequence& sequence, Stream& stream) {
  EGT_TRY(check_randomize(out));
  return enqueue(stream, "randomize", [&](CudaStream& s) {
    return kernels::randomize(launch_on(s), out, sequence.seed, sequence.sequence, sequence.first,
                              sequence.scale);
  });
}

Status CudaDevice::activate(MatrixView h, const float* bias, const ExtremeTerm& extreme, Stream& stream) {
  EGT_TRY(check_activate(h, bias, extreme));
  // If work may be held back, split it so that no operation lasts much longer than a millisecond.
  constexpr std::int64_t turns_of_a_piece = 100'000'000;
  const std::int64_t turns_of_a_row = std::max<std::int64_t>(1, h.columns * extreme.iterations);
  const bool is_cut = hold_.is_allowed() && extreme.iterations > 0;
  const std::int64_t rows = is_cut ? std::max<std::int64_t>(1, turns_of_a_piece / turns_of_a_row)
                                   : std::max<std::int64_t>(1, h.rows);
  for (std::int64_t first = 0; first == 0 || first < h.rows; first += rows)
    EGT_TRY(enqueue(stream, "apply an activation", [&](CudaStream& s) {
      return kernels::activate(
          launch_on(s), h.row_range(first, std::min(rows, h.rows - first)), bias,
          {extreme.iterations, extreme.first_row, first, extreme.digest, extreme.fault, extreme.fault_turn});
    }));
  return {};
}

Status CudaDevice::verify_gemm(const Gemm& gemm, GemmMismatches* report, Stream& stream) {
  EGT_TRY(check_verify_gemm(gemm, report));
  const std::int64_t terms = gemm.a_transposed ? gemm.a.rows : gemm.a.columns;
  const GemmRounding rounding =
      GemmRounding::of(gemm.precision, gemm.d.type, terms, gemm.relu_bias.data != nullptr);
  return enqueue(stream, "verify a GEMM", [&](CudaStream& s) {
    return kernels::verify_gemm(launch_on(s),
                                {gemm.a, gemm.b, gemm.d, gemm.a_transposed, gemm.b_transposed, gemm.a_scale,
                                 gemm.b_scale, gemm.relu_bias},
                                rounding, report);
  });
}

Status CudaDevice::activation_gradient(MatrixView gradient, MatrixView h, VectorView bias_gradient,
                                       Stream& stream) {
  EGT_TRY(check_takes_products(stream));
  EGT_TRY(check_activation_gradient(gradient, h, bias_gradient));
  EGT_TRY(check_column_sums(gradient));
  return enqueue(stream, "compute an activation's gradient", [&](CudaStream& s) {
    return kernels::activation_gradient(launch_on(s), gradient, h, bias_gradient);
  });
}

Status CudaDevice::loss_gradient(const LossGradient& call, Stream& stream) {
  EGT_TRY(check_takes_products(stream));
  EGT_TRY(check_loss_gradient(call));
  EGT_TRY(check_column_sums(call.z));
  const kernels::LossArguments arguments{
      call.z, call.x, call.bias, call.target_seed, call.gradient_scale, call.bias_gradient, call.loss};
  return enqueue(stream, "compute the loss",
                 [&](CudaStream& s) { return kernels::loss_gradient(launch_on(s), arguments); });
}

Status CudaDevice::softmax_loss(const SoftmaxLoss& call, Stream& stream) {
  EGT_TRY(check_softmax_loss(call));
  const kernels::SoftmaxArguments arguments{call.logits,         call.labels, call.first_label,
                                            call.gradient_scale, call.losses, call.larger};
  return enqueue(stream, "compute the loss of a softmax",
                 [&](CudaStream& s) { return kernels::softmax_loss(launch_on(s), arguments); });
}

Status CudaDevice::sgd_step(const ParameterRange& range, float* velocity, const math::Sgd& rule,
                            Stream& stream) {
  EGT_TRY(check_sgd_step(range, velocity, rule));
  return enqueue(stream, "update weights", [&](CudaStream& s) {
    return kernels::sgd_step(launch_on(s), range.weights, range.gradient, range.compute_copy, velocity, rule);
  });
}

Status CudaDevice::adam_step(const ParameterRange& range, float* first, float* second, const math::Adam& rule,
                             Stream& stream) {
  EGT_TRY(check_adam_step(range, first, second));
  return enqueue(stream, "update weights", [&](CudaStream& s) {
    return kernels::adam_step(launch_on(s), range.weights, range.gradient, range.compute_copy, first, second,
                              rule);
  });
}

Status CudaDevice::select_top_k(const TopKSelection& call, Stream& stream) {
  EGT_TRY(check_select_top_k(call));
  return enqueue(stream, "select the largest",
                 [&](CudaStream& s) { return kernels::select_top_k(launch_on(s), call); });
}

Status CudaDevice::scatter_add(VectorView sum, SparseView elements, Stream& stream) {
  EGT_TRY(check_scatter_add(sum, elements));
  return enqueue(stream, "add sparse elements",
                 [&](CudaStream& s) { return kernels::scatter_add(launch_on(s), sum, elements); });
}

Status CudaDevice::fill(WordsView words, const Pattern& pattern, Stream& stream) {
  EGT_TRY(check_fill(words));
  return enqueue(stream, "fill memory",
                 [&](CudaStream& s) { return kernels::fill(launch_on(s), words, pattern); });
}

Status CudaDevice::reset(Mismatches* report, Stream& stream) {
  EGT_TRY(check_reset(report));
  return enqueue(stream, "reset a report",
                 [&](CudaStream& s) { return kernels::reset(launch_on(s), report); });
}

Status CudaDevice::verify(WordsView words, const Pattern& expected, Mismatches* report, Stream& stream) {
  EGT_TRY(check_verify(words, report));
  return enqueue(stream, "verify memory",
                 [&](CudaStream& s) { return kernels::verify(launch_on(s), words, expected, report); });
}

Status CudaDevice::verify_sum(VectorView sum, const void* terms, int count, Mismatches* report,
                              Stream& stream) {
  EGT_TRY(check_verify_sum(sum, terms, count, report));
  return enqueue(stream, "verify a sum",
                 [&](CudaStream& s) { return kernels::verify_sum(launch_on(s), sum, terms, count, report); });
}

Status CudaDevice::verify_and_fill(WordsView words, const Pattern& expected, const Pattern& next,
                                   Direction direction, Mismatches* report, Stream& stream) {
  EGT_TRY(check_verify(words, report));
  return enqueue(stream, "verify and fill memory", [&](CudaStream& s) {
    return kernels::verify_and_fill(launch_on(s), words, expected, next, direction == Direction::descending,
                                    report);
  });
}

Status CudaDevice::digest(WordsView words, Digest* digest, Stream& stream) {
  EGT_TRY(check_digest(words, digest));
  return enqueue(stream, "digest memory",
                 [&](CudaStream& s) { return kernels::digest(launch_on(s), words, digest); });
}

Status CudaDevice::sum(WordsView words, Digest* sums, Stream& stream) {
  EGT_TRY(check_sum(words, sums));
  return enqueue(stream, "sum memory",
                 [&](CudaStream& s) { return kernels::sum(launch_on(s), words, sums); });
}

Status CudaDevice::sine_exponential(WordsView words, int iterations, Digest* digest, Stream& stream) {
  EGT_TRY(check_sine_exponential(words, iterations, digest));
  return enqueue(stream, "compute sines and exponentials", [&](CudaStream& s) {
    return kernels::sine_exponential(launch_on(s), words, iterations, digest);
  });
}

Status CudaDevice::flip(WordsView words, const Flip& flip, Stream& stream) {
  EGT_TRY(check_flip(words, flip));
  return enqueue(stream, "inject wrong words",
                 [&](CudaStream& s) { return kernels::flip(launch_on(s), words, flip); });
}

Status CudaDevice::voxelize(const Voxelization& call, Stream& stream) {
  EGT_TRY(check_voxelize(call));
  const kernels::VoxelizeArguments arguments{call.grid,     call.points, call.count,  call.occupancy,
                                             call.features, call.counts, call.scratch};
  return enqueue(stream, "voxelize points",
                 [&](CudaStream& s) { return kernels::voxelize(launch_on(s), arguments); });
}

Status CudaDevice::fuse(const StreamFusion& call, Stream& stream) {
  EGT_TRY(check_fuse(call));
  const kernels::FuseArguments arguments{call.shape, call.times,   call.values, call.timeline,
                                         call.fused, call.dropped, call.scratch};
  return enqueue(stream, "fuse streams",
                 [&](CudaStream& s) { return kernels::fuse(launch_on(s), arguments); });
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device(int index) {
  EGT_TRY_ASSIGN(CudaDeviceInfo found, inspect_cuda_device(index));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(index, std::move(found)));
}

}  // namespace egt
