#include "ranks/heartbeat/heartbeat_link.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace egt {
namespace {

constexpr std::size_t header_bytes = 5;

std::string header(const Frame& frame) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(frame.body.size() >> shift));
  bytes.push_back(static_cast<char>(frame.kind));
  return bytes;
}

std::size_t body_bytes(const std::string& bytes) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < 4; ++i) size |= std::size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return size;
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOTCONN;
}

}  // namespace

HeartbeatLink::HeartbeatLink(Descriptor socket) : socket_(std::move(socket)) {
  const int yes = 1;
  // If these fail, the link is slower or the next call reports the error.
  (void)::setsockopt(descriptor(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  (void)::fcntl(descriptor(), F_SETFL, O_NONBLOCK);
  (void)::fcntl(descriptor(), F_SETFD, FD_CLOEXEC);
}

void HeartbeatLink::put(FrameKind kind, const std::string& body) {
  const auto same =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Frame& f) { return f.kind == kind; });
  if (same != waiting_.end())
    same->body = body;
  else
    waiting_.push_back({kind, body});
}

bool HeartbeatLink::next_frame() {
  if (sent_ < sending_.size()) return true;
  if (waiting_.empty()) return false;
  sending_ = header(waiting_.front()) + waiting_.front().body;
  sent_ = 0;
  waiting_.erase(waiting_.begin());
  return true;
}

/// Keeps the link readable, since data that the peer sent before the link broke must still be read. `take`
/// then detects the end of the TCP stream, but no longer the error, which is therefore stored here.
void HeartbeatLink::stop_sending(int error) {
  if (error != EPIPE && error_ == 0) error_ = error;
  waiting_.clear();
  sending_.clear();
  sent_ = 0;
}

void HeartbeatLink::push() {
  while (!ended_ && next_frame()) {
    const ssize_t bytes =
        ::send(descriptor(), sending_.data() + sent_, sending_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes < 0 && would_block()) return;
    if (bytes < 0) return stop_sending(errno);
    sent_ += static_cast<std::size_t>(bytes);
  }
}

bool HeartbeatLink::delivered() const {
  if (wants_to_send()) return false;
  int unacknowledged = 0;
  return ended_ || ::ioctl(descriptor(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

bool HeartbeatLink::receive() {
  char bytes[16384];
  const ssize_t count = ::recv(descriptor(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (count > 0) received_.append(bytes, static_cast<std::size_t>(count));
  if (count < 0 && !would_block() && error_ == 0) error_ = errno;
  if (count == 0 || (count < 0 && !would_block())) ended_ = true;
  return count > 0;
}

/// Only a broken network gives these errors: an exiting process or a rebooting node resets the connection.
bool HeartbeatLink::was_cut() const {
  return error_ == ETIMEDOUT || error_ == EHOSTUNREACH || error_ == ENETUNREACH || error_ == ENETDOWN ||
         error_ == EHOSTDOWN;
}

std::optional<Frame> HeartbeatLink::cut_frame() {
  if (received_.size() < header_bytes) return std::nullopt;
  const std::size_t size = body_bytes(received_);
  if (size > limit_) {
    ended_ = true;
    return std::nullopt;
  }
  if (received_.size() < header_bytes + size) return std::nullopt;
  Frame frame{static_cast<FrameKind>(received_[4]), received_.substr(header_bytes, size)};
  received_.erase(0, header_bytes + size);
  return frame;
}

std::vector<Frame> HeartbeatLink::take() {
  std::vector<Frame> frames;
  while (!ended_ && receive())
    while (auto frame = cut_frame()) frames.push_back(std::move(*frame));
  return frames;
}

}  // namespace egt
