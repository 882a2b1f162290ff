#include "ranks/heartbeat/heartbeat_opening.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <list>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "egt/core/clock.hpp"
#include "egt/core/json_access.hpp"
#include "egt/ranks/agreement.hpp"
#include "ranks/heartbeat/heartbeat_address.hpp"

namespace egt {
namespace {

using Json = nlohmann::json;

/// Contact data of a rank.
struct RankAddress {
  std::string token;  ///< rank 0's token is the run's
  std::string hostname;
  int pid = 0;
  int port = 0;
  std::vector<std::string> addresses;
};

/// Data that all ranks share before they connect.
struct Directory {
  int self = 0;
  std::vector<RankAddress> ranks;

  const RankAddress& own() const { return ranks[static_cast<std::size_t>(self)]; }
  const std::string& token() const { return ranks.front().token; }
};

constexpr std::size_t max_strangers = 64;      ///< max connections without a hello, plus one per awaited rank
constexpr double next_address_seconds = 0.25;  ///< as in browsers (RFC 8305)

std::string hello_text(const Directory& directory, int to) {
  return Json{{"token", directory.token()}, {"rank", directory.self}, {"to", to}}.dump();
}

/// The rank that sent this hello to `self`; std::nullopt: an unknown sender.
std::optional<int> rank_of_hello(const Frame& frame, const Directory& directory) {
  if (frame.kind != FrameKind::hello) return std::nullopt;
  const Json hello = Json::parse(frame.body, nullptr, false);
  const bool known = hello.is_object() && hello.value("token", Json()) == directory.token() &&
                     hello.value("to", Json()) == directory.self &&
                     hello.value("rank", Json()).is_number_integer();
  if (!known) return std::nullopt;
  const int rank = hello["rank"].get<int>();
  return rank >= 0 && rank < static_cast<int>(directory.ranks.size()) ? std::optional(rank) : std::nullopt;
}

pollfd entry_of(const HeartbeatLink& link) {
  return {link.descriptor(), static_cast<short>(link.wants_to_send() ? POLLIN | POLLOUT : POLLIN), 0};
}

/// A connection in progress, or its errno.
Result<Descriptor> begin_connection(const std::string& text, int port) {
  const auto address = parse_address(text, port);
  if (!address) return Status(StatusCode::invalid_argument, "not an address");
  Descriptor socket(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return Status(StatusCode::unavailable, std::strerror(errno), errno);
  if (::connect(socket.get(), address->get(), address->bytes) != 0 && errno != EINPROGRESS)
    return Status(StatusCode::unavailable, std::strerror(errno), errno);
  return socket;
}

/// The connection attempts to one rank.
class Call {
 public:
  Call(int peer, const Directory& directory)
      : peer_(peer), directory_(directory), addresses_(there().addresses) {
    if (there().hostname == directory.own().hostname) addresses_.insert(addresses_.begin(), "127.0.0.1");
  }

  int peer() const { return peer_; }
  /// Starts due attempts and polls those in progress. Returns the link to the rank once it has sent a hello.
  std::optional<HeartbeatLink> turn();
  bool has_failed() const { return next_ == addresses_.size() && attempts_.empty(); }
  /// Seconds until `turn` can start another attempt.
  double seconds_to_next() const;
  void add_entries(std::vector<pollfd>& entries) const {
    for (const Attempt& attempt : attempts_) entries.push_back(entry_of(attempt.link));
  }
  Status failure(StatusCode code) const;

 private:
  struct Attempt {
    std::string address;
    HeartbeatLink link;
  };

  const RankAddress& there() const { return directory_.ranks[static_cast<std::size_t>(peer_)]; }
  void begin_next();
  static std::string tale_of(const std::string& address, const std::string& why) {
    return fmt::format("{} ({})", address, why);
  }

  int peer_;
  const Directory& directory_;
  std::vector<std::string> addresses_;
  std::size_t next_ = 0;  ///< index of the next address to call
  Clock::time_point begun_at_;
  std::vector<Attempt> attempts_;   ///< in progress
  std::vector<std::string> tales_;  ///< of failed attempts
};

void Call::begin_next() {
  const std::string& address = addresses_[next_++];
  begun_at_ = Clock::now();
  auto socket = begin_connection(address, there().port);
  if (!socket.ok()) return tales_.push_back(tale_of(address, socket.status().what()));
  attempts_.push_back({address, HeartbeatLink(std::move(socket.value()))});
  attempts_.back().link.put(FrameKind::hello, hello_text(directory_, peer_));
}

std::optional<HeartbeatLink> Call::turn() {
  for (auto attempt = attempts_.begin(); attempt != attempts_.end();) {
    HeartbeatLink& link = attempt->link;
    link.push();
    const auto frames = link.take();
    if (!frames.empty() && rank_of_hello(frames.front(), directory_) == peer_) return std::move(link);
    if (frames.empty() && !link.ended()) {
      ++attempt;
      continue;
    }
    const bool broke = frames.empty() && link.error() != 0;
    tales_.push_back(tale_of(attempt->address, broke ? std::strerror(link.error()) : "another program"));
    attempt = attempts_.erase(attempt);
  }
  while (next_ < addresses_.size() && (attempts_.empty() || seconds_to_next() <= 0)) begin_next();
  return std::nullopt;
}

double Call::seconds_to_next() const {
  if (next_ == addresses_.size()) return std::numeric_limits<double>::infinity();
  return next_ == 0 ? 0 : next_address_seconds - seconds_since(begun_at_);
}

Status Call::failure(StatusCode code) const {
  std::vector<std::string> tales = tales_;
  for (const Attempt& attempt : attempts_)
    tales.push_back(tale_of(attempt.address, attempt.link.wants_to_send() ? "no answer" : "no greeting"));
  if (tales.empty()) tales.push_back("it has no address");
  return {code, fmt::format("rank {} does not reach rank {} on {} at port {}: {}", directory_.self, peer_,
                            there().hostname, there().port, fmt::join(tales, ", "))};
}

/// Connects to the lower ranks and accepts connections of the higher ones concurrently, until each has proved
/// that it knows the token. The addresses of a rank are tried in order. The next one is tried when the
/// earlier ones failed, or after `next_address_seconds`. Earlier attempts continue until one of them reaches
/// the rank. An unreachable address therefore costs little time, and an address of another node is harmless.
///
/// Connections of unknown peers on `listener`, a listening socket, are dropped.
class Meeting {
 public:
  Meeting(const Descriptor& listener, const Directory& directory,
          std::vector<HeartbeatConnection>& connections)
      : listener_(listener), directory_(directory), connections_(connections) {
    for (int rank = 0; rank < directory.self; ++rank) calls_.emplace_back(rank, directory);
    for (int rank = directory.self + 1; rank < static_cast<int>(directory.ranks.size()); ++rank)
      missing_.push_back(rank);
  }

  Status run(double timeout_seconds) {
    const Clock::time_point start = Clock::now();
    for (;;) {
      EGT_TRY(make_calls());
      welcome();
      hear_guests();
      if (calls_.empty() && missing_.empty()) return {};
      const double left = timeout_seconds - seconds_since(start);
      if (left <= 0) return lateness();
      wait(left);
    }
  }

 private:
  Status make_calls() {
    for (auto call = calls_.begin(); call != calls_.end();) {
      if (auto link = call->turn()) {
        connect(call->peer(), std::move(*link));
        call = calls_.erase(call);
        continue;
      }
      if (call->has_failed()) return call->failure(StatusCode::unavailable);
      ++call;
    }
    return {};
  }

  void welcome() {
    for (;;) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) return;
      if (guests_.size() >= missing_.size() + max_strangers) guests_.erase(guests_.begin());
      guests_.emplace_back(std::move(socket));
    }
  }

