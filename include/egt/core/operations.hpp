#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "egt/core/digest.hpp"
#include "egt/core/flip.hpp"
#include "egt/core/math/gemm_rounding.hpp"
#include "egt/core/math/math.hpp"
#include "egt/core/math/sparse.hpp"
#include "egt/core/math/unit_vote.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/stream_fusion.hpp"
#include "egt/core/types.hpp"
#include "egt/core/view.hpp"
#include "egt/core/voxelization.hpp"

/// The operations of a device, as values: Device::enqueue accepts each, and every adapter and kernel reads
/// the same struct. `name` is for messages. Pointers are device memory unless noted. Reductions have a fixed
/// order, so the same operation gives the same bits every time.
namespace egt {

/// Copies between device and device memory, or between device and pinned host memory in either direction.
struct Copy {
  static constexpr const char* name = "copy";
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

struct SetZero {
  static constexpr const char* name = "set_zero";
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Memory shared by processes of one node

/// Writes `number` after all earlier work of the stream is done. A reader that sees the number sees all
/// writes of that work, in any memory. Signals are in memory of Device::register_signals. On a GPU, neither
/// writing nor awaiting one uses a multiprocessor or is delayed by Device::hold.
struct WriteSignal {
  static constexpr const char* name = "write_signal";
  std::uint32_t* signal = nullptr;
  std::uint32_t number = 0;
};

/// Later work of the stream starts when the signal is `number` or a later one, less than 2^31 ahead. There is
/// no deadline: if the writer may fail, the caller must write the signal. The stream's destructor does not
/// wait forever.
struct AwaitSignal {
  static constexpr const char* name = "await_signal";
  const std::uint32_t* signal = nullptr;
  std::uint32_t number = 0;
};

/// sum = math::add(sum, term) per element; f32 or bf16, the same type and count, not overlapping.
struct Add {
  static constexpr const char* name = "add";
  VectorView sum, term;
};

// Training

/// d = alpha op(a) op(b) + beta d, row-major; op(x) is x, or its transpose if `*_transposed`. op(a): m x k,
/// op(b): k x n, d: m x n. a and b have type storage_type(precision). d has that type, or
/// sum_type(precision), the accumulator type. Bit-for-bit repeatable on one device model. fp8 and int8
/// require a not transposed, b transposed, alpha 1, beta 0, and m, n and k in multiples of 16. Their d has
/// sum_type; for fp8 also bf16. int8 is exact while its sums are below 2^31.
struct Gemm {
  static constexpr const char* name = "gemm";

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
  /// and beta 0. The library decides if a NaN stays or becomes 0; to detect a NaN, run the GEMM without bias.
  static constexpr std::size_t bias_alignment = 16;
  VectorView relu_bias = {};
};

/// Computes the GEMM again in fp64 with the adapter's own code. Adds each element of d outside the bound of
/// GemmRounding to *report (zeroed before). For alpha 1 and beta 0; the operands must be unchanged since the
/// GEMM.
struct VerifyGemm {
  static constexpr const char* name = "verify_gemm";
  Gemm gemm;
  GemmMismatches* report = nullptr;
};

/// As VerifyGemm, for operands of an exact OperandBand, at the cost of reading the matrices once. With pseudo
/// random weights w, each row of d must have the sum d w = a (b^T w), and each element must be a multiple of
/// the band's granule. All sums are exact, so any wrong bit is detected. Each element of up to
/// `max_located_rows` wrong rows is computed again. Elements of other wrong rows, and right ones of wrong
/// rows, do not count as compared. a not transposed, b transposed, no scales or bias; k and n: multiples of
/// 16, up to `max_exact_columns`; rows without gaps.
struct VerifyExactGemm {
  static constexpr const char* name = "verify_exact_gemm";
  static constexpr int max_located_rows = 64;
  static constexpr std::int64_t max_exact_columns = 1 << 20;
  Gemm gemm;
  int granule = 0;  ///< log2
  GemmMismatches* report = nullptr;
};

/// Quantizes x to 8 bits: each element times 2^e, rounded to nearest even. e is the max of -60 .. 60 with
/// which the max magnitude of x still fits (Micikevicius et al., "FP8 formats for deep learning", 2022, with
/// a power of two as the scale, so that scaling rounds nothing). If x has NaN or infinity, `scale` is NaN,
/// and so is every GEMM that uses it.
struct Quantization {
  static constexpr const char* name = "quantize";

