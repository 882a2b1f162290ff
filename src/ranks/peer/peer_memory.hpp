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

/// What members tell each other by signals: that something has come, and that it was taken.
enum class PeerSignal { come, taken };
constexpr std::size_t peer_signals = 2;

/// Device memory of several ranks of one host that all of them reach: one piece a rank, of equal size.
/// Members are counted from 0, in the order of the list of ranks.
///
/// Its destructor releases the peers' pieces, then waits for the peers to have released this rank's, at most
/// `leave_seconds`, and frees it. Who destroys it makes sure that no enqueued work uses it any more.
class PeerMemory {
 public:
  static constexpr double leave_seconds = 10;

  /// Collective over all ranks of `control`: all leave with the same Status. `ranks`: who shares with this
  /// rank, itself too, the same list on each of them; empty: this rank takes part in the call only, and gets
  /// null. Several groups may open theirs in one call. `bytes` of each member, not initialized; all members
  /// give the same. The device must outlive the memory. Fails as allocate_shared and open_shared do.
  static Result<std::unique_ptr<PeerMemory>> open(Device& device, Control& control, std::size_t bytes,
                                                  const std::vector<int>& ranks);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int size() const { return static_cast<int>(pieces_.size()); }
  int index() const { return index_; }  ///< this rank's
  std::size_t bytes() const { return bytes_; }
  /// The piece of a member, as this rank's device sees it; 256-byte aligned.
  std::byte* data(int member) const;
  /// A signal of a member's, which it awaits and `sender` writes; 0 at first.
  std::uint32_t* signal(int member, PeerSignal which, int sender) const;
  /// Ends what this rank's streams await, now and later, and tells the other members. Any thread.
  void give_up();
  /// Has any member given up?
  bool is_given_up() const;

 private:
  struct Offer;
  /// A member's piece: allocated here, or opened; and its page, on which it tells that it has left, and
  /// others that they have given up and that their signals have come.
  struct Piece {
    Buffer memory;
    std::optional<SharedPages> page;
    Buffer registered;  ///< the page, with the device
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
  bool joined_ = false;  ///< all members have all pieces
  std::vector<Piece> pieces_;
  std::mutex giving_up_;
  std::jthread given_up_;  ///< last: writes the signals again and again, since peers still write theirs
};

}  // namespace egt
