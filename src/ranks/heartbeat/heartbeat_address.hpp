#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>

namespace egt {

/// An IPv4 or IPv6 socket address.
struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// std::nullopt if `text` is not an IPv4 or IPv6 address.
std::optional<Address> parse_address(const std::string& text, int port);
int port_of(const Address& address);

/// Addresses of this node's active interfaces as text, without those that no other node can use. Whether a
/// certain node can reach them is unknown: tunnels and container bridges lead to no other node.
std::vector<std::string> own_addresses();

}  // namespace egt
