#pragma once

#include <cstddef>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

/// Preconditions that every adapter relies on after an operation of Device was enqueued: non-null memory if
/// there are elements, and matching shapes, counts and types. One function per operation, run on the calling
/// thread. invalid_argument identifies the operation and the cause. An adapter checks its own additional
/// limits.
namespace egt {

/// For elapsed_ms and busy_ms.
Status check_times(const char* operation, const Event& from, const Event& to);
Status check_takes_products(const Stream& stream);
Status check_copy(const void* to, const void* from, std::size_t bytes);
Status check_set_zero(const void* data, std::size_t bytes);
/// Does not check whether the device supports the precision.
Status check_gemm(const Gemm& gemm);
Status check_verify_gemm(const Gemm& gemm, const GemmMismatches* report);
Status check_quantize(const Quantization& call);
Status check_cast(const VectorView& to, const VectorView& from);
Status check_randomize(const VectorView& out);
Status check_activate(const MatrixView& h, const float* bias, const ExtremeTerm& extreme);
Status check_activation_gradient(const MatrixView& gradient, const MatrixView& h,
                                 const VectorView& bias_gradient);
Status check_loss_gradient(const LossGradient& call);
Status check_softmax_loss(const SoftmaxLoss& call);
Status check_sgd_step(const ParameterRange& range, const float* velocity, const math::Sgd& rule);
Status check_adam_step(const ParameterRange& range, const float* first, const float* second);
Status check_select_top_k(const TopKSelection& call);
Status check_scatter_add(const VectorView& sum, const SparseView& elements);
Status check_allocate_shared(std::size_t bytes);
Status check_signals(const void* pages, std::size_t bytes);
Status check_add(const VectorView& sum, const VectorView& term);
Status check_fill(const WordsView& words);
Status check_reset(const Mismatches* report);
/// Also for verify_and_fill.
Status check_verify(const WordsView& words, const Mismatches* report);
Status check_verify_sum(const VectorView& sum, const void* terms, int count, const Mismatches* report);
Status check_digest(const WordsView& words, const Digest* digest);
Status check_sum(const WordsView& words, const Digest* sums);
Status check_sine_exponential(const WordsView& words, int iterations, const Digest* digest);
/// `flip` needs words to change.
Status check_flip(const WordsView& words, const Flip& flip);
Status check_voxelize(const Voxelization& call);
Status check_fuse(const StreamFusion& call);

}  // namespace egt
