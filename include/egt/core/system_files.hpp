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

/// What Linux shows of itself in /proc and /sys. `root`: the folder that both are in.
namespace egt {

/// Nothing where there is no such file, or nothing in it.
std::optional<std::string> first_line(const std::filesystem::path& file);
/// The number that a file begins with; nothing where it begins otherwise ("max") or is not there.
template <typename Number = double>
std::optional<Number> number_in(const std::filesystem::path& file) {
  const auto line = first_line(file);
  Number number{};
  if (!line || std::from_chars(line->data(), line->data() + line->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}
/// The entries of a folder whose names start so, in the order of their names; none where there is no folder.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder, std::string_view prefix = {});
/// A line "name: value kB" of /proc/meminfo, in bytes.
std::optional<std::uint64_t> meminfo_bytes(const std::filesystem::path& root, const std::string& name);

struct PciGpu {
  std::string address;  ///< "0000:17:00.0"
  std::string driver;   ///< the kernel driver that it is bound to, as "nvidia"; empty: none
};
/// The NVIDIA GPUs on the PCI bus (display controllers: VGA or 3D), whatever drives them.
std::vector<PciGpu> nvidia_gpus(const std::filesystem::path& root);

struct ControlGroup {
  std::filesystem::path folder;
  std::string name;  ///< "/job/7"; the top one is "/"
};
/// The control groups of version 2, and of version 1 for `controller`, that this process is in: its own and
/// all above it, up to the top, which in a container may be all that is to be seen.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root, const std::string& controller);

/// Memory that this node gives this process, in bytes: at most what each of its control groups allows
/// (memory.max and memory.high of version 2, memory.limit_in_bytes of version 1).
struct NodeMemory {
  std::uint64_t installed_bytes = 0;
  std::uint64_t total_bytes = 0;      ///< the lowest limit, or the installed memory
  std::uint64_t available_bytes = 0;  ///< for new pages; other processes take from it, too
  std::string
      limited_by;  ///< what sets `available_bytes`: "the control group /job/7 (memory.max)", "the node"

  std::uint64_t used_bytes() const { return total_bytes - std::min(total_bytes, available_bytes); }
};
/// unavailable if /proc/meminfo is missing.
Result<NodeMemory> node_memory(const std::filesystem::path& root = "/");
/// out_of_memory if `bytes` of host memory for `what` are not available: taking them would invoke the
/// kernel's OOM killer. OK if the available memory is not known.
Status check_node_memory(const std::string& what, std::uint64_t bytes);

}  // namespace egt
