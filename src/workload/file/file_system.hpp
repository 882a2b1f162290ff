#pragma once

#include <string>
#include <string_view>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "workload/options.hpp"

namespace egt {

/// The file system of a directory.
struct FileSystem {
  std::string type;    ///< name in the kernel: "ext4", "nfs4", "tmpfs"; empty: unknown
  std::string memory;  ///< memory that stores the files: "tmpfs", "ext4 on zram0"; empty: none
};

/// All fields are empty for a directory that does not exist.
FileSystem file_system_of(const std::string& directory);

/// The same from one line of /proc/self/mountinfo (proc(5)). Resolves overlays, loop devices and device
/// mapper down to the storage. An overlay with an invisible upper directory (in a container) counts as a
/// disk. `sysfs`: its mount point.
FileSystem file_system_from(std::string_view line, const std::string& sysfs = "/sys");

/// The metric `mistrusted`: why files there test no disk, or null. `stays_cached`: reads came from the page
/// cache.
Json mistrusted(const FileSystem& file_system, bool stays_cached);

/// Error `unavailable`: --io-dir is a directory in memory, so no disk would be tested. The default, the
/// working directory, is accepted, so that the other parts run on a diskless node.
Status refuse_memory(const FileOptions& options, const FileSystem& file_system);

}  // namespace egt
