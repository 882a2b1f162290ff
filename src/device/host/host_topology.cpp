#include "egt/device/host/host_topology.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

namespace egt {
namespace {

constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

Result<Topology> load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0)
    return Status(StatusCode::unavailable, "hwloc cannot describe this machine");
  Topology owner(topology);
  if (hwloc_topology_load(topology) != 0)
    return Status(StatusCode::unavailable, "hwloc cannot read this machine's topology from /sys");
  return owner;
}

/// A line "name: value kB" of /proc/meminfo, in bytes.
Result<std::uint64_t> read_meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::uint64_t kib = 0;
    if (std::istringstream(line.substr(name.size() + 1)) >> kib) return kib * 1024;
  }
  return Status(StatusCode::unavailable, "/proc/meminfo does not tell " + name);
}

/// Calls `look` with the folder of each control group (version 2) that this process is in, inner to outer.
void for_each_control_group(const std::function<void(const std::filesystem::path&)>& look) {
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::ifstream file("/proc/self/cgroup");
  std::filesystem::path group = root;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::/")) group = root / line.substr(4);
  for (;; group = group.parent_path()) {
    look(group);
    if (group == root || !group.has_relative_path()) return;
  }
}

/// The first number of a file, or nothing ("max", no such file).
std::optional<std::uint64_t> read_number(const std::filesystem::path& path) {
  std::uint64_t number = 0;
  if (std::ifstream(path) >> number) return number;
  return std::nullopt;
}

/// File cache of a control group that the kernel drops when memory is asked for.
std::uint64_t reclaimable(const std::filesystem::path& group) {
  std::ifstream file(group / "memory.stat");
  std::uint64_t value = 0;
  for (std::string name; file >> name >> value;)
    if (name == "inactive_file") return value;
  return 0;
}

/// The lowest memory limit of the container, and what is left below it; no_limit where there is none.
struct MemoryLimit {
  std::uint64_t bytes = no_limit;
  std::uint64_t left_bytes = no_limit;

  void add(const std::filesystem::path& group, const char* limit_file, const char* used_file) {
    const std::optional<std::uint64_t> limit = read_number(group / limit_file);
    if (!limit) return;
    bytes = std::min(bytes, *limit);
    const std::uint64_t used = read_number(group / used_file).value_or(0);
    const std::uint64_t kept = used - std::min(used, reclaimable(group));
    left_bytes = std::min(left_bytes, *limit - std::min(*limit, kept));
  }
};

MemoryLimit memory_limit() {
  MemoryLimit limit;
  for_each_control_group(
      [&](const std::filesystem::path& group) { limit.add(group, "memory.max", "memory.current"); });
  limit.add("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes");  // version 1
  return limit;
}

/// Cores' worth of time that the container may use (cpu.max is "quota period"), rounded up.
int cpu_quota() {
  double lowest = std::numeric_limits<int>::max();
  for_each_control_group([&](const std::filesystem::path& group) {
    std::ifstream file(group / "cpu.max");
    double quota = 0, period = 0;
    if (file >> quota >> period && period > 0) lowest = std::min(lowest, std::ceil(quota / period));
  });
  return std::max(1, static_cast<int>(lowest));
}

int count_cores(hwloc_topology_t topology, hwloc_const_cpuset_t set) {
  // Intersects, not inside: a core of which one hardware thread is allowed is there to be used.
  int cores = 0;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr)
    cores += hwloc_bitmap_intersects(core->cpuset, set) ? 1 : 0;
  return std::max(1, cores);
}

/// The one NUMA node that all of `set` is near to, or -1.
int only_numa_node(hwloc_topology_t topology, hwloc_const_cpuset_t set) {
  const Bitmap nodes(hwloc_bitmap_alloc());
  hwloc_cpuset_to_nodeset(topology, set, nodes.get());
  return hwloc_bitmap_weight(nodes.get()) == 1 ? hwloc_bitmap_first(nodes.get()) : -1;
}

std::string cpu_model(hwloc_topology_t topology) {
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* name = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  return name ? name : "";
}

}  // namespace

Result<HostShare> find_host_share(int local_size) {
  EGT_TRY_ASSIGN(const Topology topology, load_topology());
  const Bitmap allowed(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology.get(), allowed.get(), HWLOC_CPUBIND_PROCESS) != 0)
    hwloc_bitmap_copy(allowed.get(), hwloc_topology_get_allowed_cpuset(topology.get()));
  EGT_TRY_ASSIGN(const std::uint64_t installed, read_meminfo("MemTotal"));

  const int mine = count_cores(topology.get(), allowed.get());
  const int all =
      std::min(cpu_quota(), count_cores(topology.get(), hwloc_topology_get_allowed_cpuset(topology.get())));
  HostShare share;
  share.cores = std::min(mine, std::max(1, all / local_size));
  share.memory_bytes = std::min(installed, memory_limit().bytes) / static_cast<std::uint64_t>(local_size);
  share.numa_node = only_numa_node(topology.get(), allowed.get());
  share.cpu_model = cpu_model(topology.get());
  return share;
}

Result<std::uint64_t> available_host_memory() {
  EGT_TRY_ASSIGN(const std::uint64_t available, read_meminfo("MemAvailable"));
  return std::min(available, memory_limit().left_bytes);
}

}  // namespace egt
