#pragma once

#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"

/// The adapter of the data port for GPUs. Its collectives take the streams of a CUDA device only.
namespace egt {

/// What rank 0 makes and every rank gets before `open_nccl_communicator`, as hexadecimal text.
Result<std::string> make_nccl_unique_id();

/// Collective: every rank of `place.size` calls it with the same `unique_id`, its GPU being the calling
/// thread's current CUDA device (open_cuda_device makes it so). `timeout_seconds` bounds this call, and later
/// every wait for NCCL to take a collective or an exchange (the first between two ranks waits for the peer),
/// a split, and the end of an abort; what is split from it has the same. One rank needs no NCCL: `unique_id`
/// is then not looked at.
Result<std::unique_ptr<Communicator>> open_nccl_communicator(const std::string& unique_id,
                                                             const RankPlace& place, double timeout_seconds);

/// "2.28.9"
std::string nccl_version();

}  // namespace egt
