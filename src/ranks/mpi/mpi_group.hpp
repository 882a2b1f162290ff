#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "egt/core/status.hpp"
#include "ranks/mpi/mpi_session_impl.hpp"
#include "ranks/mpi/mpi_transfer.hpp"

namespace egt {

/// Memory for parts of a collective, reused by the next ones.
using Scratch = std::vector<std::byte>;

/// The MPI communicator of all ranks that were opened together. It serves all communicators split from it,
/// each with its own tags. Thread-safe.
class MpiWorld {
 public:
  MpiWorld(MpiSession::Impl& s, MPI_Comm c) : session(s), comm(c) {}
  ~MpiWorld() {
    if (!spoiled && !session.abandoned) MPI_Comm_free(&comm);
  }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// The first tag of the communicator with this number.
  int first_tag(std::uint64_t number) const;

  MpiSession::Impl& session;
  MPI_Comm comm;
  std::atomic<bool> spoiled{false};           ///< a transfer was aborted, so MPI may still use `comm`
  std::atomic<std::uint64_t> next_number{1};  ///< no communicator of this rank has this or a higher number
};

/// The ranks of a communicator, shared by it and its tasks in streams. Alive until the last task has ended.
/// Thread-safe.
class MpiGroup {
 public:
  MpiGroup(std::shared_ptr<MpiWorld> w, std::vector<int> members, int own, std::uint64_t number,
           double seconds)
      : world(std::move(w)),
        ranks{world->comm, std::move(members)},
        rank(own),
        size(static_cast<int>(ranks.members.size())),
        timeout_seconds(seconds),
        first_tag_(world->first_tag(number)) {}

  /// The error of the first failed task, or that the communicator was aborted.
  Status failure();
  void fail(const Status& status);
  /// Both also apply to the communicators split from this one.
  void interrupt();
  void abort();
  void add_child(const std::shared_ptr<MpiGroup>& child);
  /// Tag of a collective, which also owns the next tag, and tag of a message between two ranks. Arguments
  /// count from 0 and are the same on all ranks.
  int collective_tag(std::size_t sequence) const;
  int message_tag(std::size_t number) const;
  /// `ended` aborts the transfers.
  TransferLimits limits_from_now(const std::atomic<bool>& ended) const;
  std::shared_ptr<Scratch> take_scratch(std::size_t bytes);
  void give_scratch(std::shared_ptr<Scratch> scratch);

  const std::shared_ptr<MpiWorld> world;
  const MpiRanks ranks;
  const int rank;
  const int size;
  const double timeout_seconds;
  std::atomic<bool> interrupted{false};  ///< ends calls and their waits
  std::atomic<bool> aborted{false};      ///< also ends tasks

 private:
  std::vector<std::shared_ptr<MpiGroup>> children();

  const int first_tag_;
  std::mutex mutex_;
  Status failure_;                                 ///< first failure
  std::vector<std::shared_ptr<Scratch>> scratch_;  ///< not in use
  std::vector<std::weak_ptr<MpiGroup>> children_;
};

}  // namespace egt
