#pragma once

#include <cstddef>
#include <cstdint>

#include "egt/core/digest.hpp"
#include "egt/core/flip.hpp"
#include "egt/core/math/fusion_math.hpp"
#include "egt/core/math/gemm_rounding.hpp"
#include "egt/core/math/math.hpp"
#include "egt/core/math/sparse.hpp"
#include "egt/core/math/voxel_math.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/view.hpp"

struct CUstream_st;  // cudaStream_t is a pointer to it

/// Launch functions for the CUDA adapter. Each enqueues its kernels without waiting and returns the
/// cudaError_t of the launch as an int (0: success). The adapter has already validated the arguments. Empty
/// views launch nothing. Formulas are in core; the .cu files define their mapping to threads.
namespace egt::kernels {

/// Target of a launch.
struct Launch {
  CUstream_st* stream;
  int multiprocessors;
  int width;      ///< max blocks of word operations and transcendental chains; 0: the fastest number
  void* scratch;  ///< `scratch_bytes` of device memory for partial sums, private to this stream
  bool overlaps;  ///< the device can start a kernel's blocks before the previous kernel has ended
};

/// Constant, because the number of partial sums, and so the bits of the sums, depend on it.
constexpr std::size_t scratch_bytes = std::size_t{16} << 20;
/// Max columns of a matrix whose column sums fit the scratch.
constexpr std::int64_t widest_column_sums = (std::int64_t{15} << 20) / 8;

/// Success if the program holds machine code for the current device.
[[nodiscard]] int probe();
/// True if the code can start blocks before the previous kernel ends (compute capability 9).
[[nodiscard]] bool can_start_early();

// Element-wise
[[nodiscard]] int cast(const Launch& launch, VectorView to, VectorView from);
/// The members of Quantization in egt/device/device.hpp. x has up to 65535 * 64 rows.
[[nodiscard]] int quantize(const Launch& launch, MatrixView x, MatrixView copy, MatrixView transposed,
                           float* scale);
/// d = factor * d; if `factor` is 0, all of d becomes 0, even a NaN.
[[nodiscard]] int scale(const Launch& launch, MatrixView d, double factor);
/// See RandomSequence in egt/device/device.hpp.
[[nodiscard]] int randomize(const Launch& launch, VectorView out, std::uint64_t seed, std::uint64_t sequence,
                            std::uint64_t first, float scale);
/// The members of ExtremeTerm in egt/device/device.hpp. If a matrix is processed in pieces of rows, `piece`
/// is the first row of this piece. The first piece resets the digest, later ones add to it.
struct ExtremeArguments {
  int iterations;
  std::int64_t first_row, piece;
  Digest* digest;
  Flip fault;
  int fault_turn;
};
[[nodiscard]] int activate(const Launch& launch, MatrixView h, const float* bias,
                           const ExtremeArguments& extreme);

/// sum = math::add(sum, term); f32 or bf16, both of the same type.
[[nodiscard]] int add(const Launch& launch, VectorView sum, VectorView term);

[[nodiscard]] int select_top_k(const Launch& launch, const TopKSelection& call);
[[nodiscard]] int scatter_add(const Launch& launch, VectorView sum, SparseView elements);

/// Waits until *held (pinned host memory) is 0 or *expired is not 0. After `limit_ns` nanoseconds it sets
/// *expired to 1. See Device::hold.
[[nodiscard]] int hold(const Launch& launch, const std::uint32_t* held, std::uint32_t* expired,
                       std::uint64_t limit_ns);
/// CUDA loads a kernel at its first launch, which may wait for all running kernels. That is a deadlock if one
/// of them waits for a peer or for the host, so these functions load the kernels early.
[[nodiscard]] int load_hold();
[[nodiscard]] int load_add();

/// Up to `widest_column_sums` columns, as for loss_gradient.
[[nodiscard]] int activation_gradient(const Launch& launch, MatrixView gradient, MatrixView h,
                                      VectorView bias_gradient);

/// The members of LossGradient in egt/device/device.hpp.
struct LossArguments {
  MatrixView z;
  MatrixView x;
  const float* bias;
  std::uint64_t target_seed;
  float gradient_scale;
  VectorView bias_gradient;
  float* loss;
};
[[nodiscard]] int loss_gradient(const Launch& launch, const LossArguments& arguments);

/// The members of SoftmaxLoss in egt/device/device.hpp.
struct SoftmaxArguments {
  MatrixView logits;
  const std::int32_t* labels;
  std::int64_t first_label;
  float gradient_scale;
  float* losses;
  std::int32_t* larger;
};
[[nodiscard]] int softmax_loss(const Launch& launch, const SoftmaxArguments& arguments);

/// Batch normalization of x (one row per pixel, one column per channel) and its per-channel parameters: the
/// members of BatchNormShape and BatchNormState in egt/device/dnn.hpp.
struct BatchNormArguments {
  MatrixView x;  ///< f32 or bf16; all matrices have its rows and columns
  bool relu;
  double epsilon, momentum;
  const float *scale, *shift;
  float *running_mean, *running_variance;
  float *mean, *inverse_deviation;  ///< of the batch: saved_mean, saved_deviation
};
/// Output of a pass over all elements; the backward pass also reads it.
struct BatchNormResults {
  MatrixView images;  ///< y, or the gradient of x, which may be y_gradient
  bool is_training = true;
  MatrixView y_gradient = {};
  float *scale_gradient = nullptr, *shift_gradient = nullptr;
};
[[nodiscard]] int normalize(const Launch& launch, const BatchNormArguments& call, MatrixView y,
                            bool training);
[[nodiscard]] int normalize_gradient(const Launch& launch, const BatchNormArguments& call,
                                     const BatchNormResults& to);

/// Backward max pooling, see egt/device/dnn.hpp. x has less than 2^31 elements.
struct MaxPoolingArguments {
  int images, height, width, channels;
  int windows_y, windows_x;  ///< height and width of y
  int kernel, stride, padding;
  const void *x, *y, *y_gradient;
  void* x_gradient;
};
[[nodiscard]] int max_pooling_gradient(const Launch& launch, ElementType type,
                                       const MaxPoolingArguments& call);

// Optimizers; gradient: f32 or bf16; compute_copy: any type, data == nullptr: none
[[nodiscard]] int sgd_step(const Launch& launch, float* weights, VectorView gradient, VectorView compute_copy,
                           float* velocity, const math::Sgd& rule);
[[nodiscard]] int adam_step(const Launch& launch, float* weights, VectorView gradient,
                            VectorView compute_copy, float* first, float* second, const math::Adam& rule);

// Patterns and checks
/// The members of Gemm in egt/device/device.hpp. `a` and `b` are stored matrices; bias without data: none.
struct GemmOperands {
  MatrixView a, b, d;
  bool a_transposed, b_transposed;
  const float *a_scale, *b_scale;
  VectorView bias;
};
[[nodiscard]] int verify_gemm(const Launch& launch, const GemmOperands& gemm, const GemmRounding& rounding,
                              GemmMismatches* report);
[[nodiscard]] int fill(const Launch& launch, WordsView words, const Pattern& pattern);
[[nodiscard]] int reset(const Launch& launch, Mismatches* report);
[[nodiscard]] int verify(const Launch& launch, WordsView words, const Pattern& expected, Mismatches* report);
[[nodiscard]] int verify_sum(const Launch& launch, VectorView sum, const void* terms, int count,
                             Mismatches* report);
[[nodiscard]] int verify_and_fill(const Launch& launch, WordsView words, const Pattern& expected,
                                  const Pattern& next, bool descending, Mismatches* report);
[[nodiscard]] int digest(const Launch& launch, WordsView words, Digest* digest);
[[nodiscard]] int sum(const Launch& launch, WordsView words, Digest* sums);
[[nodiscard]] int sine_exponential(const Launch& launch, WordsView words, int iterations, Digest* digest);
[[nodiscard]] int flip(const Launch& launch, WordsView words, const Flip& flip);

// Robotics
/// The members of Voxelization in egt/device/voxelization.hpp.
struct VoxelizeArguments {
  VoxelGrid grid;
  const float* points;
  std::int64_t count;
  std::uint8_t* occupancy;
  VoxelFeatures* features;
  VoxelCounts* counts;
  void* scratch;
};
[[nodiscard]] int voxelize(const Launch& launch, const VoxelizeArguments& arguments);

/// The members of StreamFusion in egt/device/stream_fusion.hpp.
struct FuseArguments {
  FusionShape shape;
  const double* const* times;
  const float* const* values;
  const double* timeline;
  float* fused;
  std::uint32_t* dropped;
  void* scratch;
};
[[nodiscard]] int fuse(const Launch& launch, const FuseArguments& arguments);

}  // namespace egt::kernels