  void hear_guests() {
    std::vector<HeartbeatLink> waiting;
    for (HeartbeatLink& guest : guests_)
      if (hear(guest)) waiting.push_back(std::move(guest));
    guests_ = std::move(waiting);
  }

  /// True while the guest's hello is missing. A guest whose rank is connected already is dropped.
  bool hear(HeartbeatLink& guest) {
    const auto frames = guest.take();
    if (frames.empty()) return !guest.ended();
    const auto rank = rank_of_hello(frames.front(), directory_);
    const auto place = rank ? std::find(missing_.begin(), missing_.end(), *rank) : missing_.end();
    if (place == missing_.end()) return false;
    missing_.erase(place);
    guest.put(FrameKind::hello, hello_text(directory_, *rank));
    guest.push();
    connect(*rank, std::move(guest));
    return false;
  }

  void connect(int rank, HeartbeatLink link) {
    const RankAddress& there = directory_.ranks[static_cast<std::size_t>(rank)];
    link.allow(HeartbeatLink::text_limit);
    connections_.push_back({rank, there.pid, there.hostname, std::move(link)});
  }

  /// Waits until data arrives, or a call's next address is due.
  void wait(double seconds) const {
    std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
    for (const HeartbeatLink& guest : guests_) entries.push_back(entry_of(guest));
    for (const Call& call : calls_) {
      call.add_entries(entries);
      seconds = std::min(seconds, std::max(0.0, call.seconds_to_next()));
    }
    // An error here also occurs in the calls that follow.
    (void)::poll(entries.data(), entries.size(), static_cast<int>(std::ceil(seconds * 1000)));
  }

