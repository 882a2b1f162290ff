#pragma once

#include <memory>

#include "egt/ranks/communicator.hpp"
#include "ranks/mpi/mpi_session.hpp"

namespace egt {

/// Data communicator over MPI for the host backend. Collectives run as tasks of one or several HostStreams.
/// Collective: all ranks open their objects in the same order. `timeout_seconds` bounds this call, a split,
/// and each collective or exchange from its start in the stream. After a failure all later calls fail at
/// once. Communicators split from it have the same timeout and fail independently.
///
/// Each element is reduced in rank order by the one rank that owns it, in fp32, and rounded once for bf16.
/// All ranks therefore get the same bits, in every run and with any version of MPI.
///
/// After a failure or `abort`, receives are withdrawn, but MPI may still access a buffer whose transfer had
/// started. Keep the buffers of a failed collective until the session has ended.
Result<std::unique_ptr<Communicator>> open_mpi_communicator(MpiSession& session, double timeout_seconds);

}  // namespace egt