  MatrixView x;            ///< f32 or bf16
  MatrixView copy;         ///< quantized x, f8 or f8_e5m2; no memory: not requested
  MatrixView transposed;   ///< x's columns x rows, of the same type; no memory: not requested
  float* scale = nullptr;  ///< one fp32 in device memory, set to 2^-e
};

/// to = from, converted between any two types (round to nearest even); equal counts.
struct Cast {
  static constexpr const char* name = "cast";
  VectorView to, from;
};

/// Uniform random numbers. Element i is scale * signed_unit(word (first + i) % 4 of philox4x32_10(counter
/// (first + i) / 4 and `sequence`, key `seed`)), rounded to the element's type.
struct RandomSequence {
  std::uint64_t seed = 0;
  std::uint64_t sequence = 0;  ///< upper half of the counter: one per purpose or step
  std::uint64_t first = 0;     ///< index of the first element in the sequence
  float scale = 1.0f;
};

struct Randomize {
  static constexpr const char* name = "randomize";
  VectorView out;
  RandomSequence sequence;
};

/// The transcendental chains of an activation.
struct ExtremeTerm {
  int iterations = 0;          ///< of each element's chain; 0: none, a plain ReLU
  std::int64_t first_row = 0;  ///< row of h's first row in the whole matrix; phases depend on positions in it
  Digest* digest = nullptr;    ///< device memory, set to the digest of all chains' bits; null: not requested
  Flip fault = {.count = 0};   ///< injected: bits that flip in these elements' chains, in iteration
                               ///< `fault_turn`; only with a digest; `keep` is not used
  int fault_turn = 0;          ///< from 0
};

/// In place: h = math::activation(h + bias), bias per column. With iterations: math::extreme_activation(h +
/// bias), with the phase of position (first_row + row) * columns + column.
struct Activation {
  static constexpr const char* name = "activate";
  MatrixView h;
  const float* bias = nullptr;
  ExtremeTerm extreme;
};

/// In place: gradient = math::activation_gradient(gradient, h); bias_gradient = its column sums (f32 or
/// bf16).
struct ActivationGradient {
  static constexpr const char* name = "activation_gradient";
  MatrixView gradient, h;
  VectorView bias_gradient;
};

/// The end of the forward and the start of the backward pass. o = z + bias; y_j = target_offset(j) + sum over
/// taps of weight * x[tap input]. z becomes (o - y) * gradient_scale. `loss` becomes the sum over all
/// elements of (o - y)^2, not scaled. bias_gradient_j becomes the column sum of the new z.
struct LossGradient {
  static constexpr const char* name = "loss_gradient";

