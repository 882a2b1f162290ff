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

/// What a device is. A string that is not known is empty.
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
  std::string libraries;  ///< versions of what computes: a result's bits may depend on them
};

/// What device memory is left at this moment, bytes.
struct MemoryInfo {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  ///< that can still be taken
  /// On the host: what can be neither taken nor is taken by this rank, of its share: other processes have it.
  /// On a GPU 0: whoever takes memory, it is used.
  std::uint64_t others_bytes = 0;

  std::uint64_t used_bytes() const { return total_bytes - std::min(total_bytes, free_bytes + others_bytes); }
};

/// d = alpha op(a) op(b) + beta d, row-major; op(x) is x or, where `*_transposed`, its transpose.
/// op(a): m x k, op(b): k x n, d: m x n. a and b lie as storage_type(precision); d too, or as
/// sum_type(precision), in which sums are kept. Bit-for-bit repeatable on one device model. fp8 and int8: a
/// as it is and b transposed, alpha 1 and beta 0; m, n and k are multiples of 16; d as sum_type, of fp8 also
/// as bf16. int8 is exact while its sums are below 2^31.
struct Gemm {
  Precision precision = Precision::fp32;
  MatrixView a;
  MatrixView b;
  MatrixView d;
  bool a_transposed = false;
  bool b_transposed = false;
  double alpha = 1.0;
  double beta = 0.0;
  /// fp8: device memory, what a's and b's elements are to be multiplied with (Quantization), at a multiple of
  /// scale_alignment; null: 1.
  static constexpr std::size_t scale_alignment = 16;
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
  /// A layer's bias, one element a column and of d's type, at a multiple of bias_alignment: d = max(op(a)
  /// op(b) + bias, 0), rounded once or twice; no data: a plain product. f32, f16 and bf16 alone, with alpha 1
  /// and beta 0. What becomes of a NaN is the library's choice, NaN or 0, so that who must see it makes the
  /// product by itself.
  static constexpr std::size_t bias_alignment = 16;
  VectorView relu_bias = {};
};

/// x as numbers of 8 bits: each element times 2^e, rounded to nearest even, with the largest e of -60 .. 60
/// with which the largest magnitude of x still fits (Micikevicius et al., "FP8 formats for deep learning",
/// 2022, with a power of two as the scale, so that scaling rounds nothing). Where x has NaN or infinity
/// `scale` is NaN, and so is every product with it.
struct Quantization {
  MatrixView x;            ///< f32 or bf16
  MatrixView copy;         ///< as x, f8 or f8_e5m2; no memory: not wanted
  MatrixView transposed;   ///< x's columns x rows, of that type too; no memory: not wanted
  float* scale = nullptr;  ///< one fp32 in device memory: becomes 2^-e
};

/// Uniform numbers: element i is scale * signed_unit(word (first + i) % 4 of philox4x32_10(counter (first +
/// i) / 4 and `sequence`, key `seed`)), rounded to the element's type.
struct RandomSequence {
  std::uint64_t seed = 0;
  std::uint64_t sequence = 0;  ///< upper half of the counter: one a purpose or step
  std::uint64_t first = 0;     ///< index of the first element in the sequence
  float scale = 1.0f;
};

/// The end of forward and the start of backward: o = z + bias; y_j = target_offset(j) + sum over taps of
/// weight * x[tap input]; z becomes (o - y) * gradient_scale; `loss` becomes the sum over all elements of (o
/// - y)^2 (not scaled); bias_gradient_j becomes the column sum of the new z.
struct LossGradient {
  MatrixView z;                 ///< batch x outputs, in: products of the last layer; out: their gradient
  MatrixView x;                 ///< batch x inputs, same type
  const float* bias = nullptr;  ///< outputs
  std::uint64_t target_seed = 0;
  float gradient_scale = 1.0f;  ///< loss scale / global batch
  VectorView bias_gradient;     ///< outputs, f32 or bf16
  float* loss = nullptr;        ///< one fp32 in device memory, overwritten
};

