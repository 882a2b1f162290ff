#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "egt/core/status.hpp"

/// Reads Linux's /proc and /sys. `root` is the folder that contains both.
namespace egt {

/// std::nullopt if the file is missing or empty.
std::optional<std::string> first_line(const std::filesystem::path& file);
/// The number at the start of a file; std::nullopt if it starts otherwise ("max") or is missing.
template <typename Number = double>
std::optional<Number> number_in(const std::filesystem::path& file) {
  const auto line = first_line(file);
  Number number{};
  if (!line || std::from_chars(line->data(), line->data() + line->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}
/// Entries of a folder whose names start with `prefix`, sorted by name; empty if the folder is missing.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder, std::string_view prefix = {});
/// A line "name: value kB" of /proc/meminfo, in bytes.
std::optional<std::uint64_t> meminfo_bytes(const std::filesystem::path& root, const std::string& name);

struct PciGpu {
  std::string address;  ///< "0000:17:00.0"
  std::string driver;   ///< bound kernel driver, as "nvidia"; empty: none
};
/// NVIDIA GPUs on the PCI bus (display controllers: VGA or 3D), with any driver.
std::vector<PciGpu> nvidia_gpus(const std::filesystem::path& root);

struct ControlGroup {
  std::filesystem::path folder;
  std::string name;  ///< "/job/7"; "/" for the root
};
/// Control groups of version 2, and of version 1 for `controller`, that contain this process: its own and all
/// ancestors up to the root. In a container only the root may be visible.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root, const std::string& controller);

/// Memory that this node grants this process, in bytes. Each of its control groups limits it (memory.max and
/// memory.high of version 2, memory.limit_in_bytes of version 1).
struct NodeMemory {
  std::uint64_t installed_bytes = 0;
  std::uint64_t total_bytes = 0;      ///< min of the limits and the installed memory
  std::uint64_t available_bytes = 0;  ///< for new pages; shared with other processes
  std::string
      limited_by;  ///< source of `available_bytes`: "the control group /job/7 (memory.max)", "the node"

  std::uint64_t used_bytes() const { return total_bytes - std::min(total_bytes, available_bytes); }
};
/// unavailable if /proc/meminfo is missing.
Result<NodeMemory> node_memory(const std::filesystem::path& root = "/");
/// out_of_memory if `bytes` of host memory for `what` are not available, since allocating them would invoke
/// the kernel's OOM killer. ok if the available memory is unknown.
Status check_node_memory(const std::string& what, std::uint64_t bytes);

}  // namespace egt
