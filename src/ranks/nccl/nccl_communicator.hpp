#pragma once

#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"

/// The NCCL adapter of the data port for GPUs. Its collectives accept only streams of a CUDA device.
namespace egt {

/// Created on rank 0. Every rank needs it before `open_nccl_communicator`, as hexadecimal text.
Result<std::string> make_nccl_unique_id();

/// Collective: every rank of `place.size` calls it with the same `unique_id`, on the calling thread's current
/// CUDA device (set by open_cuda_device). `timeout_seconds` bounds this call, a split, the end of an abort,
/// and every wait until NCCL accepts a collective or an exchange. The first exchange between two ranks waits
/// for the peer. Communicators split from it have the same timeout. A single rank needs no NCCL and ignores
/// `unique_id`.
Result<std::unique_ptr<Communicator>> open_nccl_communicator(const std::string& unique_id,
                                                             const RankPlace& place, double timeout_seconds);

/// "2.28.9"
std::string nccl_version();

}  // namespace egt
