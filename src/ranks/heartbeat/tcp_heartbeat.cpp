#include "ranks/heartbeat/tcp_heartbeat.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "egt/core/clock.hpp"
#include "ranks/heartbeat/heartbeat_opening.hpp"

namespace egt {
namespace {

/// A peer that is silent for `quiet_seconds` may be stopped. Send it one text per `quiet_period_seconds`
/// only, so that outdated texts do not fill its buffers and the newest one fits.
constexpr double quiet_seconds = 1, quiet_period_seconds = 1;
constexpr double goodbye_seconds = 0.5;

class TcpHeartbeat final : public Heartbeat {
 public:
  TcpHeartbeat(int rank, Descriptor alarm, std::vector<HeartbeatConnection> connections);

  int rank() const override { return rank_; }
  const std::vector<Peer>& peers() override;
  void send(const std::string& text) override;
  void poll(double wait_seconds) override;
  bool flush(double wait_seconds) override;
  void wake() override;
  void goodbye() override;

 private:
  struct Line {
    HeartbeatLink link;
    Clock::time_point heard = Clock::now(), put = Clock::time_point();
    bool up_to_date = true;  ///< the newest text was queued
  };

  bool take_in();
  bool take_in(Peer& peer, Line& line);
  void push(bool to_quiet_ones);
  bool wait(double seconds);
  bool delivered() const;

  const int rank_;
  Descriptor alarm_;
  std::string newest_;
  std::vector<Peer> peers_;
  std::vector<Line> lines_;  ///< parallel to `peers_`
};

TcpHeartbeat::TcpHeartbeat(int rank, Descriptor alarm, std::vector<HeartbeatConnection> connections)
    : rank_(rank), alarm_(std::move(alarm)) {
  for (HeartbeatConnection& connection : connections) {
    peers_.emplace_back();
    peers_.back().rank = connection.rank;
    peers_.back().pid = connection.pid;
    peers_.back().hostname = connection.hostname;
    lines_.push_back({.link = std::move(connection.link)});
  }
}

const std::vector<Peer>& TcpHeartbeat::peers() {
  for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i].seconds = seconds_since(lines_[i].heard);
  return peers_;
}

void TcpHeartbeat::send(const std::string& text) {
  newest_ = text;
  for (Line& line : lines_) line.up_to_date = false;
  push(false);
}

void TcpHeartbeat::push(bool to_quiet_ones) {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    Line& line = lines_[i];
    if (!peers_[i].connected()) continue;
    const bool due = to_quiet_ones || seconds_since(line.heard) < quiet_seconds ||
                     seconds_since(line.put) >= quiet_period_seconds;
    if (!line.up_to_date && due) {
      line.link.put(FrameKind::text, newest_);
      line.put = Clock::now();
      line.up_to_date = true;
    }
    line.link.push();
  }
}

/// Receives one peer's frames, and returns whether anything happened.
bool TcpHeartbeat::take_in(Peer& peer, Line& line) {
  if (!peer.connected()) return false;
  auto frames = line.link.take();
  for (Frame& frame : frames) {
    line.heard = Clock::now();
    if (frame.kind == FrameKind::goodbye) peer.left = true;
    if (frame.kind != FrameKind::text) continue;
    peer.text = std::move(frame.body);
    ++peer.texts;
  }
  peer.gone = line.link.ended() && !line.link.was_cut() && !peer.left;
  return !frames.empty() || peer.gone;
}

bool TcpHeartbeat::take_in() {
  bool any = false;
  for (std::size_t i = 0; i < lines_.size(); ++i) any = take_in(peers_[i], lines_[i]) || any;
  return any;
}

/// Waits until data can be received or sent. True: woken by `wake`.
bool TcpHeartbeat::wait(double seconds) {
  std::vector<pollfd> entries = {{alarm_.get(), POLLIN, 0}};
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const HeartbeatLink& link = lines_[i].link;
    if (!peers_[i].connected() || link.ended()) continue;
    entries.push_back(
        {link.descriptor(), static_cast<short>(link.wants_to_send() ? POLLIN | POLLOUT : POLLIN), 0});
  }
  if (::poll(entries.data(), entries.size(), static_cast<int>(seconds * 1000)) <= 0) return false;
  std::uint64_t count = 0;
  return (entries[0].revents & POLLIN) && ::read(alarm_.get(), &count, sizeof(count)) > 0;
}

void TcpHeartbeat::poll(double wait_seconds) {
  const Clock::time_point start = Clock::now();
  for (bool woken = false;;) {
    push(false);
    if (take_in() || woken) return;
    const double left = wait_seconds - seconds_since(start);
    if (left <= 0) return;
    woken = wait(left + 0.001);
  }
}

bool TcpHeartbeat::delivered() const {
  for (std::size_t i = 0; i < lines_.size(); ++i)
    if (peers_[i].connected() && !lines_[i].link.delivered()) return false;
  return true;
}

bool TcpHeartbeat::flush(double wait_seconds) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    push(true);
    take_in();
    if (delivered()) return true;
    if (seconds_since(start) >= wait_seconds) return false;
    // An acknowledgement does not wake poll.
    ::usleep(1000);
  }
}

void TcpHeartbeat::wake() {
  const std::uint64_t one = 1;
  // It fails only if the counter is full, and then poll wakes anyway.
  (void)!::write(alarm_.get(), &one, sizeof(one));
}

void TcpHeartbeat::goodbye() {
  for (std::size_t i = 0; i < lines_.size(); ++i)
    if (peers_[i].connected()) lines_[i].link.put(FrameKind::goodbye, {});
  flush(goodbye_seconds);
}

}  // namespace

Result<std::unique_ptr<Heartbeat>> open_tcp_heartbeat(Control& control, double timeout_seconds) {
  Descriptor alarm(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const Status own =
      alarm.valid() ? Status()
                    : Status(StatusCode::unavailable, std::string("eventfd: ") + std::strerror(errno), errno);
  EGT_TRY_ASSIGN(auto connections, open_heartbeat_connections(control, own, timeout_seconds));
  return std::unique_ptr<Heartbeat>(
      new TcpHeartbeat(control.place().rank, std::move(alarm), std::move(connections)));
}

}  // namespace egt
