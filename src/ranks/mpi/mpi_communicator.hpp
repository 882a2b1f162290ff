#pragma once

#include <memory>

#include "egt/ranks/communicator.hpp"
#include "ranks/mpi/mpi_session.hpp"

namespace egt {

/// Data over MPI for the host backend: collectives run as tasks of a HostStream, of one or several streams.
/// Collective: all ranks open it in the same order among what they open. `timeout_seconds` bounds this call,
/// a split, and each collective or exchange from its start in the stream; one that fails makes all later ones
/// fail at once. What is split from it has the same timeout, and fails by itself.
///
/// Sums are made in rank order by the one rank that owns the element, in fp32, and rounded once for bf16: so
/// all ranks get the same bits, on every run and with any version of MPI.
///
/// After a failure or `abort`, receives are withdrawn, but MPI may still read from or write to a buffer
/// whose transfer had begun: keep the buffers of a failed collective until the session has ended.
Result<std::unique_ptr<Communicator>> open_mpi_communicator(MpiSession& session, double timeout_seconds);

}  // namespace egt
