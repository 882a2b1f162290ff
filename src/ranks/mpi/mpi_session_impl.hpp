#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ranks/mpi/mpi_session.hpp"

namespace egt {

/// Ok, or what MPI says about `call`.
Status mpi_status(int code, const char* call);
/// Have all of them come to their end? Never waits.
Result<bool> mpi_done(std::span<MPI_Request> requests);

/// Requests that nobody waits for any more, and the memory that MPI may still use for them.
struct MpiOrphan {
  std::vector<MPI_Request> requests;
  std::shared_ptr<const void> memory;
};

struct MpiSession::Impl {
  MPI_Comm world = MPI_COMM_NULL;  ///< a duplicate of MPI_COMM_WORLD that returns its errors
  RankPlace place;
  std::atomic<bool> abandoned{false};
  std::string warning;

  /// A communicator of all ranks for one adapter. Collective, bounded.
  Result<MPI_Comm> duplicate(double timeout_seconds);
  /// Takes over what cannot be waited for here and now. From any thread.
  void adopt(MpiOrphan orphan);
  /// Meets the others and finalizes, or leaves MPI as it is; frees nothing that MPI may still use.
  void close();

 private:
  /// Waits for all ranks to come to the end; bounded.
  Status meet();
  /// Have all orphans come to their end? Forgets those that have.
  Result<bool> orphans_done();

  std::mutex mutex_;
  std::vector<MpiOrphan> orphans_;
};

}  // namespace egt
