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
/// blocks; holds at most one frame in part and one of each kind behind it.
class HeartbeatLink {
 public:
  static constexpr std::size_t hello_limit = 1024, text_limit = std::size_t{16} << 20;  ///< bytes of a body

  /// Takes a connected or connecting socket and makes it fit: no delay, no blocking.
  explicit HeartbeatLink(Descriptor socket);

  int descriptor() const { return socket_.get(); }
  /// What a peer may send from here on: strangers less than peers.
  void allow(std::size_t bytes) { limit_ = bytes; }

  /// In line to be sent; replaces one of its kind that is not begun.
  void put(FrameKind kind, const std::string& body);
  /// Sends what the system takes now.
  void push();
  bool wants_to_send() const { return !ended_ && (sent_ < sending_.size() || !waiting_.empty()); }
  /// Has the peer's host got everything?
  bool delivered() const;
  /// All whole frames that came.
  std::vector<Frame> take();
  /// The peer closed it, it broke, or what came makes no sense. There may still be frames to take before.
  bool ended() const { return ended_; }
  /// What broke it (errno); 0: nothing did, the peer closed it or talked nonsense.
  int error() const { return error_; }
  /// The network broke it: nothing is known of the peer's process.
  bool was_cut() const;

 private:
  bool next_frame();
  void stop_sending(int error);
  bool receive();
  std::optional<Frame> cut_frame();

  Descriptor socket_;
  std::size_t limit_ = hello_limit;
  std::string sending_;
  std::size_t sent_ = 0;  ///< bytes of `sending_`
  std::vector<Frame> waiting_;
  std::string received_;
  bool ended_ = false;
  int error_ = 0;
};

}  // namespace egt
