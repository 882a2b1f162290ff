#pragma once

#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// MPI of this process, from MPI_Init_thread to MPI_Finalize, once per process. Without mpirun it has one
/// rank. Everything opened from it must be destroyed before it.
///
/// Start: MPI_Init waits for the other ranks; mpirun ends the job if one exits during MPI_Init.
/// End: the destructor waits for the other ranks for up to `finalize_seconds`, then finalizes. If a peer does
/// not arrive, or after `abandon`, it does not finalize, so that it never hangs, and the process can exit. If
/// MPI_Finalize itself hangs, the process ends after a minute. In both cases mpirun ends the remaining ranks,
/// reports that one "exited improperly", and returns a nonzero code. Unreceived messages of an aborted
/// collective do not block the destructor.
class MpiSession {
 public:
  static constexpr double finalize_seconds = 10;

  /// `unavailable` if MPI lacks MPI_THREAD_MULTIPLE (the all-reduce runs on the stream's thread).
  static Result<std::unique_ptr<MpiSession>> open(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  const RankPlace& place() const;
  /// "Open MPI 4.1.4", as reported by the library.
  std::string mpi_version() const;
  /// What slows MPI down here, with the fix; empty: nothing.
  const std::string& warning() const;
  /// A peer is lost, so the destructor neither waits for the other ranks nor finalizes. Any thread.
  void abandon();

  struct Impl;  ///< for the adapters in src/ranks only
  Impl& impl() { return *impl_; }

 private:
  explicit MpiSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace egt
