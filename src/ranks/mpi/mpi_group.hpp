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

/// Memory for parts of a collective, kept from one to the next.
using Scratch = std::vector<std::byte>;

/// The MPI communicator of all ranks that were opened together: it serves all that is split from it, each
/// with tags of its own. Safe from any thread.
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
  std::atomic<bool> spoiled{false};           ///< something was given up: MPI may still work on it
  std::atomic<std::uint64_t> next_number{1};  ///< no communicator with it or a higher one has this rank
};

/// The ranks of a communicator: what it and its tasks in streams share. Alive until the last task is over.
/// Safe from any thread.
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

  /// Of the first task that failed, or that the communicator was given up.
  Status failure();
  void fail(const Status& status);
  /// Both reach what was split from this one.
  void interrupt();
  void abort();
  void add_child(const std::shared_ptr<MpiGroup>& child);
  /// Of a collective, and the tag behind it is its too; of a message between two ranks. Both are counted from
  /// 0, on all ranks alike.
  int collective_tag(std::size_t sequence) const;
  int message_tag(std::size_t number) const;
  /// `ended`: what gives the transfers up.
  TransferLimits limits_from_now(const std::atomic<bool>& ended) const;
  std::shared_ptr<Scratch> take_scratch(std::size_t bytes);
  void give_scratch(std::shared_ptr<Scratch> scratch);

  const std::shared_ptr<MpiWorld> world;
  const MpiRanks ranks;
  const int rank;
  const int size;
  const double timeout_seconds;
  std::atomic<bool> interrupted{false};  ///< for calls and their waits
  std::atomic<bool> aborted{false};      ///< for tasks too

 private:
  std::vector<std::shared_ptr<MpiGroup>> children();

  const int first_tag_;
  std::mutex mutex_;
  Status failure_;                                 ///< the first
  std::vector<std::shared_ptr<Scratch>> scratch_;  ///< not in use
  std::vector<std::weak_ptr<MpiGroup>> children_;
};

}  // namespace egt
