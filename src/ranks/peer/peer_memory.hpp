#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/shared/shared_pages.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

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

 private:
  struct Offer;
  /// A member's piece: allocated here, or opened; and its page, on which it tells that it has left.
  struct Piece {
    Buffer memory;
    std::optional<SharedPages> page;
    int process = 0;
  };

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
};

}  // namespace egt
