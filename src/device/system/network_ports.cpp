#include "device/system/network_ports.hpp"

#include <system_error>

#include <fmt/format.h>

#include "egt/core/system_files.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

/// speed: Mb/s, -1 if unknown.
void add_interface(const fs::path& folder, std::vector<NetworkPort>& ports) {
  std::error_code none;
  if (!fs::exists(folder / "device", none)) return;
  if (first_line(folder / "operstate") == "down") return;
  const double megabits = number_in(folder / "speed").value_or(-1);
  if (megabits > 0)
    ports.push_back(
        {.name = folder.filename().string(), .bits_per_second = megabits * 1e6, .infiniband = false});
}

/// rate: "400 Gb/sec (4X NDR)"; state: "4: ACTIVE".
void add_infiniband(const fs::path& device, std::vector<NetworkPort>& ports) {
  for (const fs::path& port : entries(device / "ports")) {
    constexpr int active = 4;
    const double gigabits = number_in(port / "rate").value_or(0);
    if (gigabits <= 0 || number_in<int>(port / "state").value_or(active) != active) continue;
    ports.push_back({.name = fmt::format("{}/{}", device.filename().string(), port.filename().string()),
                     .bits_per_second = gigabits * 1e9,
                     .infiniband = true});
  }
}

}  // namespace

std::vector<NetworkPort> read_network_ports(const fs::path& root) {
  std::vector<NetworkPort> ports;
  for (const fs::path& folder : entries(root / "sys/class/net")) add_interface(folder, ports);
  for (const fs::path& device : entries(root / "sys/class/infiniband")) add_infiniband(device, ports);
  return ports;
}

}  // namespace egt
