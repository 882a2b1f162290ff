#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "egt/core/digest.hpp"
#include "egt/core/flip.hpp"
#include "egt/core/math/gemm_rounding.hpp"
#include "egt/core/math/math.hpp"
#include "egt/core/math/sparse.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "egt/core/view.hpp"
#include "egt/device/handles.hpp"
#include "egt/device/stream_fusion.hpp"
#include "egt/device/voxelization.hpp"

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
  /// On the host: memory of this rank's share that other processes use, so this rank can neither use nor
  /// allocate it. On a GPU 0: memory of any process counts as used.
  std::uint64_t others_bytes = 0;

  std::uint64_t used_bytes() const { return total_bytes - std::min(total_bytes, free_bytes + others_bytes); }
};

/// d = alpha op(a) op(b) + beta d, row-major; op(x) is x, or its transpose if `*_transposed`. op(a): m x k,
/// op(b): k x n, d: m x n. a and b have type storage_type(precision); d has that type, or
/// sum_type(precision), the accumulator type. Bit-for-bit repeatable on one device model. fp8 and int8
/// require a as it is, b transposed, alpha 1, beta 0, and m, n and k in multiples of 16. Their d has
/// sum_type; for fp8 also bf16. int8 is exact while its sums are below 2^31.
struct Gemm {
  Precision precision = Precision::fp32;
  MatrixView a;
  MatrixView b;
  MatrixView d;
  bool a_transposed = false;
  bool b_transposed = false;
  double alpha = 1.0;
  double beta = 0.0;
  /// fp8: device memory with the scale factors of a's and b's elements (see Quantization), aligned to
  /// scale_alignment bytes; null: 1.
  static constexpr std::size_t scale_alignment = 16;
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
  /// Bias of a layer, one element per column, of d's type, aligned to bias_alignment bytes: d = max(op(a)
  /// op(b) + bias, 0), rounded once or twice. No data: a plain GEMM. Only for f32, f16 and bf16, with alpha 1
  /// and beta 0. The library decides if a NaN stays or becomes 0; to see it, run the GEMM without bias.
  static constexpr std::size_t bias_alignment = 16;
  VectorView relu_bias = {};
};

/// Quantizes x to 8 bits: each element times 2^e, rounded to nearest even. e is the max of -60 .. 60 with
/// which the max magnitude of x still fits (Micikevicius et al., "FP8 formats for deep learning", 2022, with
/// a power of two as the scale, so that scaling rounds nothing). If x has NaN or infinity, `scale` is NaN,
/// and so is every GEMM that uses it.
struct Quantization {
  MatrixView x;            ///< f32 or bf16
  MatrixView copy;         ///< quantized x, f8 or f8_e5m2; no memory: not requested
  MatrixView transposed;   ///< x's columns x rows, of the same type; no memory: not requested
  float* scale = nullptr;  ///< one fp32 in device memory, set to 2^-e
};

/// Uniform random numbers. Element i is scale * signed_unit(word (first + i) % 4 of philox4x32_10(counter
/// (first + i) / 4 and `sequence`, key `seed`)), rounded to the element's type.
struct RandomSequence {
  std::uint64_t seed = 0;
  std::uint64_t sequence = 0;  ///< upper half of the counter: one per purpose or step
  std::uint64_t first = 0;     ///< index of the first element in the sequence
  float scale = 1.0f;
};

/// The end of the forward and the start of the backward pass. o = z + bias; y_j = target_offset(j) + sum over
/// taps of weight * x[tap input]. z becomes (o - y) * gradient_scale. `loss` becomes the sum over all
/// elements of (o - y)^2, not scaled. bias_gradient_j becomes the column sum of the new z.
struct LossGradient {
  MatrixView z;                 ///< batch x outputs; in: GEMM result of the last layer; out: its gradient
  MatrixView x;                 ///< batch x inputs, same type
  const float* bias = nullptr;  ///< outputs
  std::uint64_t target_seed = 0;
  float gradient_scale = 1.0f;  ///< loss scale / global batch
  VectorView bias_gradient;     ///< outputs, f32 or bf16
  float* loss = nullptr;        ///< one fp32 in device memory, overwritten
};

