#include "heartbeat_opening.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "egt/core/clock.hpp"

namespace egt {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_strangers = 64;  ///< connections that said nothing yet, beside the ranks'

class Deadline {
 public:
  explicit Deadline(double seconds) : start_(Clock::now()), seconds_(seconds) {}
  double left() const { return std::max(0.0, seconds_ - seconds_since(start_)); }
  bool passed() const { return left() <= 0; }
  int milliseconds() const { return static_cast<int>(left() * 1000) + 1; }

 private:
  Clock::time_point start_;
  double seconds_;
};

/// How a rank can be reached.
struct Whereabouts {
  std::string hostname;
  int pid = 0;
  int port = 0;
  std::vector<std::string> addresses;
};

/// What all ranks know before they connect.
struct Directory {
  int self = 0;
  std::string token;
  std::vector<Whereabouts> ranks;
};

std::string system_error(const char* what) {
  return fmt::format("{}: {}", what, std::strerror(errno));
}

/// A socket address of either family.
struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::optional<Address> parse_address(const std::string& text, int port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  const auto network_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = network_port;
    address.bytes = sizeof(sockaddr_in);
    return address;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = network_port;
    address.bytes = sizeof(sockaddr_in6);
    return address;
  }
  return std::nullopt;
}

/// An interface's address as text; none where no other host can use it.
std::optional<std::string> usable_address(const ifaddrs& interface) {
  if (!interface.ifa_addr || (interface.ifa_flags & IFF_LOOPBACK) || !(interface.ifa_flags & IFF_UP))
    return {};
  char text[INET6_ADDRSTRLEN] = {};
  if (interface.ifa_addr->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(interface.ifa_addr);
    return ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text)) ? std::optional<std::string>(text)
                                                                   : std::nullopt;
  }
  if (interface.ifa_addr->sa_family != AF_INET6) return {};
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr);
  if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return {};
  return ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text)) ? std::optional<std::string>(text)
                                                                   : std::nullopt;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (const ifaddrs* one = list; one; one = one->ifa_next)
    if (const auto text = usable_address(*one)) addresses.push_back(*text);
  return addresses;
}

/// A listening socket on all addresses of that family, on a port of the system's choice.
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

/// On both families where the host has both.
Result<Descriptor> listen_on_all() {
  auto both = listen_on(AF_INET6);
  return both.ok() ? std::move(both) : listen_on(AF_INET);
}

int port_of(const Descriptor& listener) {
  Address address;
  address.bytes = sizeof(address.storage);
  if (::getsockname(listener.get(), address.get(), &address.bytes) != 0) return 0;
  const std::uint16_t port = address.storage.ss_family == AF_INET6
                                 ? reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port
                                 : reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port;
  return ntohs(port);
}

/// Waits until the socket is ready for `events` (POLLIN, POLLOUT): false when the deadline passed first.
bool wait_for(int descriptor, short events, const Deadline& deadline) {
  pollfd entry{descriptor, events, 0};
  while (!deadline.passed())
    if (::poll(&entry, 1, deadline.milliseconds()) > 0) return true;
  return false;
}

std::string hello_text(const Directory& directory, int to) {
  return Json{{"token", directory.token}, {"rank", directory.self}, {"to", to}}.dump();
}

/// The rank that says this hello to `self`; none: a stranger's.
std::optional<int> rank_of_hello(const Frame& frame, const Directory& directory) {
  if (frame.kind != FrameKind::hello) return std::nullopt;
  const Json hello = Json::parse(frame.body, nullptr, false);
  const bool known = hello.is_object() && hello.value("token", Json()) == directory.token &&
                     hello.value("to", Json()) == directory.self &&
                     hello.value("rank", Json()).is_number_integer();
  if (!known) return std::nullopt;
  const int rank = hello["rank"].get<int>();
  return rank >= 0 && rank < static_cast<int>(directory.ranks.size()) ? std::optional(rank) : std::nullopt;
}

