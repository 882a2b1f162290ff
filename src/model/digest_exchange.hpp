#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "egt/core/digest.hpp"
#include "egt/core/progress_board.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"

namespace egt {

/// Digests of one rank, one per question (tensor), in the order in which the tensors are computed.
using Answers = std::vector<Digest>;

/// Waits at most `seconds` for `event`. Returns early if the communicator failed or was aborted.
Status wait_with_peers(Device& device, Communicator& communicator, const Event& event, double seconds,
                       const char* what);

/// All-gather of digests: each rank writes its own on the device, and every rank receives all. A stamp shows
/// that a result is not that of an earlier exchange. One exchange at a time. Collective: the same calls in
/// the same order on all ranks.
class DigestExchange {
 public:
  /// `stream`: stream of the communicator's other collectives. `line`: board line that reports the wait;
  /// null: not reported. All must outlive the exchange.
  DigestExchange(Device& device, Communicator& communicator, Stream& stream, ProgressBoard::Line* line)
      : device_(device), communicator_(communicator), stream_(stream), line_(line) {}

  /// Allocates memory for up to `most` digests per rank.
  Status prepare(std::size_t most);
  /// This rank's digests in device memory; write them before `enqueue`.
  Digest* own() const { return memory_.as<Digest>(); }
  /// Writes digests that the host has to `to`, in `own`. Once per exchange: the copy reads pinned memory of
  /// this object, so that it may still run when a wait for peers has failed.
  Status write(const Answers& digests, Digest* to);
  /// Writes `number` in the place of a digest, as `stamp` has it.
  Status write_stamp(Digest* digest, std::uint32_t number);
  /// Enqueues the exchange of the first `count` digests.
  Status enqueue(std::size_t count);
  /// Waits for the exchange and returns one list per rank. `step`: for the board.
  Result<std::vector<Answers>> collect(double timeout_seconds, std::int64_t step = -1) const;
  /// Exchanges digests that the host has, and waits.
  Result<std::vector<Answers>> exchange(const Answers& digests, double timeout_seconds);
  /// Exchanges `text` and waits. Returns a group number per rank; ranks with equal text have equal numbers.
  /// internal: the ranks do not have the same numbers, because a text changed in transit.
  Result<std::vector<int>> groups_of(const std::string& text, double timeout_seconds);

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(communicator_.size()); }

  Device& device_;
  Communicator& communicator_;
  Stream& stream_;
  ProgressBoard::Line* const line_;
  Buffer memory_;  ///< own digests, then those of all ranks
  Buffer pinned_;  ///< those of all ranks, then those that `write` copies from
  std::unique_ptr<Event> own_done_, done_;
  std::size_t most_ = 0, count_ = 0;  ///< digests per rank, including the stamp
  std::uint32_t number_ = 0;          ///< of the exchange, its stamp
};

}  // namespace egt