/// Softmax with cross entropy, each row of logits with a label: the column that is to be the largest. A row
/// whose label is no column of it gets NaN as its loss and in all its gradient, and `larger` its number of
/// columns. A NaN counts as larger than the label's logit; where that is NaN all columns count.
struct SoftmaxLoss {
  /// f32 or bf16, at least one column, rows and columns below 2^31. In: logits; out, unless gradient_scale is
  /// 0: (softmax - 1 at the label, 0 elsewhere) * gradient_scale, computed in fp32; else they stay.
  MatrixView logits;
  const std::int32_t* labels = nullptr;  ///< device memory, one a row; null: of row r first_label + r
  std::int64_t first_label = 0;          ///< only without `labels`
  float gradient_scale = 0.0f;
  /// Device memory, one fp32 a row: -log softmax at the label; null: not wanted.
  float* losses = nullptr;
  /// Device memory, one a row: the logits larger than the label's, or equal and in an earlier column. 0: the
  /// label is the best match. Null: not wanted.
  std::int32_t* larger = nullptr;
};

/// The extreme term of an activation.
struct ExtremeTerm {
  int iterations = 0;          ///< turns of each element's chain; 0: none, a plain ReLU
  std::int64_t first_row = 0;  ///< of h in the matrix whose places give the chains their phases
  Digest* digest = nullptr;    ///< device memory: becomes the digest of all chains' bits; null: not wanted
  Flip fault = {.count = 0};   ///< on purpose: bits of these elements' chains that flip, in `fault_turn`.
                               ///< Only with a digest; `keep` is not used
  int fault_turn = 0;          ///< from 0
};

/// One flat range of parameters. `compute_copy` receives the new weights in its type; data == nullptr: none
/// is kept.
struct ParameterRange {
  float* weights = nullptr;  ///< fp32 master weights
  VectorView gradient;       ///< f32 or bf16
  VectorView compute_copy;   ///< f64, f16, bf16 or none
  std::int64_t count = 0;
};

/// The order in which an operation goes through memory; on a GPU, of the waves of threads.
enum class Direction { ascending, descending };

