#pragma once

#include <cstddef>
#include <cstdint>

#include "egt/core/operations.hpp"

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

/// Never changes: the number of partial sums, and so the bits of the sums, depend on it.
constexpr std::size_t scratch_bytes = std::size_t{16} << 20;
/// Max columns of a matrix whose column sums fit the scratch.
constexpr std::int64_t widest_column_sums = (std::int64_t{15} << 20) / 8;

/// Success if the program contains code for the current device.
[[nodiscard]] int probe();
/// True if the loaded code supports programmatic dependent launch (compute capability 9): blocks start before
/// the previous kernel ends.
[[nodiscard]] bool can_start_early();

// Operations of egt/core/operations.hpp
[[nodiscard]] int enqueue(const Launch& launch, const Add& call);
[[nodiscard]] int enqueue(const Launch& launch, const VerifyGemm& call);
[[nodiscard]] int enqueue(const Launch& launch, const VerifyExactGemm& call);
/// x has up to 65535 * 64 rows.
[[nodiscard]] int enqueue(const Launch& launch, const Quantization& call);
[[nodiscard]] int enqueue(const Launch& launch, const Cast& call);
[[nodiscard]] int enqueue(const Launch& launch, const Randomize& call);
/// `piece`: index of the first row of h in the matrix of the operation, if its pieces of rows are launched
/// one by one. The first piece resets the digest, later ones add to it.
[[nodiscard]] int enqueue(const Launch& launch, const Activation& call, std::int64_t piece);
/// Up to `widest_column_sums` columns, as for LossGradient.
[[nodiscard]] int enqueue(const Launch& launch, const ActivationGradient& call);
[[nodiscard]] int enqueue(const Launch& launch, const LossGradient& call);
[[nodiscard]] int enqueue(const Launch& launch, const SoftmaxLoss& call);
[[nodiscard]] int enqueue(const Launch& launch, const OptimizerStep& call);
[[nodiscard]] int enqueue(const Launch& launch, const TopKSelection& call);
[[nodiscard]] int enqueue(const Launch& launch, const ScatterAdd& call);
[[nodiscard]] int enqueue(const Launch& launch, const Fill& call);
[[nodiscard]] int enqueue(const Launch& launch, const Reset& call);
[[nodiscard]] int enqueue(const Launch& launch, const Verify& call);
[[nodiscard]] int enqueue(const Launch& launch, const VerifyAndFill& call);
[[nodiscard]] int enqueue(const Launch& launch, const VerifySum& call);
[[nodiscard]] int enqueue(const Launch& launch, const DigestWords& call);
[[nodiscard]] int enqueue(const Launch& launch, const SumWords& call);
[[nodiscard]] int enqueue(const Launch& launch, const SineExponential& call);
[[nodiscard]] int enqueue(const Launch& launch, const UnitVote& call);
[[nodiscard]] int enqueue(const Launch& launch, const FlipWords& call);
[[nodiscard]] int enqueue(const Launch& launch, const Voxelization& call);
[[nodiscard]] int enqueue(const Launch& launch, const StreamFusion& call);

/// d = factor * d; if `factor` is 0, all of d becomes 0, even a NaN.
[[nodiscard]] int scale(const Launch& launch, MatrixView d, double factor);

/// Waits until *held (pinned host memory) is 0 or *expired is not 0. After `limit_ns` nanoseconds it sets
/// *expired to 1. See Device::hold.
[[nodiscard]] int hold(const Launch& launch, const std::uint32_t* held, std::uint32_t* expired,
                       std::uint64_t limit_ns);
/// CUDA loads a kernel at its first launch, which may wait for all running kernels. That is a deadlock if one
/// of them waits for a peer or for the host, so these functions load the kernels early.
[[nodiscard]] int load_hold();
[[nodiscard]] int load_add();

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
/// Output of the pass over all elements. The backward pass also reads it.
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

}  // namespace egt::kernels
