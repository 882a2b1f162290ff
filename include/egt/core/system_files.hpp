#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

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

}  // namespace egt
