#include "egt/core/system_files.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "egt/core/units.hpp"

namespace egt {

namespace fs = std::filesystem;

namespace {

/// File cache of a control group and its descendants that the kernel reclaims under memory pressure.
std::uint64_t reclaimable_bytes(const fs::path& group) {
  std::ifstream file(group / "memory.stat");
  std::uint64_t value = 0, own = 0;
  for (std::string name; file >> name >> value;) {
    if (name == "total_inactive_file") return value;  // version 1, whose other value excludes descendants
    if (name == "inactive_file") own = value;
  }
  return own;
}

void apply_limit(NodeMemory& memory, const ControlGroup& group, const char* limit_file,
                 const char* used_file) {
  const auto limit = number_in<std::uint64_t>(group.folder / limit_file);
  if (!limit) return;
  memory.total_bytes = std::min(memory.total_bytes, *limit);
  const std::uint64_t used = number_in<std::uint64_t>(group.folder / used_file).value_or(0);
  const std::uint64_t kept = used - std::min(used, reclaimable_bytes(group.folder));
  const std::uint64_t available = *limit - std::min(*limit, kept);
  if (available >= memory.available_bytes) return;
  memory.available_bytes = available;
  memory.limited_by = fmt::format("the control group {} ({})", group.name, limit_file);
}

}  // namespace

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
  std::string own, own_of_controller;  // paths in version 2, and in version 1 for `controller`
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

Result<NodeMemory> node_memory(const fs::path& root) {
  const auto total = meminfo_bytes(root, "MemTotal"), available = meminfo_bytes(root, "MemAvailable");
  if (!total || !available)
    return Status(StatusCode::unavailable, "/proc/meminfo shows no MemTotal or MemAvailable: mount /proc");
  NodeMemory memory{.installed_bytes = *total,
                    .total_bytes = *total,
                    .available_bytes = *available,
                    .limited_by = "the node"};
  for (const ControlGroup& group : control_groups(root, "memory")) {
    apply_limit(memory, group, "memory.max", "memory.current");
    apply_limit(memory, group, "memory.high", "memory.current");
    apply_limit(memory, group, "memory.limit_in_bytes", "memory.usage_in_bytes");
  }
  return memory;
}

Status check_node_memory(const std::string& what, std::uint64_t bytes) {
  const Result<NodeMemory> node = node_memory();
  if (!node.ok() || bytes <= node.value().available_bytes) return {};
  return {StatusCode::out_of_memory,
          fmt::format("no {} of host memory for {}: {} has {} left; raise its limit, or run fewer ranks",
                      format_bytes(bytes), what, node.value().limited_by,
                      format_bytes(node.value().available_bytes))};
}

}  // namespace egt
