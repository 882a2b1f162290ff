#include "report/serve/serve_address.hpp"

#include <arpa/inet.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace egt {
namespace {

constexpr const char* token_variable = "EGT_SERVE_TOKEN";
constexpr std::size_t min_token = 16;  // characters, so that it cannot be guessed

bool is_address(int family, const std::string& text) {
  in6_addr parsed{};
  return ::inet_pton(family, text.c_str(), &parsed) == 1;
}

}  // namespace

bool ServeAddress::is_loopback() const {
  return address == "::1" || address.starts_with("127.");
}

std::string ServeAddress::text() const {
  const bool is_six = address.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_six ? "[" : "", address, is_six ? "]" : "", port);
}

std::optional<ServeAddress> parse_serve_address(std::string_view text) {
  ServeAddress parsed;
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    std::string address(text.substr(0, colon));
    if (address == "localhost") address = parsed.address;
    const bool is_bracketed = address.size() > 2 && address.front() == '[' && address.back() == ']';
    if (is_bracketed) address = address.substr(1, address.size() - 2);
    if (!is_address(is_bracketed ? AF_INET6 : AF_INET, address)) return std::nullopt;
    parsed.address = address;
    text.remove_prefix(colon + 1);
  }
  constexpr int most = 65535;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), parsed.port);
  const bool is_port = error == std::errc() && stop == text.data() + text.size() && !text.starts_with('-');
  return is_port && parsed.port <= most ? std::optional(parsed) : std::nullopt;
}

std::string serve_token() {
  const char* const token = std::getenv(token_variable);
  return token ? token : "";
}

Status check_serve_token(const ServeAddress& address) {
  const std::size_t length = serve_token().size();
  if (length >= min_token || (length == 0 && address.is_loopback())) return {};
  return {StatusCode::invalid_argument,
          length > 0 ? fmt::format("--serve {}: {} has {} characters; give it {} or more", address.text(),
                                   token_variable, length, min_token)
                     : fmt::format("--serve {}: reachable from other hosts; set {} to a secret of {} "
                                   "characters or more, or use a port alone",
                                   address.text(), token_variable, min_token)};
}

}  // namespace egt
