#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace egt {

/// State of another rank, as observed directly by this rank.
struct Peer {
  int rank = 0;
  int pid = 0;  ///< on its node
  std::string hostname;
  std::string text;         ///< newest text received; empty: none yet
  std::uint64_t texts = 0;  ///< number of texts received
  double seconds = 0;       ///< since the newest text arrived, or since the opening if none did
  bool gone = false;        ///< its connection ended without a goodbye: the process has exited
  bool left = false;        ///< it sent a goodbye

  bool connected() const { return !gone && !left; }
};

/// The port for heartbeats. Every rank sends its newest text to all other ranks, on a separate path that
/// neither the main thread nor MPI can delay. Only the newest text of a rank counts and replaces an older
/// unsent one. Used by one thread; `wake` by any.
///
/// No call waits longer than asked, whatever the peers do. A connection that fails at the peer's end means
/// that the peer is gone. If the network fails, a peer only becomes silent. There are no other errors.
class Heartbeat {
 public:
  virtual ~Heartbeat() = default;
  virtual int rank() const = 0;
  /// All other ranks, in rank order.
  virtual const std::vector<Peer>& peers() = 0;

  /// Sends to all other ranks. Never waits: data that the network does not accept now is sent by later calls.
  virtual void send(const std::string& text) = 0;
  /// Receives pending input. If there is none, waits up to `wait_seconds` for a text, a goodbye, the end of a
  /// peer, or `wake`.
  virtual void poll(double wait_seconds) = 0;
  /// Waits up to `wait_seconds` until the TCP stacks of all connected peers acknowledged the newest text;
  /// true if so.
  virtual bool flush(double wait_seconds) = 0;
  /// Ends the `poll` in progress, or the next one. Any thread.
  virtual void wake() = 0;
  /// Shuts down in an orderly way: peers see `left`, not `gone`. Nothing can be sent afterwards.
  virtual void goodbye() = 0;
};

}  // namespace egt
