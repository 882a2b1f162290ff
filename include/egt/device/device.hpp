#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "egt/core/operations.hpp"
#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "egt/device/handles.hpp"

namespace egt {

/// Properties of a device. Unknown strings are empty.
struct DeviceInfo {
  std::string backend;  ///< "cuda" or "host"
  int index = 0;        ///< as the adapter counts (CUDA's order, or the local rank on the host)
  std::string name;     ///< "NVIDIA H200"; on the host the CPU model
  std::string uuid;
  std::string pci_bus_id;          ///< "00000000:18:00.0"
  std::string compute_capability;  ///< "9.0"
  std::uint64_t memory_total_bytes = 0;
  int multiprocessors = 0;  ///< on the host: cores of this rank
  int numa_node = -1;
  std::string libraries;  ///< versions of the compute libraries: a result's bits may depend on them
};

/// Device memory available at this moment, in bytes.
struct MemoryInfo {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  ///< can still be allocated
  /// Only on the host: memory of this rank's share that other processes use, so this rank can neither use nor
  /// allocate it. Always 0 on a GPU, where memory of any process counts as used.
  std::uint64_t others_bytes = 0;

  std::uint64_t used_bytes() const { return total_bytes - std::min(total_bytes, free_bytes + others_bytes); }
};

/// The port to a compute device. Calls with a Stream enqueue work and return at once. A failure of that work
/// is returned by the next `done` or `synchronize` of that stream. Only `allocate*`, `create_*` and
/// `synchronize` may block. Thread-safe if each thread uses its own Stream.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual Support supports(Precision precision) const = 0;
  virtual Result<MemoryInfo> memory() const = 0;

  /// Uninitialized device memory, 256-byte aligned. Fails with out_of_memory; 0 bytes is allowed.
  virtual Result<Buffer> allocate(std::size_t bytes) = 0;
  /// Page-locked host memory, 4096-byte aligned, for copies at full speed; the host may read and write it.
  virtual Result<Buffer> allocate_pinned(std::size_t bytes) = 0;
  /// Allocates all memory of the stream. Operations that `use` excludes are rejected with invalid_argument.
  virtual Result<std::unique_ptr<Stream>> create_stream(StreamPriority priority,
                                                        StreamUse use = StreamUse::all) = 0;
  virtual Result<std::unique_ptr<Event>> create_event(EventUse use) = 0;

  virtual Status record(Event& event, Stream& stream) = 0;
  /// Work enqueued in `stream` after this call starts only after the last recording of `event` is reached.
  virtual Status wait(Stream& stream, const Event& event) = 0;
  /// True if the event is reached or was never recorded. Returns a failure of the work before it.
  virtual Result<bool> done(const Event& event) = 0;
  /// Milliseconds between two reached events, both created for timing.
  virtual Result<double> elapsed_ms(const Event& from, const Event& to) = 0;
  /// Milliseconds that the device worked for the stream between two reached events of it, both created for
  /// timing. On a GPU, which has no other user, this equals elapsed_ms. On the host it is the CPU time of the
  /// stream's thread, without waits and without the core time of other processes.
  virtual Result<double> busy_ms(const Event& from, const Event& to) = 0;
  /// Waits up to `timeout_seconds` for all work of `stream`.
  virtual Status synchronize(Stream& stream, double timeout_seconds) = 0;
  /// For a stream whose work was aborted: waits up to `timeout_seconds` until nothing is enqueued, and clears
  /// the failure. Data that this work wrote is invalid. An error means that the device has failed.
  virtual Status forget_failure(Stream& stream, double timeout_seconds) = 0;

  /// Enqueues one operation. Invalid arguments are rejected at once with invalid_argument (arguments.cpp).
  Status enqueue(const Operation& operation, Stream& stream);

  // Operations that are enqueued repeatedly
  /// Captures the work that `enqueue` enqueues in `stream` (only there, without events), to be enqueued later
  /// with less host time. Nothing runs yet. Addresses and parameters are fixed; memory is read again each
  /// time. `enqueue` may be called again later, so everything that it uses must outlive the captured work.
  /// This call or enqueue_captured returns its failure. The operations must have run once before, because
  /// libraries load code at the first call.
  virtual Result<std::unique_ptr<CapturedWork>> capture(Stream& stream, std::function<Status()> enqueue) = 0;
  virtual Status enqueue_captured(CapturedWork& work, Stream& stream) = 0;

  // Holding work back, for a pulsed load
  /// Enables `hold` for work that is enqueued from now on; costs a GPU's streams some microseconds per
  /// operation. Call it before other calls that use a stream.
  virtual Status allow_holds() = 0;
  /// true: operations that have not started wait in every stream until hold(false). Running ones finish
  /// within some milliseconds. After `longest_hold_seconds` the work continues, and `done` and `synchronize`
  /// fail with timeout until `forget_failure`. Returns at once. Any thread.
  virtual void hold(bool is_held) = 0;
  static constexpr double longest_hold_seconds = 60;

