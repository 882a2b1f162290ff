#pragma once

#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// MPI of this process, from MPI_Init_thread to MPI_Finalize; at most one in a process's life. Without mpirun
/// it is one rank. Everything opened from it must be destroyed before it.
///
/// Starting: MPI_Init itself meets the other ranks; mpirun ends the job when one dies there.
/// Ending: the destructor meets the other ranks for at most `finalize_seconds`, then finalizes. When a peer
/// does not come by then, or after `abandon`, it does not finalize, so that it never hangs: the process can
/// go on to exit, and mpirun then ends the ranks that remain, says that one "exited improperly", and returns
/// a code other than 0. Messages that nobody took (of a collective that was given up) do not hinder it.
class MpiSession {
 public:
  static constexpr double finalize_seconds = 10;

  /// `unavailable` when MPI lacks MPI_THREAD_MULTIPLE (the all-reduce runs on the stream's thread).
  static Result<std::unique_ptr<MpiSession>> open(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  const RankPlace& place() const;
  /// "Open MPI 4.1.4", as the library says.
  std::string mpi_version() const;
  /// What slows MPI down here, with the fix; empty: nothing.
  const std::string& warning() const;
  /// A peer is lost: the destructor shall not meet the others nor finalize. From any thread.
  void abandon();

  struct Impl;  ///< for the adapters in src/ranks only
  Impl& impl() { return *impl_; }

 private:
  explicit MpiSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace egt