/// The port to a device that computes. Calls that take a Stream enqueue work and return at once; the
/// work's own failure shows at the next `done` or `synchronize` of that stream. Only `allocate*`, `create_*`
/// and `synchronize` may take time. Pointers are device memory except where said. Sums within an operation
/// are made in a fixed order, so the same call gives the same bits every time. Arguments that do not fit are
/// refused at once with invalid_argument (arguments.hpp). Safe from several threads as long as each uses its
/// own Stream.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual Support supports(Precision precision) const = 0;
  virtual Result<MemoryInfo> memory() const = 0;

  /// Uninitialized memory of the device, 256-byte aligned. out_of_memory when it cannot; 0 bytes is allowed.
  virtual Result<Buffer> allocate(std::size_t bytes) = 0;
  /// Page-locked host memory, 4096-byte aligned, that copies at full speed; the host may read and write it.
  virtual Result<Buffer> allocate_pinned(std::size_t bytes) = 0;
  /// What the stream needs is taken here, not by its work: an operation that it is not for is refused with
  /// invalid_argument.
  virtual Result<std::unique_ptr<Stream>> create_stream(StreamPriority priority,
                                                        StreamUse use = StreamUse::all) = 0;
  virtual Result<std::unique_ptr<Event>> create_event(EventUse use) = 0;

  virtual Status record(Event& event, Stream& stream) = 0;
  /// Work put in `stream` after this starts only when `event`, as last recorded, is reached.
  virtual Status wait(Stream& stream, const Event& event) = 0;
  /// Has it been reached? An event never recorded is. Relays a failure of the work before it.
  virtual Result<bool> done(const Event& event) = 0;
  /// Milliseconds between two reached events, both made for timing.
  virtual Result<double> elapsed_ms(const Event& from, const Event& to) = 0;
  /// Milliseconds that the device worked for the stream between two reached events of it, both made for
  /// timing. On a GPU, which has no other master, the same as elapsed_ms; on the host the CPU time of the
  /// stream's thread: what it waited, and what other processes took of its cores, is left out.
  virtual Result<double> busy_ms(const Event& from, const Event& to) = 0;
  /// Waits for all work of `stream`, at most `timeout_seconds`.
  virtual Status synchronize(Stream& stream, double timeout_seconds) = 0;
  /// For a stream whose work was given up: waits until nothing is enqueued, at most `timeout_seconds`, and
  /// forgets that it failed; what it wrote is not to be trusted. An error: the device itself has failed.
  virtual Status forget_failure(Stream& stream, double timeout_seconds) = 0;

  /// Between device and device, or device and pinned host memory, either way.
  virtual Status copy(void* to, const void* from, std::size_t bytes, Stream& stream) = 0;
  virtual Status set_zero(void* data, std::size_t bytes, Stream& stream) = 0;

  // Operations that are enqueued again and again
  /// What `enqueue` puts in `stream` and nowhere else, without events, to be enqueued at once for less of the
  /// host's time; nothing of it runs yet. Its addresses and figures stay what they are; memory is read anew
  /// each time. `enqueue` may be called again later, so what it uses outlives the captured work; its
  /// failure is relayed here or then. Such operations must have run once before: libraries load code at the
  /// first time.
  virtual Result<std::unique_ptr<CapturedWork>> capture(Stream& stream, std::function<Status()> enqueue) = 0;
  virtual Status enqueue_captured(CapturedWork& work, Stream& stream) = 0;

  // Holding work back, for a load that pulses
  /// From here on `hold` has a meaning for what is enqueued; costs a GPU's streams some microseconds an
  /// operation. Before other calls that take a stream.
  virtual Status allow_holds() = 0;
  /// True: operations that have not begun yet wait in every stream, until false is said; what runs goes on to
  /// its end, some milliseconds. Held for longer than `longest_hold_seconds` the work goes on, and `done` and
  /// `synchronize` fail with timeout until `forget_failure`. Any thread; at once.
  virtual void hold(bool is_held) = 0;
  static constexpr double longest_hold_seconds = 60;

  // Memory that processes of one host share
  /// Memory as of `allocate`, but of 1 byte at least, that other processes of this host may open. It is freed
  /// with its buffer: only once every other process has released what it opened of it.
  virtual Result<SharedBuffer> allocate_shared(std::size_t bytes) = 0;
  /// All of what another process of this host allocated, or this one, as this device sees it: for `copy`
  /// and the other operations. Released before its owner frees it. unavailable: the owner has freed it or is
  /// no more, is on another host or in another container, or the system permits it not; unsupported: the two
  /// devices cannot reach each other's memory.
  virtual Result<Buffer> open_shared(const std::string& handle) = 0;
  /// Lets this device's streams write and await signals in host memory that begins a page, also in such as
  /// other processes map; until the buffer goes, and before that memory does. unsupported: the driver cannot.
  virtual Result<Buffer> register_signals(void* pages, std::size_t bytes) = 0;
  /// Writes the number once all earlier work of the stream is done: who sees it sees what that work wrote,
  /// wherever it wrote it. Like `await_signal` for registered memory, takes no multiprocessor, is not held.
  virtual Status write_signal(std::uint32_t* signal, std::uint32_t number, Stream& stream) = 0;
  /// Later work of the stream begins when the signal is `number` or a later one, less than 2^31 ahead. Has no
  /// deadline of its own: whoever may wait in vain writes the signal himself. A stream that ends does not
  /// await it for ever.
  virtual Status await_signal(const std::uint32_t* signal, std::uint32_t number, Stream& stream) = 0;
  /// sum = math::add(sum, term), element by element: f32 or bf16, both the same, equal counts; they lie
  /// apart.
  virtual Status add(VectorView sum, VectorView term, Stream& stream) = 0;

  // Training
  virtual Status gemm(const Gemm& gemm, Stream& stream) = 0;
  /// Computes the GEMM again in fp64, by the adapter's own code, and adds to *report (device memory, zero
  /// before) each element of d that GemmRounding does not allow. For alpha 1 and beta 0; the operands are as
  /// the GEMM read them.
  virtual Status verify_gemm(const Gemm& gemm, GemmMismatches* report, Stream& stream) = 0;
  virtual Status quantize(const Quantization& call, Stream& stream) = 0;
  /// to = from, converted (round to nearest even); between any two types; equal counts.
  virtual Status cast(VectorView to, VectorView from, Stream& stream) = 0;
  virtual Status randomize(VectorView out, const RandomSequence& sequence, Stream& stream) = 0;
  /// In place: h = math::activation(h + bias), bias per column; with an extreme term
  /// math::extreme_activation(h + bias), with the phase of place (first_row + row) * columns + column.
  virtual Status activate(MatrixView h, const float* bias, const ExtremeTerm& extreme, Stream& stream) = 0;
  /// In place: gradient = math::activation_gradient(gradient, h); bias_gradient = its column sums (f32 or
  /// bf16).
  virtual Status activation_gradient(MatrixView gradient, MatrixView h, VectorView bias_gradient,
                                     Stream& stream) = 0;
  virtual Status loss_gradient(const LossGradient& call, Stream& stream) = 0;
  virtual Status softmax_loss(const SoftmaxLoss& call, Stream& stream) = 0;
  /// velocity: fp32, count of the range; null: none is kept, which the rule's momentum must then be 0 for.
  virtual Status sgd_step(const ParameterRange& range, float* velocity, const math::Sgd& rule,
                          Stream& stream) = 0;
  /// first, second: fp32 moments, count of the range.
  virtual Status adam_step(const ParameterRange& range, float* first, float* second, const math::Adam& rule,
                           Stream& stream) = 0;

  virtual Status select_top_k(const TopKSelection& call, Stream& stream) = 0;
  /// sum[e.index] = math::add(sum[e.index], e.value) for each of the elements; sum: f32, below 2^32 elements.
  /// An index beyond them, as damaged data may have, is left out.
  virtual Status scatter_add(VectorView sum, SparseView elements, Stream& stream) = 0;

  // Patterns and checks
  virtual Status fill(WordsView words, const Pattern& pattern, Stream& stream) = 0;
  /// *report = Mismatches::none().
  virtual Status reset(Mismatches* report, Stream& stream) = 0;
  /// Adds to *report (device memory, reset before) every word that is not the pattern's.
  virtual Status verify(WordsView words, const Pattern& expected, Mismatches* report, Stream& stream) = 0;
  /// The same, and each word then becomes the next pattern's: one pass over memory.
  virtual Status verify_and_fill(WordsView words, const Pattern& expected, const Pattern& next,
                                 Direction direction, Mismatches* report, Stream& stream) = 0;
  /// Adds to *report every element of `sum` that is no sum of the `count` terms, see math::SumOfTerms; f32 or
  /// bf16, below 2^32 elements. `terms`: vectors of sum's type and count, one behind the other, apart from
  /// it. A sample's words are an element's bits.
  virtual Status verify_sum(VectorView sum, const void* terms, int count, Mismatches* report,
                            Stream& stream) = 0;
  /// *digest (device memory) = the digest of the words.
  virtual Status digest(WordsView words, Digest* digest, Stream& stream) = 0;
  /// *sums (device memory) = {the sum of the words, 0}: as near to bare reading as an answer allows.
  virtual Status sum(WordsView words, Digest* sums, Stream& stream) = 0;
  /// *digest = the digest of math::sine_exponential(word as fp32, iterations) of every word; the words stay.
  virtual Status sine_exponential(WordsView words, int iterations, Digest* digest, Stream& stream) = 0;
  /// Changes words on purpose: see Flip. Words hit twice are changed twice.
  virtual Status flip(WordsView words, const Flip& flip, Stream& stream) = 0;

  // Robotics
  /// Equal bit for bit whatever the order of the points, and on every device.
  virtual Status voxelize(const Voxelization& call, Stream& stream) = 0;
  /// Equal bit for bit on every device.
  virtual Status fuse(const StreamFusion& call, Stream& stream) = 0;
};

}  // namespace egt