/// Softmax with cross entropy. Each row of logits has a label: the column that should have the max logit. If
/// the label is not one of its columns, the row gets NaN as its loss and in all its gradient, and `larger`
/// its number of columns. A NaN counts as larger than the label's logit. If that is NaN, all columns count.
struct SoftmaxLoss {
  /// f32 or bf16, one or more columns, rows and columns below 2^31. In: logits. Out: (softmax -
  /// one_hot(label)) * gradient_scale, computed in fp32; unchanged if gradient_scale is 0.
  MatrixView logits;
  const std::int32_t* labels = nullptr;  ///< device memory, one per row; null: first_label + row
  std::int64_t first_label = 0;          ///< only without `labels`
  float gradient_scale = 0.0f;
  /// Device memory, one fp32 per row: -log softmax at the label; null: not requested.
  float* losses = nullptr;
  /// Device memory, one per row: number of logits that are larger than the label's, or equal and in an
  /// earlier column. 0: the label is the best match. Null: not requested.
  std::int32_t* larger = nullptr;
};

/// The transcendental chains of an activation.
struct ExtremeTerm {
  int iterations = 0;          ///< of each element's chain; 0: none, a plain ReLU
  std::int64_t first_row = 0;  ///< of h in the matrix whose positions give the chains their phases
  Digest* digest = nullptr;    ///< device memory, set to the digest of all chains' bits; null: not requested
  Flip fault = {.count = 0};   ///< injected: bits that flip in these elements' chains, in iteration
                               ///< `fault_turn`; only with a digest; `keep` is not used
  int fault_turn = 0;          ///< from 0
};

/// One contiguous range of parameters. `compute_copy` receives the new weights in its type; data == nullptr:
/// no copy is kept.
struct ParameterRange {
  float* weights = nullptr;  ///< fp32 master weights
  VectorView gradient;       ///< f32 or bf16
  VectorView compute_copy;   ///< f64, f16, bf16 or none
  std::int64_t count = 0;
};

/// Order in which an operation traverses memory; on a GPU, order of the waves of thread blocks.
enum class Direction { ascending, descending };