/// The connection's first frame; none where it ended or the deadline passed first.
std::optional<Frame> first_frame(HeartbeatLink& link, const Deadline& deadline) {
  while (!link.ended() && wait_for(link.descriptor(), POLLIN, deadline)) {
    auto frames = link.take();
    if (!frames.empty()) return std::move(frames.front());
  }
  return std::nullopt;
}

Result<Descriptor> connect_to(const Address& address, const Deadline& deadline) {
  Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return Status(StatusCode::unavailable, std::strerror(errno), errno);
  if (::connect(socket.get(), address.get(), address.bytes) == 0) return socket;
  if (errno != EINPROGRESS) return Status(StatusCode::unavailable, std::strerror(errno), errno);
  if (!wait_for(socket.get(), POLLOUT, deadline)) return Status(StatusCode::timeout, "no answer");
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0)
    return Status(StatusCode::unavailable, std::strerror(error), error);
  return socket;
}

/// Connects to rank `peer` at one address, and makes sure that it is that rank.
Result<HeartbeatLink> meet_at(const std::string& text, int peer, const Directory& directory,
                              const Deadline& deadline) {
  const auto address = parse_address(text, directory.ranks[static_cast<std::size_t>(peer)].port);
  if (!address) return Status(StatusCode::invalid_argument, "not an address");
  EGT_TRY_ASSIGN(Descriptor socket, connect_to(*address, deadline));
  HeartbeatLink link(std::move(socket));
  link.put(FrameKind::hello, hello_text(directory, peer));
  link.push();
  const auto answer = first_frame(link, deadline);
  if (!answer) return Status(StatusCode::timeout, "no greeting");
  if (rank_of_hello(*answer, directory) != peer) return Status(StatusCode::unavailable, "somebody else");
  return link;
}

/// Connects to rank `peer`: each of its addresses has its share of the time.
Result<HeartbeatLink> meet(int peer, const Directory& directory, const Deadline& deadline) {
  const Whereabouts& there = directory.ranks[static_cast<std::size_t>(peer)];
  std::vector<std::string> addresses = there.addresses;
  if (there.hostname == directory.ranks[static_cast<std::size_t>(directory.self)].hostname)
    addresses.insert(addresses.begin(), "127.0.0.1");
  std::string tried;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const Deadline share(deadline.left() / static_cast<double>(addresses.size() - i));
    auto link = meet_at(addresses[i], peer, directory, share);
    if (link.ok()) return link;
    tried += fmt::format("{}{} ({})", i ? ", " : "", addresses[i], link.status().what());
  }
  return Status(StatusCode::unavailable,
                fmt::format("rank {} does not reach rank {} on {} at port {}: {}", directory.self, peer,
                            there.hostname, there.port, tried.empty() ? "it has no address" : tried));
}

/// Takes in the connections of all higher ranks; strangers are dropped.
class Reception {
 public:
  Reception(const Descriptor& listener, const Directory& directory)
      : listener_(listener), directory_(directory) {
    for (int rank = directory.self + 1; rank < static_cast<int>(directory.ranks.size()); ++rank)
      missing_.push_back(rank);
  }

  Status run(std::vector<std::pair<int, HeartbeatLink>>& links, const Deadline& deadline) {
    while (!missing_.empty() && !deadline.passed()) {
      std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
      for (const HeartbeatLink& guest : guests_) entries.push_back({guest.descriptor(), POLLIN, 0});
      if (::poll(entries.data(), entries.size(), deadline.milliseconds()) <= 0) continue;
      welcome();
      std::vector<HeartbeatLink> waiting;
      for (HeartbeatLink& guest : guests_)
        if (hear(guest, links)) waiting.push_back(std::move(guest));
      guests_ = std::move(waiting);
    }
    if (missing_.empty()) return {};
    return {StatusCode::timeout, fmt::format("rank {} did not connect to rank {} on {} in time",
                                             missing_.front(), directory_.self, own().hostname)};
  }

 private:
  const Whereabouts& own() const { return directory_.ranks[static_cast<std::size_t>(directory_.self)]; }

