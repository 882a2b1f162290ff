#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace egt {

/// What one rank knows at first hand of another.
struct Peer {
  int rank = 0;
  int pid = 0;  ///< on its host
  std::string hostname;
  std::string text;         ///< the newest one it sent; empty: none came yet
  std::uint64_t texts = 0;  ///< how many came
  double seconds = 0;       ///< since the newest one came; since the opening where none came
  bool gone = false;        ///< its connection ended without a goodbye: the process is no more
  bool left = false;        ///< it said goodbye

  bool connected() const { return !gone && !left; }
};

/// The port for signs of life: every rank tells every other one its newest text, on a path of its own that
/// neither the main thread nor MPI can hold up. Only the newest text of a rank counts: an older one that was
/// not sent yet is replaced. Used by one thread; `wake` by any.
///
/// No call waits longer than asked, whatever the peers do. A connection that fails at the peer's end is a
/// peer that is gone; where the network fails, a peer says nothing more. There are no other errors.
class Heartbeat {
 public:
  virtual ~Heartbeat() = default;
  virtual int rank() const = 0;
  /// All other ranks, in rank order.
  virtual const std::vector<Peer>& peers() = 0;

  /// To all others. Never waits: what the network does not take now goes with the next calls.
  virtual void send(const std::string& text) = 0;
  /// Takes in what came; where nothing did, waits at most `wait_seconds` for something: a text, a goodbye,
  /// the end of a peer, or `wake`.
  virtual void poll(double wait_seconds) = 0;
  /// Until all connected peers' hosts have the newest text (true), at most `wait_seconds`.
  virtual bool flush(double wait_seconds) = 0;
  /// Ends the `poll` in progress, or the next one. From any thread.
  virtual void wake() = 0;
  /// An orderly end: peers see `left`, not `gone`. Nothing can be sent afterwards.
  virtual void goodbye() = 0;
};

}  // namespace egt
