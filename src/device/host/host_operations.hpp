#pragma once

#include <type_traits>

#include "device/host/host_stream.hpp"
#include "egt/core/operations.hpp"

/// The operations of Device on the host, in the files host_*.cpp. Each runs on its stream's thread.
namespace egt::host {

void run(const Copy& call, HostStream& stream);
void run(const SetZero& call, HostStream& stream);
void run(const WriteSignal& call, HostStream& stream);
Status run(const AwaitSignal& call, HostStream& stream);
void run(const Add& call, HostStream& stream);
Status run(const Gemm& call, HostStream& stream);
void run(const VerifyGemm& call, HostStream& stream);
void run(const VerifyExactGemm& call, HostStream& stream);
void run(const Quantization& call, HostStream& stream);
void run(const Cast& call, HostStream& stream);
void run(const Randomize& call, HostStream& stream);
void run(const Activation& call, HostStream& stream);
Status run(const ActivationGradient& call, HostStream& stream);
Status run(const LossGradient& call, HostStream& stream);
void run(const SoftmaxLoss& call, HostStream& stream);
void run(const OptimizerStep& call, HostStream& stream);
void run(const TopKSelection& call, HostStream& stream);
void run(const ScatterAdd& call, HostStream& stream);
void run(const Fill& call, HostStream& stream);
void run(const Reset& call, HostStream& stream);
void run(const Verify& call, HostStream& stream);
void run(const VerifyAndFill& call, HostStream& stream);
void run(const VerifySum& call, HostStream& stream);
void run(const DigestWords& call, HostStream& stream);
void run(const SumWords& call, HostStream& stream);
void run(const SineExponential& call, HostStream& stream);
void run(const UnitVote& call, HostStream& stream);
void run(const FlipWords& call, HostStream& stream);
void run(const Voxelization& call, HostStream& stream);
void run(const StreamFusion& call, HostStream& stream);

/// Called when the operation is enqueued. unsupported: the BLAS cannot compute the GEMM.
Status check(const Gemm& call);

}  // namespace egt::host
