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

/// What bounds all transfers of one collective.
struct TransferLimits {
  Clock::time_point deadline;
  double seconds;  ///< for the message
  const std::atomic<bool>& aborted;
};

/// The ranks of a communicator: some of those of an MPI communicator.
struct MpiRanks {
  MPI_Comm comm;
  std::vector<int> members;  ///< each rank's number in `comm`, rising

  int at(int rank) const { return members[static_cast<std::size_t>(rank)]; }
};

/// Waits between two looks at transfers: hardly while their bytes come, longer and longer while they do not.
class TransferPoll {
 public:
  /// An error where the limits are reached.
  Status pause(const TransferLimits& limits);
  void progressed() { *this = {}; }

 private:
  Clock::time_point progress_ = Clock::now();
  std::chrono::microseconds sleep_{5};
};

/// Messages of any size between ranks, under way together. Each goes on by itself, piece by piece, however
/// late the others' peers are. For one thread.
class MpiTransfer {
 public:
  explicit MpiTransfer(const MpiRanks& ranks) : ranks_(&ranks) {}

  /// 0 bytes: no message, on neither side. The receiver names the same bytes and tag.
  Status send(const std::byte* data, std::size_t bytes, int peer, int tag) {
    return begin({data, nullptr, bytes, ranks_->at(peer), tag});
  }
  Status receive(std::byte* data, std::size_t bytes, int peer, int tag) {
    return begin({nullptr, data, bytes, ranks_->at(peer), tag});
  }
  /// Waits for all of them; afterwards the transfer is empty and may be used again. On an error they are
  /// still under way.
  Status finish(const TransferLimits& limits);
  /// After an error: takes back the receives that have not begun; the requests that MPI does not give back.
  std::vector<MPI_Request> withdraw();

 private:
  struct Flow {
    const std::byte* source;  ///< or none: it is received
    std::byte* target;
    std::size_t bytes;
    int peer;
    int tag;
    std::size_t begun = 0;  ///< bytes that were handed to MPI
  };
  Status begin(const Flow& flow);
  /// Hands the flow's next piece to MPI, if there is one.
  Status begin_piece(Flow& flow, MPI_Request& request);

  const MpiRanks* ranks_;
  std::vector<Flow> flows_;
  std::vector<MPI_Request> requests_;  ///< as many for each flow as it has pieces under way
};

}  // namespace egt
