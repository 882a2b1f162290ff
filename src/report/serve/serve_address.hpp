#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "egt/core/status.hpp"

namespace egt {

/// The address of the live page.
struct ServeAddress {
  std::string address = "127.0.0.1";  ///< IP address, without brackets
  int port = 0;                       ///< 0: the system chooses a free port

  bool is_loopback() const;
  std::string text() const;  ///< "127.0.0.1:8080", "[::1]:8080"
};

/// Parses "8080", "0.0.0.0:8080" or "[::1]:8080"; "localhost" is 127.0.0.1. Empty if invalid.
std::optional<ServeAddress> parse_serve_address(std::string_view text);

/// The token that clients must send: environment variable EGT_SERVE_TOKEN; empty: none.
std::string serve_token();

/// invalid_argument if the page would be readable by the whole network.
Status check_serve_token(const ServeAddress& address);

}  // namespace egt
