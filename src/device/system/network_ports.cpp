#include "device/system/network_ports.hpp"

#include <algorithm>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

namespace egt {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (auto entry = fs::directory_iterator(folder, none); !none && entry != fs::directory_iterator();
       entry.increment(none))
    found.push_back(entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

/// The first word of a file as T; `otherwise` where there is none.
template <typename T>
T first_word(const fs::path& file, T otherwise) {
  T value{};
  return std::ifstream(file) >> value ? value : otherwise;
}

/// speed: Mb/s, -1 where it is not known.
void add_interface(const fs::path& folder, std::vector<NetworkPort>& ports) {
  std::error_code none;
  if (!fs::exists(folder / "device", none)) return;
  if (first_word<std::string>(folder / "operstate", "") == "down") return;
  const double megabits = first_word(folder / "speed", -1.0);
  if (megabits > 0)
    ports.push_back(
        {.name = folder.filename().string(), .bits_per_second = megabits * 1e6, .infiniband = false});
}

/// rate: "400 Gb/sec (4X NDR)"; state: "4: ACTIVE".
void add_infiniband(const fs::path& device, std::vector<NetworkPort>& ports) {
  for (const fs::path& port : entries(device / "ports")) {
    constexpr int active = 4;
    const double gigabits = first_word(port / "rate", 0.0);
    if (gigabits <= 0 || first_word(port / "state", active) != active) continue;
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
