#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ranks/mpi/mpi_session.hpp"

namespace egt {

/// Ok, or MPI's error text for `call`.
Status mpi_status(int code, const char* call);
/// Returns whether all requests have completed. Never blocks.
Result<bool> mpi_done(std::span<MPI_Request> requests);

/// Requests that no call waits for any more, and the memory that MPI may still use for them.
struct MpiOrphan {
  std::vector<MPI_Request> requests;
  std::shared_ptr<const void> memory;
};

struct MpiSession::Impl {
  MPI_Comm world = MPI_COMM_NULL;  ///< a duplicate of MPI_COMM_WORLD that returns its errors
  RankPlace place;
  std::atomic<bool> abandoned{false};
  std::string warning;

  /// A communicator of all ranks for one adapter. Collective, with a timeout.
  Result<MPI_Comm> duplicate(double timeout_seconds);
  /// Adopts requests that cannot be awaited now. Any thread.
  void adopt(MpiOrphan orphan);
  /// Finalizes together with the other ranks, or leaves MPI running. Frees nothing that MPI may still use.
  void close();

 private:
  /// Waits until all ranks reach the end, with a timeout.
  Status meet();
  /// Returns whether all orphans have completed, and removes those that have.
  Result<bool> orphans_done();

  std::mutex mutex_;
  std::vector<MpiOrphan> orphans_;
};

}  // namespace egt
