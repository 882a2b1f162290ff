#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "egt/core/progress_board.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"

namespace egt {

/// Waits until all work of `event`'s stream before it is done, at most `seconds`; ends early where the
/// communicator has failed or was given up.
Status wait_with_peers(Device& device, Communicator& communicator, const Event& event, double seconds,
                       const char* what);

/// Small figures of every rank for every rank, over the communicator, so that a lost peer ends the wait as it
/// ends any other collective. All ranks make the same calls in the same order; one thread.
class ValueExchange {
 public:
  /// `line`: where the wait is told. All outlive the exchange.
  ValueExchange(Device& device, Communicator& communicator, ProgressBoard::Line& line, double timeout_seconds)
      : device_(device), communicator_(communicator), line_(line), timeout_seconds_(timeout_seconds) {}

  /// Takes memory for `most` figures a rank.
  Status prepare(std::size_t most);
  /// Every rank brings as many figures; all get all: [rank * own.size() + i]. Waits; a meeting of all ranks.
  /// `step`, `phase`: for the board.
  Result<std::vector<double>> all(std::span<const double> own, std::int64_t step, const char* phase);
  /// After the communicator was given up: makes the stream ready for the new one, at most `seconds`.
  Status recover(double seconds);

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(communicator_.size()); }

  Device& device_;
  Communicator& communicator_;
  ProgressBoard::Line& line_;
  const double timeout_seconds_;
  Buffer memory_;                 ///< own, then all ranks'
  Buffer pinned_;                 ///< likewise
  std::vector<Buffer> given_up_;  ///< a library may still write to them
  std::unique_ptr<Event> done_;
  std::size_t most_ = 0;
  std::unique_ptr<Stream> stream_;  ///< last: it waits for its work before the buffers go
};

}  // namespace egt