  MatrixView z;                 ///< batch x outputs; in: GEMM result of the last layer; out: its gradient
  MatrixView x;                 ///< batch x inputs, same type
  const float* bias = nullptr;  ///< outputs
  std::uint64_t target_seed = 0;
  float gradient_scale = 1.0f;  ///< loss scale / global batch
  VectorView bias_gradient;     ///< outputs, f32 or bf16
  float* loss = nullptr;        ///< one fp32 in device memory, overwritten
};

/// Softmax with cross entropy. Each row of logits has a label: the column that should have the max logit. If
/// the label is not a column of the matrix, the row's loss and gradient become NaN, and `larger` the number
/// of columns. A NaN counts as larger than the label's logit. If the label's logit is NaN, all columns count.
struct SoftmaxLoss {
  static constexpr const char* name = "softmax_loss";

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

/// One contiguous range of parameters. `compute_copy` receives the new weights in its type; data == nullptr:
/// no copy is kept.
struct ParameterRange {
  float* weights = nullptr;  ///< fp32 master weights
  VectorView gradient;       ///< f32 or bf16
  VectorView compute_copy;   ///< f64, f16, bf16 or none
  std::int64_t count = 0;
};

/// Updates a range of parameters. Adam needs both moments. Sgd's `first` is its velocity; null: none is kept,
/// so its momentum must be 0. Moments: fp32, count of the range.
struct OptimizerStep {
  static constexpr const char* name = "optimizer_step";
  ParameterRange range;
  float *first = nullptr, *second = nullptr;
  std::variant<math::Sgd, math::Adam> rule;
};

/// sum[e.index] = math::add(sum[e.index], e.value) for each element e; sum: f32, below 2^32 elements.
/// Out-of-range indices, as in corrupted data, are skipped.
struct ScatterAdd {
  static constexpr const char* name = "scatter_add";
  VectorView sum;
  SparseView elements;
};

// Patterns and checks

struct Fill {
  static constexpr const char* name = "fill";
  WordsView words;
  Pattern pattern;
};

/// *report = Mismatches::none().
struct Reset {
  static constexpr const char* name = "reset";
  Mismatches* report = nullptr;
};

/// Adds every word that differs from the pattern, or was not compared, to *report (reset before).
struct Verify {
  static constexpr const char* name = "verify";
  WordsView words;
  Pattern expected;
  Mismatches* report = nullptr;
  /// Injected fault: the expected value of word `first` is computed wrong, as by a faulty multiprocessor (on
  /// the host backend, CPU). The memory itself is not changed.
  Flip miscomputed = {.count = 0};
};

/// Order in which an operation traverses memory; on a GPU, order of the waves of thread blocks.
enum class Direction { ascending, descending };

/// As Verify; each word is then rewritten with the next pattern, in the same pass over memory.
struct VerifyAndFill {
  static constexpr const char* name = "verify_and_fill";
  WordsView words;
  Pattern expected, next;
  Direction direction = Direction::ascending;
  Mismatches* report = nullptr;
};

/// Adds every element of `sum` that is not a valid sum of the `count` terms to *report, see math::SumOfTerms;
/// f32 or bf16, below 2^32 elements. `terms`: consecutive vectors of sum's type and count, not overlapping
/// it. Samples in *report hold the bits of elements.
struct VerifySum {
  static constexpr const char* name = "verify_sum";
  VectorView sum;
  const void* terms = nullptr;
  int count = 0;
  Mismatches* report = nullptr;
};

/// *digest = the digest of the words.
struct DigestWords {
  static constexpr const char* name = "digest";
  WordsView words;
  Digest* digest = nullptr;
};

/// *sums = {the sum of the words, 0}. Costs little more than reading the memory.
struct SumWords {
  static constexpr const char* name = "sum";
  WordsView words;
  Digest* sums = nullptr;
};

/// *digest = the digest of math::sine_exponential(word as fp32, iterations) of every word. Only reads.
struct SineExponential {
  static constexpr const char* name = "sine_exponential";
  WordsView words;
  int iterations = 0;
  Digest* digest = nullptr;
};

/// Known work on every multiprocessor, or on every CPU that the control group admits. A voter answers once in
/// a round; one that has no free resources may be missed, and the same call again reaches it. Each
/// sub-partition runs `iterations` of every unit's work.
struct UnitVote {
  static constexpr const char* name = "unit_vote";
  std::uint64_t seed = 0;  ///< of the operands
  int iterations = 1;
  VoterAnswers* answers = nullptr;  ///< `max_unit_voters`, zeroed before the first call of a round
  UnitFault fault = {};
};

/// Injects a fault into words: see Flip. Words hit twice are changed twice.
struct FlipWords {
  static constexpr const char* name = "flip";
  WordsView words;
  Flip flip;
};

using Operation =
    std::variant<Copy, SetZero, WriteSignal, AwaitSignal, Add, Gemm, VerifyGemm, VerifyExactGemm,
                 Quantization, Cast, Randomize, Activation, ActivationGradient, LossGradient, SoftmaxLoss,
                 OptimizerStep, TopKSelection, ScatterAdd, Fill, Reset, Verify, VerifyAndFill, VerifySum,
                 DigestWords, SumWords, SineExponential, UnitVote, FlipWords, Voxelization, StreamFusion>;

}  // namespace egt
