#pragma once

#include <cstddef>
#include <cstdint>

#include "egt/core/digest.hpp"
#include "egt/core/flip.hpp"
#include "egt/core/math.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/view.hpp"

struct CUstream_st;  // cudaStream_t is a pointer to it

/// What the CUDA adapter launches. Every function puts its kernels in line, waits for nothing, checks no
/// argument (the adapter did), and returns the cudaError_t of the launch as an int: 0 is success. Empty views
/// launch nothing. Formulas are those of core; how they are spread over threads is said in the .cu files.
namespace egt::kernels {

/// Where to launch.
struct Launch {
  CUstream_st* stream;
  int multiprocessors;
  bool background;  ///< of a low-priority stream: sine_exponential takes one block a multiprocessor only
  void* scratch;    ///< `scratch_bytes` of device memory, of this stream only, for partial sums
};

/// A constant, because the partial sums' number, and so the bits of the sums, depend on it.
constexpr std::size_t scratch_bytes = std::size_t{16} << 20;
/// The widest matrix whose column sums fit it.
constexpr std::int64_t widest_column_sums = (std::int64_t{15} << 20) / 8;

/// Success if the program holds machine code for the current device.
[[nodiscard]] int probe();

// Element-wise
[[nodiscard]] int cast(const Launch& launch, VectorView to, VectorView from);
/// d = factor * d; 0 where `factor` is 0, also in the place of a NaN.
[[nodiscard]] int scale(const Launch& launch, MatrixView d, double factor);
/// See RandomSequence in egt/device/device.hpp.
[[nodiscard]] int randomize(const Launch& launch, VectorView out, std::uint64_t seed, std::uint64_t sequence,
                            std::uint64_t first, float scale);
[[nodiscard]] int activate(const Launch& launch, MatrixView h, const float* bias, int extreme_iterations);
/// f32
[[nodiscard]] int extreme(const Launch& launch, VectorView values, int iterations);
/// y = op(m) x; op(m) of no columns gives zeros.
[[nodiscard]] int multiply_vector(const Launch& launch, MatrixView m, bool transposed, bool absolute,
                                  const double* x, double* y);

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

// Optimizers; gradient: f32 or bf16; compute_copy: any type, data == nullptr: none
[[nodiscard]] int sgd_step(const Launch& launch, float* weights, VectorView gradient, VectorView compute_copy,
                           float* velocity, const math::Sgd& rule);
[[nodiscard]] int adam_step(const Launch& launch, float* weights, VectorView gradient,
                            VectorView compute_copy, float* first, float* second, const math::Adam& rule);

// Patterns and checks
[[nodiscard]] int fill(const Launch& launch, WordsView words, const Pattern& pattern);
[[nodiscard]] int reset(const Launch& launch, Mismatches* report);
[[nodiscard]] int verify(const Launch& launch, WordsView words, const Pattern& expected, Mismatches* report);
[[nodiscard]] int verify_and_fill(const Launch& launch, WordsView words, const Pattern& expected,
                                  const Pattern& next, bool descending, Mismatches* report);
[[nodiscard]] int digest(const Launch& launch, WordsView words, Digest* digest);
[[nodiscard]] int sine_exponential(const Launch& launch, WordsView words, int iterations, Digest* digest);
[[nodiscard]] int flip(const Launch& launch, WordsView words, const Flip& flip);

}  // namespace egt::kernels
