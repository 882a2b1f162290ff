#include "egt/core/system_files.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace egt {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

std::vector<fs::path> entries(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code none;
  for (auto entry = fs::directory_iterator(folder, none); entry != fs::directory_iterator();
       entry.increment(none)) {
    if (none) break;
    if (entry->path().filename().string().starts_with(prefix)) found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<std::uint64_t> meminfo_bytes(const fs::path& root, const std::string& name) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::uint64_t kib = 0;
    if (std::istringstream(line.substr(name.size() + 1)) >> kib) return kib * 1024;
  }
  return std::nullopt;
}

std::vector<PciGpu> nvidia_gpus(const fs::path& root) {
  std::vector<PciGpu> found;
  for (const fs::path& device : entries(root / "sys/bus/pci/devices")) {
    const std::string kind = first_line(device / "class").value_or("");
    if (first_line(device / "vendor") != "0x10de" ||
        !(kind.starts_with("0x0300") || kind.starts_with("0x0302")))
      continue;
    std::error_code none;
    found.push_back(
        {device.filename().string(), fs::read_symlink(device / "driver", none).filename().string()});
  }
  return found;
}

std::vector<ControlGroup> control_groups(const fs::path& root, const std::string& controller) {
  const fs::path mounted = root / "sys/fs/cgroup";
  std::string own, own_of_controller;  // paths; the top's is empty
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/job/7" or "0::/job/7"
    const std::size_t names = line.find(':'), path = line.find(':', names + 1);
    if (path == std::string::npos) continue;
    if (path == names + 1) own = line.substr(path + 1);
    std::istringstream listed(line.substr(names + 1, path - names - 1));
    for (std::string one; std::getline(listed, one, ',');)
      if (one == controller) own_of_controller = line.substr(path + 1);
  }
  std::vector<ControlGroup> groups;
  const auto add = [&](const fs::path& top, const std::string& path) {
    for (fs::path below = fs::path(path).relative_path(); !below.empty(); below = below.parent_path())
      groups.push_back({top / below, (fs::path("/") / below).string()});
    groups.push_back({top, "/"});
  };
  add(mounted, own);
  add(mounted / controller, own_of_controller);
  return groups;
}

}  // namespace egt
