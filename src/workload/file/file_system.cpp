#include "workload/file/file_system.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "egt/core/file_io.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr int max_layers = 8;  ///< max nesting of devices and file systems

FileSystem find(const std::string& directory, int layer);

/// mountinfo escapes spaces as "\040"; any byte may be escaped like this.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(digits, digits + 3, byte, 8).ptr == digits + 3) {
      plain += static_cast<char>(byte);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

/// Memory behind a block device, given its folder in sysfs; empty: none.
std::string memory_of_device(const fs::path& folder, int layer) {
  std::error_code error;
  fs::path device = fs::canonical(folder, error);
  if (error || layer > max_layers) return "";
  if (fs::exists(device / "partition", error)) device = device.parent_path();
  const std::string name = device.filename();
  const auto is_numbered = [&](std::string_view kind) {
    return name.size() > kind.size() && name.starts_with(kind) &&
           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(kind.size()), name.end(),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  if (is_numbered("zram") || is_numbered("ram")) return name;
  std::string backing;
  if (std::ifstream file(device / "loop/backing_file"); std::getline(file, backing)) {
    const std::string below = find(fs::path(backing).parent_path(), layer + 1).memory;
    return below.empty() ? "" : fmt::format("{} on {}", name, below);
  }
  std::string memory;
  for (const fs::directory_entry& part : fs::directory_iterator(device / "slaves", error)) {
    memory = memory_of_device(part.path(), layer + 1);
    if (memory.empty()) return "";
  }
  return memory.empty() ? "" : fmt::format("{} on {}", name, memory);
}

/// Folder of the mounted device in sysfs. Some file systems (btrfs) mount with a number that is not a
/// device's. Then the device is the one in `source`.
fs::path device_folder(const std::string& number, const std::string& source, const std::string& sysfs) {
  if (!number.starts_with("0:")) return fs::path(sysfs) / "dev/block" / number;
  std::error_code error;
  return fs::path(sysfs) / "class/block" / fs::weakly_canonical(source, error).filename();
}

FileSystem parse(std::string_view line, const std::string& sysfs, int layer) {
  std::istringstream fields{std::string(line)};
  std::string id, parent, number, word, source, options;
  fields >> id >> parent >> number;
  while (fields >> word && word != "-") continue;
  FileSystem found;
  fields >> found.type >> source >> options;
  for (const char* in_memory : {"tmpfs", "ramfs", "rootfs", "devtmpfs", "hugetlbfs"})
    if (found.type == in_memory) found.memory = found.type;
  std::string below;
  constexpr std::string_view upper = "upperdir=";
  if (const auto at = options.find(upper); found.type == "overlay" && at != std::string::npos) {
    const std::string_view rest = std::string_view(options).substr(at + upper.size());
    below = find(unescaped(rest.substr(0, rest.find(','))), layer + 1).memory;
  } else if (source.starts_with("/dev/")) {
    below = memory_of_device(device_folder(number, unescaped(source), sysfs), layer + 1);
  }
  if (!below.empty()) found.memory = fmt::format("{} on {}", found.type, below);
  return found;
}

/// The kernel numbers every mount and reports the mount of each open file in fdinfo.
std::optional<std::string> mount_of(const std::string& directory) {
  const Descriptor opened(::open(directory.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY));
  if (!opened.valid()) return std::nullopt;
  std::ifstream facts(fmt::format("/proc/self/fdinfo/{}", opened.get()));
  for (std::string name, value; facts >> name >> value;)
    if (name == "mnt_id:") return value;
  return std::nullopt;
}

FileSystem find(const std::string& directory, int layer) {
  if (layer > max_layers) return {};
  const auto mount = mount_of(directory);
  if (!mount) return {};
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);)
    if (line.starts_with(*mount + " ")) return parse(line, "/sys", layer);
  return {};
}

}  // namespace

FileSystem file_system_of(const std::string& directory) {
  return find(directory, 0);
}

FileSystem file_system_from(std::string_view line, const std::string& sysfs) {
  return parse(line, sysfs, 0);
}

Json mistrusted(const FileSystem& file_system, bool stays_cached) {
  if (file_system.memory.empty())
    return stays_cached ? Json("not a disk test (read from the page cache)") : Json(nullptr);
  return fmt::format("not a disk test (in memory: {})", file_system.memory);
}

Status refuse_memory(const FileOptions& options, const FileSystem& file_system) {
  if (file_system.memory.empty() || options.directory == FileOptions().directory) return {};
  return {
      StatusCode::unavailable,
      fmt::format("--io-dir {}: its files are in memory ({}), so no disk would be tested; name a directory "
                  "on a disk, or use --no-io",
                  options.directory, file_system.memory)};
}

}  // namespace egt
