#pragma once

#include "device/host/host_stream.hpp"
#include "egt/device/device.hpp"

/// The operations of Device on the host. Each checks its arguments and enqueues its work on the stream.
namespace egt::host {

// host_data.cpp
Status copy(void* to, const void* from, std::size_t bytes, HostStream& stream);
Status set_zero(void* data, std::size_t bytes, HostStream& stream);
Status cast(VectorView to, VectorView from, HostStream& stream);
Status randomize(VectorView out, const RandomSequence& sequence, HostStream& stream);

Status add(VectorView sum, VectorView term, HostStream& stream);

// host_gemm.cpp
Status gemm(const Gemm& call, HostStream& stream);

// host_gemm_verification.cpp
Status verify_gemm(const Gemm& call, GemmMismatches* report, HostStream& stream);

// host_quantize.cpp
Status quantize(const Quantization& call, HostStream& stream);

// host_layers.cpp
Status activate(MatrixView h, const float* bias, const ExtremeTerm& extreme, HostStream& stream);
Status activation_gradient(MatrixView gradient, MatrixView h, VectorView bias_gradient, HostStream& stream);
Status loss_gradient(const LossGradient& call, HostStream& stream);

// host_softmax.cpp
Status softmax_loss(const SoftmaxLoss& call, HostStream& stream);

// host_optimizers.cpp
Status sgd_step(const ParameterRange& range, float* velocity, const math::Sgd& rule, HostStream& stream);
Status adam_step(const ParameterRange& range, float* first, float* second, const math::Adam& rule,
                 HostStream& stream);

// host_top_k.cpp
Status select_top_k(const TopKSelection& call, HostStream& stream);
Status scatter_add(VectorView sum, SparseView elements, HostStream& stream);

// host_patterns.cpp
Status fill(WordsView words, const Pattern& pattern, HostStream& stream);
Status reset(Mismatches* report, HostStream& stream);
Status verify(WordsView words, const Pattern& expected, Mismatches* report, HostStream& stream);
Status verify_and_fill(WordsView words, const Pattern& expected, const Pattern& next, Direction direction,
                       Mismatches* report, HostStream& stream);
Status verify_sum(VectorView sum, const void* terms, int count, Mismatches* report, HostStream& stream);
Status digest(WordsView words, Digest* digest, HostStream& stream);
Status sum(WordsView words, Digest* sums, HostStream& stream);
Status sine_exponential(WordsView words, int iterations, Digest* digest, HostStream& stream);
Status flip(WordsView words, const Flip& flip, HostStream& stream);

// host_voxelize.cpp
Status voxelize(const Voxelization& call, HostStream& stream);

// host_fuse.cpp
Status fuse(const StreamFusion& call, HostStream& stream);

}  // namespace egt::host