  void welcome() {
    for (;;) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) return;
      if (guests_.size() >= missing_.size() + most_strangers) guests_.erase(guests_.begin());
      guests_.emplace_back(std::move(socket));
    }
  }

  /// Does this guest still have to say who it is?
  bool hear(HeartbeatLink& guest, std::vector<std::pair<int, HeartbeatLink>>& links) {
    const auto frames = guest.take();
    if (frames.empty()) return !guest.ended();
    const auto rank = rank_of_hello(frames.front(), directory_);
    const auto place = rank ? std::find(missing_.begin(), missing_.end(), *rank) : missing_.end();
    if (place == missing_.end()) return false;
    missing_.erase(place);
    guest.put(FrameKind::hello, hello_text(directory_, *rank));
    guest.push();
    links.emplace_back(*rank, std::move(guest));
    return false;
  }

  const Descriptor& listener_;
  const Directory& directory_;
  std::vector<int> missing_;
  std::vector<HeartbeatLink> guests_;
};

/// Do all ranks succeed? Else the first one's reason, on all.
Status agree(Control& control, const Status& own) {
  EGT_TRY_ASSIGN(const auto reasons, control.gather(own.what()));
  const auto first =
      std::find_if(reasons.begin(), reasons.end(), [](const auto& why) { return !why.empty(); });
  EGT_TRY_ASSIGN(const std::string why, control.broadcast(first == reasons.end() ? "" : *first));
  if (why.empty()) return {};
  return {StatusCode::unavailable, "no heartbeats between the ranks: " + why};
}

std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

/// Tells all ranks where this one listens, and learns it of all.
Result<Directory> share_directory(Control& control, int port) {
  const Json own = {{"hostname", control.place().hostname},
                    {"pid", ::getpid()},
                    {"port", port},
                    {"addresses", own_addresses()}};
  EGT_TRY_ASSIGN(const auto texts, control.gather(own.dump()));
  Json all = {{"token", texts.empty() ? "" : new_token()}, {"ranks", Json::array()}};
  for (const std::string& text : texts) all["ranks"].push_back(Json::parse(text, nullptr, false));
  EGT_TRY_ASSIGN(const std::string shared, control.broadcast(all.dump()));
  all = Json::parse(shared, nullptr, false);
  Directory directory{control.place().rank, all["token"], {}};
  for (const Json& rank : all["ranks"])
    directory.ranks.push_back({rank["hostname"], rank["pid"], rank["port"], rank["addresses"]});
  return directory;
}

using Links = std::vector<std::pair<int, HeartbeatLink>>;

/// Calls the lower ranks, then takes the calls of the higher ones. A lower rank's greeting comes once it
/// takes calls itself, which rank 0 does at once: so nobody waits for ever.
Status connect_all(const Descriptor& listener, const Directory& directory, const Deadline& deadline,
                   Links& links) {
  for (int peer = 0; peer < directory.self; ++peer) {
    EGT_TRY_ASSIGN(HeartbeatLink link, meet(peer, directory, deadline));
    links.emplace_back(peer, std::move(link));
  }
  return Reception(listener, directory).run(links, deadline);
}

}  // namespace

Result<std::vector<HeartbeatConnection>> open_heartbeat_connections(Control& control,
                                                                    double timeout_seconds) {
  std::vector<HeartbeatConnection> connections;
  if (control.place().size == 1) return connections;
  auto listener = listen_on_all();
  EGT_TRY(agree(control, listener.status()));
  EGT_TRY_ASSIGN(const Directory directory, share_directory(control, port_of(listener.value())));
  Links links;
  EGT_TRY(agree(control, connect_all(listener.value(), directory, Deadline(timeout_seconds), links)));
  std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [rank, link] : links) {
    const Whereabouts& there = directory.ranks[static_cast<std::size_t>(rank)];
    link.allow(HeartbeatLink::text_limit);
    connections.push_back({rank, there.pid, there.hostname, std::move(link)});
  }
  return connections;
}

}  // namespace egt
