#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "egt/core/progress_board.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "workload/common/digest_vote.hpp"

namespace egt {

/// Digests of every rank for every rank: each writes its own on its device, all get all. One exchange at a
/// time. All ranks make the same calls in the same order.
class DigestExchange {
 public:
  /// `stream`: where the communicator's other collectives run; `line`: where the wait is reported. All
  /// outlive the exchange.
  DigestExchange(Device& device, Communicator& communicator, Stream& stream, ProgressBoard::Line& line)
      : device_(device), communicator_(communicator), stream_(stream), line_(line) {}

  /// Takes memory for `most` digests a rank.
  Status prepare(std::size_t most);
  /// Where this rank's digests go, in device memory, before `enqueue`.
  Digest* own() const { return memory_.as<Digest>(); }
  /// Puts the exchange of the first `count` in the stream.
  Status enqueue(std::size_t count);
  /// Waits for it: one list a rank. `step`: for the board.
  Result<std::vector<Answers>> collect(double timeout_seconds, std::int64_t step = -1);
  /// Exchanges `text` and waits: ranks that brought the same text get the same number, of each rank.
  Result<std::vector<int>> groups_of(const std::string& text, double timeout_seconds);

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(communicator_.size()); }

  Device& device_;
  Communicator& communicator_;
  Stream& stream_;
  ProgressBoard::Line& line_;
  Buffer memory_;  ///< own, then all ranks'
  Buffer pinned_;  ///< all ranks'
  std::unique_ptr<Event> own_done_, done_;
  std::size_t most_ = 0, count_ = 0;
};

}  // namespace egt