  Status lateness() const {
    if (!calls_.empty()) return calls_.front().failure(StatusCode::timeout);
    return {StatusCode::timeout, fmt::format("rank {} did not connect to rank {} on {} in time",
                                             missing_.front(), directory_.self, directory_.own().hostname)};
  }

  const Descriptor& listener_;
  const Directory& directory_;
  std::vector<HeartbeatConnection>& connections_;
  std::list<Call> calls_;              ///< to lower ranks
  std::vector<int> missing_;           ///< higher ranks that have not called yet
  std::vector<HeartbeatLink> guests_;  ///< connections without a hello so far
};

std::string system_error(const char* what) {
  return fmt::format("{}: {}", what, std::strerror(errno));
}

/// A listening socket on all addresses of that family, on a port that the system chooses.
Result<Descriptor> listen_on(int family) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return Status(StatusCode::unavailable, system_error("socket"), errno);
  const int no = 0;
  if (family == AF_INET6 && ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) != 0)
    return Status(StatusCode::unavailable, system_error("IPV6_V6ONLY"), errno);
  const Address any = *parse_address(family == AF_INET6 ? "::" : "0.0.0.0", 0);
  if (::bind(socket.get(), any.get(), any.bytes) != 0)
    return Status(StatusCode::unavailable, system_error("bind"), errno);
  if (::listen(socket.get(), SOMAXCONN) != 0)
    return Status(StatusCode::unavailable, system_error("listen"), errno);
  return socket;
}

/// Listens on IPv4 and IPv6 if the node has both.
Result<Descriptor> listen_on_all() {
  auto both = listen_on(AF_INET6);
  return both.ok() ? std::move(both) : listen_on(AF_INET);
}

int port_of(const Descriptor& listener) {
  Address address;
  address.bytes = sizeof(address.storage);
  return ::getsockname(listener.get(), address.get(), &address.bytes) == 0 ? port_of(address) : 0;
}

/// If any rank fails, all ranks return the error of the highest failing rank. If two ranks cannot connect,
/// the higher one initiated the connection, so its error is more specific.
Status agree_on_last(Control& control, const Status& own) {
  EGT_TRY_ASSIGN(const auto reasons, all_gather(control, own.what()));
  const auto last =
      std::find_if(reasons.rbegin(), reasons.rend(), [](const auto& why) { return !why.empty(); });
  if (last == reasons.rend()) return {};
  return {StatusCode::unavailable, "no heartbeats between the ranks: " + *last};
}

std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

/// Exchanges the listening addresses of all ranks.
Result<Directory> share_directory(Control& control, int port) {
  const Json own = {{"token", new_token()},
                    {"hostname", control.place().hostname},
                    {"pid", ::getpid()},
                    {"port", port},
                    {"addresses", own_addresses()}};
  EGT_TRY_ASSIGN(const auto texts, all_gather(control, one_line(own)));
  Directory directory{control.place().rank, {}};
  for (const std::string& text : texts) {
    const Json rank = Json::parse(text, nullptr, false);
    directory.ranks.push_back(
        {rank["token"], rank["hostname"], rank["pid"], rank["port"], rank["addresses"]});
  }
  return directory;
}

}  // namespace

Result<std::vector<HeartbeatConnection>> open_heartbeat_connections(Control& control, const Status& own,
                                                                    double timeout_seconds) {
  std::vector<HeartbeatConnection> connections;
  if (control.place().size == 1) {
    EGT_TRY(own);
    return connections;
  }
  auto listener = listen_on_all();
  EGT_TRY(agree_on_last(control, own.ok() ? listener.status() : own));
  EGT_TRY_ASSIGN(const Directory directory, share_directory(control, port_of(listener.value())));
  EGT_TRY(agree_on_last(control, Meeting(listener.value(), directory, connections).run(timeout_seconds)));
  std::sort(connections.begin(), connections.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return connections;
}

}  // namespace egt
