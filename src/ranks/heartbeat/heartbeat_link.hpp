#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/file_io.hpp"

namespace egt {

enum class FrameKind : std::uint8_t { hello = 1, text = 2, goodbye = 3 };

struct Frame {
  FrameKind kind;
  std::string body;
};

/// One TCP connection that carries frames: [bytes of the body: u32, little endian][kind: u8][body]. Never
/// blocks. Holds up to one partly sent frame, and one waiting frame of each kind.
class HeartbeatLink {
 public:
  static constexpr std::size_t hello_limit = 1024, text_limit = std::size_t{16} << 20;  ///< bytes of a body

  /// Owns a connected or connecting socket, and sets it to no delay and non-blocking.
  explicit HeartbeatLink(Descriptor socket);

  int descriptor() const { return socket_.get(); }
  /// Limits the body size of received frames. The limit is lower before a peer has identified its rank.
  void allow(std::size_t bytes) { limit_ = bytes; }

  /// Queues a frame. It replaces a frame of its kind whose sending has not started.
  void put(FrameKind kind, const std::string& body);
  /// Sends as much as the system accepts now.
  void push();
  bool wants_to_send() const { return !ended_ && (sent_ < sending_.size() || !waiting_.empty()); }
  /// Returns whether the peer's TCP stack has acknowledged everything.
  bool delivered() const;
  /// Returns all complete frames received.
  std::vector<Frame> take();
  /// True if the peer closed the link, it broke, or data was invalid. Earlier frames may still be readable.
  bool ended() const { return ended_; }
  /// The errno that broke the link; 0: it is intact, or the peer closed it or sent invalid data.
  int error() const { return error_; }
  /// The network broke the link, so the state of the peer's process is unknown.
  bool was_cut() const;

 private:
  bool next_frame();
  void stop_sending(int error);
  bool receive();
  std::optional<Frame> cut_frame();

  Descriptor socket_;
  std::size_t limit_ = hello_limit;
  std::string sending_;
  std::size_t sent_ = 0;  ///< bytes of `sending_` sent so far
  std::vector<Frame> waiting_;
  std::string received_;
  bool ended_ = false;
  int error_ = 0;
};

}  // namespace egt
