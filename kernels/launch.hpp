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

/// What the CUDA adapter launches. Every function enqueues its kernels, waits for nothing, checks no
/// argument (the adapter did), and returns the cudaError_t of the launch as an int: 0 is success. Empty views
/// launch nothing. Formulas are those of core; how they are spread over threads is said in the .cu files.
namespace egt::kernels {

/// Where to launch.
struct Launch {
  CUstream_st* stream;
  int multiprocessors;
  int width;      ///< blocks that operations on words and extreme terms may have; 0: as are fastest
  void* scratch;  ///< `scratch_bytes` of device memory, of this stream only, for partial sums
  bool overlaps;  ///< the device can begin a kernel's blocks before the kernel before it is over
};

/// A constant, because the partial sums' number, and so the bits of the sums, depend on it.
constexpr std::size_t scratch_bytes = std::size_t{16} << 20;
/// The widest matrix whose column sums fit it.
constexpr std::int64_t widest_column_sums = (std::int64_t{15} << 20) / 8;

/// Success if the program holds machine code for the current device.
[[nodiscard]] int probe();
/// Has it code that lets a kernel's blocks begin before the kernel before it is over (compute capability 9)?
[[nodiscard]] bool can_start_early();

// Element-wise
[[nodiscard]] int cast(const Launch& launch, VectorView to, VectorView from);
/// The members of Quantization in egt/device/device.hpp. x has at most 65535 * 64 rows.
[[nodiscard]] int quantize(const Launch& launch, MatrixView x, MatrixView copy, MatrixView transposed,
                           float* scale);
/// d = factor * d; 0 where `factor` is 0, also in the place of a NaN.
[[nodiscard]] int scale(const Launch& launch, MatrixView d, double factor);
/// See RandomSequence in egt/device/device.hpp.
[[nodiscard]] int randomize(const Launch& launch, VectorView out, std::uint64_t seed, std::uint64_t sequence,
                            std::uint64_t first, float scale);
/// The members of ExtremeTerm in egt/device/device.hpp. Of a matrix that is done in pieces of rows, `piece`
/// is the first row of this one, in the matrix: the first piece resets the digest, the others add to it.
struct ExtremeArguments {
  int iterations;
  std::int64_t first_row, piece;
  Digest* digest;
  Flip fault;
  int fault_turn;
};
[[nodiscard]] int activate(const Launch& launch, MatrixView h, const float* bias,
                           const ExtremeArguments& extreme);

/// sum = math::add(sum, term); f32 or bf16, both the same.
[[nodiscard]] int add(const Launch& launch, VectorView sum, VectorView term);

[[nodiscard]] int select_top_k(const Launch& launch, const TopKSelection& call);
[[nodiscard]] int scatter_add(const Launch& launch, VectorView sum, SparseView elements);

/// Begins when *held (pinned host memory) is 0, or *expired other than 0; after `limit_ns` nanoseconds it
/// makes *expired 1. See Device::hold.
[[nodiscard]] int hold(const Launch& launch, const std::uint32_t* held, std::uint32_t* expired,
                       std::uint64_t limit_ns);
/// CUDA loads a kernel when it is first launched, and that may wait for all kernels that run: which would be
/// for ever, where one of them waits for a peer or for the host. So these load them before.
[[nodiscard]] int load_hold();
[[nodiscard]] int load_add();

/// At most `widest_column_sums` columns; so for loss_gradient.
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

/// A batch normalization of x, a row a pixel and a column a channel, and its numbers, one a channel: the
/// members of BatchNormShape and BatchNormState in egt/device/dnn.hpp.
struct BatchNormArguments {
  MatrixView x;  ///< f32 or bf16; its rows and columns are those of all matrices
  bool relu;
  double epsilon, momentum;
  const float *scale, *shift;
  float *running_mean, *running_variance;
  float *mean, *inverse_deviation;  ///< of the batch: saved_mean, saved_deviation
};
/// What a pass over all elements makes, and the backward pass reads, too.
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

/// Pooling of the maximum in egt/device/dnn.hpp, backward. x has less than 2^31 elements.
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
/// The members of Gemm in egt/device/device.hpp. `a` and `b` are stored matrices; bias: no data, none.
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