/// The port to a compute device. Calls with a Stream enqueue work and return at once. A failure of that work
/// is returned by the next `done` or `synchronize` of that stream. Only `allocate*`, `create_*` and
/// `synchronize` may block. Pointers are device memory unless noted. Reductions within an operation have a
/// fixed order, so the same call gives the same bits every time. Invalid arguments are rejected at once with
/// invalid_argument (arguments.hpp). Thread-safe if each thread uses its own Stream.
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
  /// Work enqueued in `stream` after this call starts only after `event`, as last recorded, is reached.
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

  /// Copies between device and device memory, or between device and pinned host memory in either direction.
  virtual Status copy(void* to, const void* from, std::size_t bytes, Stream& stream) = 0;
  virtual Status set_zero(void* data, std::size_t bytes, Stream& stream) = 0;

  // Operations that are enqueued repeatedly
  /// Captures the work that `enqueue` puts in `stream` (only there, without events), to be enqueued later
  /// with less host time. Nothing runs yet. Addresses and parameters are fixed; memory is read again each
  /// time. `enqueue` may be called again later, so everything that it uses must outlive the captured work.
  /// Its failure is returned here or then. The operations must have run once before, because libraries load
  /// code at the first call.
  virtual Result<std::unique_ptr<CapturedWork>> capture(Stream& stream, std::function<Status()> enqueue) = 0;
  virtual Status enqueue_captured(CapturedWork& work, Stream& stream) = 0;

  // Holding work back, for a pulsed load
  /// Enables `hold` for work that is enqueued from now on; costs a GPU's streams some microseconds per
  /// operation. Call it before other calls that use a stream.
  virtual Status allow_holds() = 0;
  /// true: operations that have not started wait in every stream until hold(false); running ones finish
  /// within some milliseconds. Work that is held longer than `longest_hold_seconds` continues, and `done` and
  /// `synchronize` fail with timeout until `forget_failure`. Returns at once. Any thread.
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
  /// Writes `number` after all earlier work of the stream is done; a reader that sees it sees all writes of
  /// that work, in any memory. As `await_signal`: for registered memory, uses no multiprocessor, is never
  /// held.
  virtual Status write_signal(std::uint32_t* signal, std::uint32_t number, Stream& stream) = 0;
  /// Later work of the stream starts when the signal is `number` or a later one, less than 2^31 ahead. It has
  /// no deadline: a caller whose signal may not come must write it. A stream that ends does not wait forever.
  virtual Status await_signal(const std::uint32_t* signal, std::uint32_t number, Stream& stream) = 0;
  /// sum = math::add(sum, term) per element; f32 or bf16, the same type and count, not overlapping.
  virtual Status add(VectorView sum, VectorView term, Stream& stream) = 0;

  // Training
  virtual Status gemm(const Gemm& gemm, Stream& stream) = 0;
  /// Computes the GEMM again in fp64 with the adapter's own code. Adds each element of d that GemmRounding
  /// does not allow to *report (device memory, zeroed before). For alpha 1 and beta 0; the operands must be
  /// unchanged since the GEMM.
  virtual Status verify_gemm(const Gemm& gemm, GemmMismatches* report, Stream& stream) = 0;
  virtual Status quantize(const Quantization& call, Stream& stream) = 0;
  /// to = from, converted between any two types (round to nearest even); equal counts.
  virtual Status cast(VectorView to, VectorView from, Stream& stream) = 0;
  virtual Status randomize(VectorView out, const RandomSequence& sequence, Stream& stream) = 0;
  /// In place: h = math::activation(h + bias), bias per column. With iterations: math::extreme_activation(h +
  /// bias), with the phase of position (first_row + row) * columns + column.
  virtual Status activate(MatrixView h, const float* bias, const ExtremeTerm& extreme, Stream& stream) = 0;
  /// In place: gradient = math::activation_gradient(gradient, h); bias_gradient = its column sums (f32 or
  /// bf16).
  virtual Status activation_gradient(MatrixView gradient, MatrixView h, VectorView bias_gradient,
                                     Stream& stream) = 0;
  virtual Status loss_gradient(const LossGradient& call, Stream& stream) = 0;
  virtual Status softmax_loss(const SoftmaxLoss& call, Stream& stream) = 0;
  /// velocity: fp32, count of the range. null: no velocity is kept, so the rule's momentum must be 0.
  virtual Status sgd_step(const ParameterRange& range, float* velocity, const math::Sgd& rule,
                          Stream& stream) = 0;
  /// first, second: fp32 moments, count of the range.
  virtual Status adam_step(const ParameterRange& range, float* first, float* second, const math::Adam& rule,
                           Stream& stream) = 0;

  virtual Status select_top_k(const TopKSelection& call, Stream& stream) = 0;
  /// sum[e.index] = math::add(sum[e.index], e.value) for each element e; sum: f32, below 2^32 elements.
  /// Out-of-range indices, as in corrupted data, are skipped.
  virtual Status scatter_add(VectorView sum, SparseView elements, Stream& stream) = 0;

  // Patterns and checks
  virtual Status fill(WordsView words, const Pattern& pattern, Stream& stream) = 0;
  /// *report = Mismatches::none().
  virtual Status reset(Mismatches* report, Stream& stream) = 0;
  /// Adds every word that differs from the pattern, or was not compared, to *report (device memory, reset
  /// before).
  virtual Status verify(WordsView words, const Pattern& expected, Mismatches* report, Stream& stream) = 0;
  /// As `verify`; each word is then rewritten with the next pattern, in the same pass over memory.
  virtual Status verify_and_fill(WordsView words, const Pattern& expected, const Pattern& next,
                                 Direction direction, Mismatches* report, Stream& stream) = 0;
  /// Adds every element of `sum` that is not a valid sum of the `count` terms to *report, see
  /// math::SumOfTerms; f32 or bf16, below 2^32 elements. `terms`: consecutive vectors of sum's type and
  /// count, not overlapping it. A sample's words are an element's bits.
  virtual Status verify_sum(VectorView sum, const void* terms, int count, Mismatches* report,
                            Stream& stream) = 0;
  /// *digest (device memory) = the digest of the words.
  virtual Status digest(WordsView words, Digest* digest, Stream& stream) = 0;
  /// *sums (device memory) = {the sum of the words, 0}: as close to a plain read as a result allows.
  virtual Status sum(WordsView words, Digest* sums, Stream& stream) = 0;
  /// *digest = the digest of math::sine_exponential(word as fp32, iterations) of every word; words are kept.
  virtual Status sine_exponential(WordsView words, int iterations, Digest* digest, Stream& stream) = 0;
  /// Injects a fault into words: see Flip. Words hit twice are changed twice.
  virtual Status flip(WordsView words, const Flip& flip, Stream& stream) = 0;

  // Robotics
  /// Bit-for-bit equal for any order of the points, and on every device.
  virtual Status voxelize(const Voxelization& call, Stream& stream) = 0;
  /// Bit-for-bit equal on every device.
  virtual Status fuse(const StreamFusion& call, Stream& stream) = 0;
};

}  // namespace egt
