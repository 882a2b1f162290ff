#include "device/host/host_topology.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>

#include "egt/core/system_files.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

/// Memory of a rank's process counted against a cgroup limit: libraries, MPI, thread stacks, records.
constexpr std::uint64_t process_bytes = std::uint64_t{128} << 20;

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

/// CPU limit of the cgroups in cores, rounded up. Version 2 has "quota period" or "max period" in one file.
/// Version 1 has one file each, with a quota of -1 for none.
int cpu_quota(const fs::path& root) {
  double lowest = std::numeric_limits<int>::max();
  const auto add = [&](double quota, double period) {
    if (quota > 0 && period > 0) lowest = std::min(lowest, std::ceil(quota / period));
  };
  for (const auto& [group, name] : control_groups(root, "cpu")) {
    double quota = 0, period = 0;
    if (std::ifstream(group / "cpu.max") >> quota >> period) add(quota, period);
    add(number_in(group / "cpu.cfs_quota_us").value_or(0),
        number_in(group / "cpu.cfs_period_us").value_or(0));
  }
  return std::max(1, static_cast<int>(lowest));
}

int count_cores(hwloc_topology_t topology, hwloc_const_cpuset_t set) {
  // Test for intersection, because a core is usable if any of its hardware threads is allowed.
  int cores = 0;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr)
    cores += hwloc_bitmap_intersects(core->cpuset, set) ? 1 : 0;
  return std::max(1, cores);
}

/// The NUMA node if all of `set` belongs to one, or -1.
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

Result<HostShare> find_host_share(int local_size, const fs::path& root) {
  EGT_TRY_ASSIGN(const Topology topology, load_topology());
  const Bitmap allowed(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology.get(), allowed.get(), HWLOC_CPUBIND_PROCESS) != 0)
    hwloc_bitmap_copy(allowed.get(), hwloc_topology_get_allowed_cpuset(topology.get()));
  EGT_TRY_ASSIGN(const NodeMemory memory, node_memory(root));

  const int mine = count_cores(topology.get(), allowed.get());
  const int all = std::min(cpu_quota(root),
                           count_cores(topology.get(), hwloc_topology_get_allowed_cpuset(topology.get())));
  HostShare share;
  share.cores = std::min(mine, std::max(1, all / local_size));
  share.node_cores = all;
  const auto ranks = static_cast<std::uint64_t>(local_size);
  share.memory_bytes = memory.total_bytes / ranks;
  if (memory.total_bytes < memory.installed_bytes)
    share.memory_bytes -= std::min(process_bytes, share.memory_bytes / 2);
  share.available_bytes = memory.available_bytes / ranks;
  share.numa_node = only_numa_node(topology.get(), allowed.get());
  share.cpu_model = cpu_model(topology.get());
  return share;
}

}  // namespace egt
