#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>

namespace egt {

/// A socket address of either family.
struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// None: `text` is no address of either family.
std::optional<Address> parse_address(const std::string& text, int port);
int port_of(const Address& address);

/// Of this host's interfaces that are up, as text; those that no other host can use left out. Which of them a
/// certain host can reach is not known here: behind a tunnel or a bridge of containers sits nobody else.
std::vector<std::string> own_addresses();

}  // namespace egt
