#include "device/system/numa_memory.hpp"

#include <hwloc.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace egt {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

constexpr int by_node_of_thread = HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET;

}  // namespace

struct NumaMemory::Topology {
  ~Topology() {
    if (native) hwloc_topology_destroy(native);
  }
  hwloc_topology_t native = nullptr;
};

NumaMemory::NumaMemory(std::unique_ptr<Topology> topology) : topology_(std::move(topology)) {
  const hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(topology_->native);
  for (int node = hwloc_bitmap_first(allowed); node >= 0; node = hwloc_bitmap_next(allowed, node))
    nodes_.push_back(node);
}

NumaMemory::~NumaMemory() = default;

Result<std::unique_ptr<NumaMemory>> NumaMemory::open() {
  auto topology = std::make_unique<Topology>();
  if (hwloc_topology_init(&topology->native) != 0 || hwloc_topology_load(topology->native) != 0)
    return Status(StatusCode::unavailable, "hwloc cannot describe this machine");
  return std::unique_ptr<NumaMemory>(new NumaMemory(std::move(topology)));
}

Status NumaMemory::bind_thread(int node) {
  const Bitmap set(hwloc_bitmap_alloc());
  hwloc_bitmap_only(set.get(), static_cast<unsigned>(node));
  if (hwloc_set_membind(topology_->native, set.get(), HWLOC_MEMBIND_BIND, by_node_of_thread) == 0) return {};
  const int error = errno;
  return Status(StatusCode::unavailable,
                fmt::format("memory cannot be bound to NUMA node {}: {}", node, std::strerror(error)), error);
}

void NumaMemory::release_thread() {
  static_cast<void>(hwloc_set_membind(topology_->native,
                                      hwloc_topology_get_allowed_nodeset(topology_->native),
                                      HWLOC_MEMBIND_DEFAULT, by_node_of_thread));
}

std::optional<int> NumaMemory::node_of(const void* data, std::size_t bytes) const {
  const Bitmap set(hwloc_bitmap_alloc());
  if (hwloc_get_area_memlocation(topology_->native, data, bytes, set.get(), HWLOC_MEMBIND_BYNODESET) != 0)
    return std::nullopt;
  return hwloc_bitmap_weight(set.get()) == 1 ? std::optional(hwloc_bitmap_first(set.get())) : std::nullopt;
}

}  // namespace egt
