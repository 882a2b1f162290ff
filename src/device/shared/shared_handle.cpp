#include "device/shared/shared_handle.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "egt/core/system_files.hpp"
#include "egt/core/text.hpp"

namespace egt {
namespace {

constexpr char separator = '/';
constexpr std::string_view format_name = "egt1";
constexpr std::size_t fields = 9;

std::string boot_id() {
  return first_line("/proc/sys/kernel/random/boot_id").value_or("");
}

/// Example: "pid:[4026531836]"; empty if unknown.
std::string process_namespace() {
  std::array<char, 64> name{};
  const ssize_t length = readlink("/proc/self/ns/pid", name.data(), name.size());
  return length > 0 ? std::string(name.data(), static_cast<std::size_t>(length)) : std::string();
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

Status unreachable(const std::string& why) {
  return Status(StatusCode::unavailable, "shared memory cannot be opened: " + why);
}

}  // namespace

SharedHandle SharedHandle::make(std::string backend, std::uint64_t bytes) {
  std::random_device random;
  SharedHandle handle;
  handle.backend = std::move(backend);
  handle.host = boot_id();
  handle.processes = process_namespace();
  handle.pid = getpid();
  handle.token = std::uint64_t{random()} << 32 | random();
  handle.bytes = bytes;
  return handle;
}

std::string SharedHandle::text() const {
  return fmt::format("{0}{1}{2}{1}{3}{1}{4}{1}{5}{1}{6:016x}{1}{7}{1}{8}{1}{9}", format_name, separator,
                     backend, host, processes, pid, token, bytes, device, details);
}

Result<SharedHandle> SharedHandle::parse(const std::string& text) {
  const std::vector<std::string> parts = split(text);
  SharedHandle handle;
  if (parts.size() != fields || parts[0] != format_name || !parse_whole(parts[4], handle.pid) ||
      !parse_whole(parts[5], handle.token, 16) || !parse_whole(parts[6], handle.bytes) || handle.pid <= 0 ||
      handle.bytes == 0)
    return Status(StatusCode::invalid_argument, "this is no handle of shared memory");
  handle.backend = parts[1];
  handle.host = parts[2];
  handle.processes = parts[3];
  handle.device = parts[7];
  handle.details = parts[8];
  return handle;
}

bool SharedHandle::is_own_process() const {
  return host == boot_id() && processes == process_namespace() && pid == getpid();
}

Status SharedHandle::check_reach(const std::string& own_backend) const {
  if (host != boot_id()) return unreachable("it is of another host");
  if (backend != own_backend)
    return unreachable(fmt::format("it is of a {} device, and this one is {}", backend, own_backend));
  if (processes != process_namespace())
    return unreachable("its owner runs in another container, whose processes this one does not see");
  if (kill(pid, 0) != 0 && errno == ESRCH)
    return unreachable(fmt::format("the process {} that owned it is no more", pid));
  return {};
}

std::string to_hex(const void* data, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i)
    text += fmt::format("{:02x}", static_cast<const unsigned char*>(data)[i]);
  return text;
}

Status from_hex(const std::string& text, void* data, std::size_t bytes) {
  bool right = text.size() == 2 * bytes;
  for (std::size_t i = 0; right && i < bytes; ++i) {
    const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    right = high >= 0 && low >= 0;
    static_cast<unsigned char*>(data)[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return right ? Status()
               : Status(StatusCode::invalid_argument, "these are not the hexadecimal digits of it");
}

}  // namespace egt
