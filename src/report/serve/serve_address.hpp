#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "egt/core/status.hpp"

namespace egt {

/// Where a live page is served.
struct ServeAddress {
  std::string address = "127.0.0.1";  ///< an IP address, without brackets
  int port = 0;                       ///< 0: the system chooses a free one

  bool is_loopback() const;
  std::string text() const;  ///< "127.0.0.1:8080", "[::1]:8080"
};

/// "8080", "0.0.0.0:8080" or "[::1]:8080"; "localhost" is 127.0.0.1. Nothing where the text is none of these.
std::optional<ServeAddress> parse_serve_address(std::string_view text);

/// What whoever asks has to give: the environment variable EGT_SERVE_TOKEN; empty: nothing.
std::string serve_token();

/// invalid_argument where anybody in the network could read the page.
Status check_serve_token(const ServeAddress& address);

}  // namespace egt
