#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "mpi_session_impl.hpp"

namespace egt {

/// What bounds all transfers of one collective.
struct TransferLimits {
  Clock::time_point deadline;
  double seconds;  ///< for the message
  const std::atomic<bool>& aborted;
};

/// Messages between ranks that are under way together. For one thread.
class MpiTransfer {
 public:
  explicit MpiTransfer(MPI_Comm comm) : comm_(comm) {}

  /// 0 bytes: no message, on neither side. At most 2^31 - 1 bytes each.
  Status send(const std::byte* data, std::size_t bytes, int peer, int tag);
  Status receive(std::byte* data, std::size_t bytes, int peer, int tag);
  /// Waits for all of them; afterwards the transfer is empty and may be used again. On an error they are
  /// still under way.
  Status finish(const TransferLimits& limits);
  /// After an error: takes back the receives that have not begun; the requests that MPI does not give back.
  std::vector<MPI_Request> withdraw();

 private:
  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
};

}  // namespace egt
