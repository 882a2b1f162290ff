#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "ranks/mpi/mpi_session_impl.hpp"

namespace egt {

/// Limits of all transfers of one collective.
struct TransferLimits {
  Clock::time_point deadline;
  double seconds;  ///< for the error message
  const std::atomic<bool>& aborted;
};

/// The ranks of a communicator, a subset of an MPI communicator.
struct MpiRanks {
  MPI_Comm comm;
  std::vector<int> members;  ///< each rank's number in `comm`, ascending

  int at(int rank) const { return members[static_cast<std::size_t>(rank)]; }
};

/// Pauses between polls of transfers: briefly while bytes arrive, longer and longer while they do not.
class TransferPoll {
 public:
  /// Returns an error if a limit is reached.
  Status pause(const TransferLimits& limits);
  void progressed() { *this = {}; }

 private:
  Clock::time_point progress_ = Clock::now();
  std::chrono::microseconds sleep_{5};
};

/// Messages of any size between ranks, in flight together. Each progresses piece by piece, however late the
/// peers of other messages are. One thread.
class MpiTransfer {
 public:
  explicit MpiTransfer(const MpiRanks& ranks) : ranks_(&ranks) {}

  /// 0 bytes: no message, on either side. The receiver uses the same size and tag.
  Status send(const std::byte* data, std::size_t bytes, int peer, int tag) {
    return begin({data, nullptr, bytes, ranks_->at(peer), tag});
  }
  Status receive(std::byte* data, std::size_t bytes, int peer, int tag) {
    return begin({nullptr, data, bytes, ranks_->at(peer), tag});
  }
  /// Waits for all messages. Afterwards the transfer is empty and may be used again. After an error they are
  /// still in flight.
  Status finish(const TransferLimits& limits);
  /// After an error: withdraws the receives that have not started. Returns the requests that MPI still holds.
  std::vector<MPI_Request> withdraw();

 private:
  struct Flow {
    const std::byte* source;  ///< null: the flow is received
    std::byte* target;
    std::size_t bytes;
    int peer;
    int tag;
    std::size_t begun = 0;  ///< bytes handed to MPI so far
  };
  Status begin(const Flow& flow);
  /// Hands the flow's next piece to MPI, if there is one.
  Status begin_piece(Flow& flow, MPI_Request& request);

  const MpiRanks* ranks_;
  std::vector<Flow> flows_;
  std::vector<MPI_Request> requests_;  ///< `pieces_under_way` requests per flow
};

}  // namespace egt
