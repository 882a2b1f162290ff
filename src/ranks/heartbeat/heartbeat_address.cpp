#include "ranks/heartbeat/heartbeat_address.hpp"

#include <cstdint>
#include <memory>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

namespace egt {
namespace {

/// The address as text; std::nullopt if no other node can use it.
std::optional<std::string> usable_address(const ifaddrs& interface) {
  if (!interface.ifa_addr || (interface.ifa_flags & IFF_LOOPBACK) || !(interface.ifa_flags & IFF_UP))
    return {};
  const int family = interface.ifa_addr->sa_family;
  const void* number = nullptr;
  if (family == AF_INET) number = &reinterpret_cast<const sockaddr_in*>(interface.ifa_addr)->sin_addr;
  if (family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr);
    if (!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) number = &v6->sin6_addr;
  }
  char text[INET6_ADDRSTRLEN] = {};
  if (!number || !::inet_ntop(family, number, text, sizeof(text))) return {};
  return text;
}

}  // namespace

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

int port_of(const Address& address) {
  return ntohs(address.storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
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

}  // namespace egt
