#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "egt/core/progress_board.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "model/digest_exchange.hpp"

namespace egt {

/// All-gathers a few values per rank over the communicator, so that a lost peer ends the wait like any other
/// collective. Collective: the same calls in the same order on all ranks. One thread.
class ValueExchange {
 public:
  /// `line`: board line that reports the wait. All must outlive the exchange.
  ValueExchange(Device& device, Communicator& communicator, ProgressBoard::Line& line, double timeout_seconds)
      : device_(device), communicator_(communicator), line_(line), timeout_seconds_(timeout_seconds) {}

  /// Allocates memory for up to `most` values per rank.
  Status prepare(std::size_t most);
  /// Each rank passes equally many values and receives all: [rank * own.size() + i]. Blocks; acts as a
  /// barrier. `step`, `phase`: for the board.
  Result<std::vector<double>> all(std::span<const double> own, std::int64_t step, const char* phase);
  /// After the communicator was aborted: prepares the stream for the new one, within `seconds`.
  Status recover(double seconds);

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(communicator_.size()); }

  Device& device_;
  Communicator& communicator_;
  ProgressBoard::Line& line_;
  const double timeout_seconds_;
  Buffer memory_;                 ///< own values, then those of all ranks
  Buffer pinned_;                 ///< own values, then those of all ranks
  std::vector<Buffer> given_up_;  ///< kept, since MPI or NCCL may still write to them
  std::unique_ptr<Event> done_;
  std::size_t most_ = 0;
  std::unique_ptr<Stream> stream_;  ///< last: its destructor waits for its work before the buffers are freed
};

}  // namespace egt