  // Memory shared by processes of one node
  /// As `allocate`, but with at least 1 byte, and other processes of this node may open it. Its buffer may be
  /// released only after every other process has released its mapping.
  virtual Result<SharedBuffer> allocate_shared(std::size_t bytes) = 0;
  /// Maps a whole allocation of another process of this node, or of this one, for `copy` and the other
  /// operations of this device. Release it before its owner frees it. unavailable: the owner has freed it or
  /// exited, is on another node or in another container, or the system denies access. unsupported: the two
  /// devices cannot access each other's memory.
  virtual Result<Buffer> open_shared(const std::string& handle) = 0;
  /// Lets this device's streams write and await signals in page-aligned host memory, which other processes
  /// may map. Valid until the buffer is released, before that memory is freed. unsupported: no driver
  /// support.
  virtual Result<Buffer> register_signals(void* pages, std::size_t bytes) = 0;

  // Shorthands of `enqueue`
  Status copy(void* to, const void* from, std::size_t bytes, Stream& s) {
    return enqueue(Copy{to, from, bytes}, s);
  }
  Status set_zero(void* data, std::size_t bytes, Stream& s) { return enqueue(SetZero{data, bytes}, s); }
  Status write_signal(std::uint32_t* signal, std::uint32_t number, Stream& s) {
    return enqueue(WriteSignal{signal, number}, s);
  }
  Status await_signal(const std::uint32_t* signal, std::uint32_t number, Stream& s) {
    return enqueue(AwaitSignal{signal, number}, s);
  }
  Status add(VectorView sum, VectorView term, Stream& s) { return enqueue(Add{sum, term}, s); }
  Status gemm(const Gemm& call, Stream& s) { return enqueue(call, s); }
  Status verify_gemm(const Gemm& gemm, GemmMismatches* report, Stream& s) {
    return enqueue(VerifyGemm{gemm, report}, s);
  }
  Status verify_exact_gemm(const Gemm& gemm, int granule, GemmMismatches* report, Stream& s) {
    return enqueue(VerifyExactGemm{gemm, granule, report}, s);
  }
  Status quantize(const Quantization& call, Stream& s) { return enqueue(call, s); }
  Status cast(VectorView to, VectorView from, Stream& s) { return enqueue(Cast{to, from}, s); }
  Status randomize(VectorView out, const RandomSequence& sequence, Stream& s) {
    return enqueue(Randomize{out, sequence}, s);
  }
  Status activate(MatrixView h, const float* bias, const ExtremeTerm& extreme, Stream& s) {
    return enqueue(Activation{h, bias, extreme}, s);
  }
  Status activation_gradient(MatrixView gradient, MatrixView h, VectorView bias_gradient, Stream& s) {
    return enqueue(ActivationGradient{gradient, h, bias_gradient}, s);
  }
  Status loss_gradient(const LossGradient& call, Stream& s) { return enqueue(call, s); }
  Status softmax_loss(const SoftmaxLoss& call, Stream& s) { return enqueue(call, s); }
  Status sgd_step(const ParameterRange& range, float* velocity, const math::Sgd& rule, Stream& s) {
    return enqueue(OptimizerStep{range, velocity, nullptr, rule}, s);
  }
  Status adam_step(const ParameterRange& range, float* first, float* second, const math::Adam& rule,
                   Stream& s) {
    return enqueue(OptimizerStep{range, first, second, rule}, s);
  }
  Status select_top_k(const TopKSelection& call, Stream& s) { return enqueue(call, s); }
  Status scatter_add(VectorView sum, SparseView elements, Stream& s) {
    return enqueue(ScatterAdd{sum, elements}, s);
  }
  Status fill(WordsView words, const Pattern& pattern, Stream& s) { return enqueue(Fill{words, pattern}, s); }
  Status reset(Mismatches* report, Stream& s) { return enqueue(Reset{report}, s); }
  Status verify(WordsView words, const Pattern& expected, Mismatches* report, Stream& s,
                const Flip& miscomputed = {.count = 0}) {
    return enqueue(Verify{words, expected, report, miscomputed}, s);
  }
  Status verify_and_fill(WordsView words, const Pattern& expected, const Pattern& next, Direction direction,
                         Mismatches* report, Stream& s) {
    return enqueue(VerifyAndFill{words, expected, next, direction, report}, s);
  }
  Status verify_sum(VectorView sum, const void* terms, int count, Mismatches* report, Stream& s) {
    return enqueue(VerifySum{sum, terms, count, report}, s);
  }
  Status digest(WordsView words, Digest* digest, Stream& s) { return enqueue(DigestWords{words, digest}, s); }
  Status sum(WordsView words, Digest* sums, Stream& s) { return enqueue(SumWords{words, sums}, s); }
  Status sine_exponential(WordsView words, int iterations, Digest* digest, Stream& s) {
    return enqueue(SineExponential{words, iterations, digest}, s);
  }
  Status vote(const UnitVote& call, Stream& s) { return enqueue(call, s); }
  Status flip(WordsView words, const Flip& flip, Stream& s) { return enqueue(FlipWords{words, flip}, s); }
  Status voxelize(const Voxelization& call, Stream& s) { return enqueue(call, s); }
  Status fuse(const StreamFusion& call, Stream& s) { return enqueue(call, s); }

 protected:
  /// Enqueues an operation with valid arguments.
  virtual Status enqueue_checked(const Operation& operation, Stream& stream) = 0;
};

}  // namespace egt
