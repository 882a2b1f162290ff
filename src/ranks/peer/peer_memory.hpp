#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/shared/shared_pages.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// Signals between members: data arrived in the receiver's memory, and the receiver has used it.
enum class PeerSignal { come, taken };
constexpr std::size_t peer_signals = 2;

/// Device memory of several ranks on one node that all of them can access: one piece per rank, of equal size.
/// Members are counted from 0, in the order of the list of ranks.
///
/// The destructor releases the peers' pieces, waits up to `leave_seconds` until the peers have released this
/// rank's, and frees it. The owner must ensure that no enqueued work still uses it.
class PeerMemory {
 public:
  static constexpr double leave_seconds = 10;

  /// Collective over all ranks of `control`, which return the same Status. `ranks`: those that share with
  /// this rank, including this one, the same list on each. A rank with an empty list only takes part and gets
  /// null. Several groups may open in one call. `bytes` per member, not initialized, equal on all members.
  /// The device must outlive the memory. Fails like allocate_shared and open_shared.
  static Result<std::unique_ptr<PeerMemory>> open(Device& device, Control& control, std::size_t bytes,
                                                  const std::vector<int>& ranks);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int size() const { return static_cast<int>(pieces_.size()); }
  int index() const { return index_; }  ///< this rank's member number
  std::size_t bytes() const { return bytes_; }
  /// A member's piece as seen by this rank's device; 256-byte aligned.
  std::byte* data(int member) const;
  /// The signal that `sender` writes and `member` waits for, in the member's page; initially 0.
  std::uint32_t* signal(int member, PeerSignal which, int sender) const;
  /// Ends all current and later signal waits of this rank's streams, and informs the other members. Any
  /// thread.
  void give_up();
  /// Returns whether any member has aborted.
  bool is_given_up() const;

 private:
  struct Offer;
  /// A member's memory, allocated here or opened, and its page of shared host memory. The first word of the
  /// page shows that the member has released its peers' memory. Other members write the rest: an abort flag,
  /// and the signals for which the member waits.
  struct Piece {
    Buffer memory;
    std::optional<SharedPages> page;
    Buffer registered;  ///< `page` as registered with this device, so that its streams can use the signals
    int process = 0;
  };
  static constexpr std::size_t released_word = 0, given_up_word = 1, first_signal = 2;
  std::size_t page_bytes() const {
    return (first_signal + peer_signals * pieces_.size()) * sizeof(std::uint32_t);
  }
  std::uint32_t* word(int member, std::size_t index) const;

  PeerMemory(std::size_t bytes, std::size_t members, int index)
      : bytes_(bytes), index_(index), pieces_(members) {}
  static Result<std::unique_ptr<PeerMemory>> prepare(Device& device, int rank, std::size_t bytes,
                                                     const std::vector<int>& ranks, Offer& offer);
  Status open_peers(Device& device, const std::vector<int>& ranks, const Offer& own,
                    const std::vector<Offer>& offers);
  void release_peers();
  bool peers_have_left() const;

  const std::size_t bytes_;
  const int index_;
  bool joined_ = false;  ///< all members have opened all pieces
  std::vector<Piece> pieces_;
  std::mutex giving_up_;
  std::jthread given_up_;  ///< last member; writes the signals repeatedly, since peers may overwrite them
};

}  // namespace egt
