#include "ranks/heartbeat/heartbeat_opening.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "ranks/heartbeat/heartbeat_address.hpp"
#include "ranks/heartbeat/heartbeat_meeting.hpp"

namespace egt {
namespace {

using Json = nlohmann::json;

std::string system_error(const char* what) {
  return fmt::format("{}: {}", what, std::strerror(errno));
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
  return ::getsockname(listener.get(), address.get(), &address.bytes) == 0 ? port_of(address) : 0;
}

/// Do all ranks succeed? Else the last one's reason, on all: of two ranks that do not meet the higher one
/// calls, and so knows more.
Status agree(Control& control, const Status& own) {
  EGT_TRY_ASSIGN(const auto reasons, control.gather(own.what()));
  const auto last =
      std::find_if(reasons.rbegin(), reasons.rend(), [](const auto& why) { return !why.empty(); });
  EGT_TRY_ASSIGN(const std::string why, control.broadcast(last == reasons.rend() ? "" : *last));
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
  EGT_TRY_ASSIGN(const auto texts, control.gather(own.dump(-1, ' ', false, Json::error_handler_t::replace)));
  Json all = {{"token", texts.empty() ? "" : new_token()}, {"ranks", Json::array()}};
  for (const std::string& text : texts) all["ranks"].push_back(Json::parse(text, nullptr, false));
  EGT_TRY_ASSIGN(const std::string shared, control.broadcast(all.dump()));
  all = Json::parse(shared, nullptr, false);
  Directory directory{control.place().rank, all["token"], {}};
  for (const Json& rank : all["ranks"])
    directory.ranks.push_back({rank["hostname"], rank["pid"], rank["port"], rank["addresses"]});
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
  EGT_TRY(agree(control, own.ok() ? listener.status() : own));
  EGT_TRY_ASSIGN(const Directory directory, share_directory(control, port_of(listener.value())));
  HeartbeatLinks links;
  EGT_TRY(agree(control, meet_all(listener.value(), directory, timeout_seconds, links)));
  std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [rank, link] : links) {
    const Whereabouts& there = directory.ranks[static_cast<std::size_t>(rank)];
    link.allow(HeartbeatLink::text_limit);
    connections.push_back({rank, there.pid, there.hostname, std::move(link)});
  }
  return connections;
}

}  // namespace egt
