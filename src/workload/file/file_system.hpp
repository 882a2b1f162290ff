#pragma once

#include <string>
#include <string_view>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "workload/options.hpp"

namespace egt {

/// The file system that a directory is on.
struct FileSystem {
  std::string type;    ///< as the kernel names it: "ext4", "nfs4", "tmpfs"; empty: unknown
  std::string memory;  ///< why its files are in memory: "tmpfs", "ext4 on zram0"; empty: they are not
};

/// Nothing is known of a directory that does not exist.
FileSystem file_system_of(const std::string& directory);

/// The same of one line of /proc/self/mountinfo (proc(5)). Follows overlays, loop devices and device mapper
/// down to what stores the data. An overlay whose upper directory is out of sight (in a container) counts as
/// a disk. `sysfs`: where it is mounted.
FileSystem file_system_from(std::string_view line, const std::string& sysfs = "/sys");

/// The figure `mistrusted` of tests of files there: why they test no disk, or null. `stays_cached`: they were
/// read from the page cache.
Json mistrusted(const FileSystem& file_system, bool stays_cached);

/// unavailable: --io-dir names a directory whose files are in memory, so no disk would be tested. The
/// default, the working directory, is accepted: on a diskless node the other parts still run.
Status refuse_memory(const FileOptions& options, const FileSystem& file_system);

}  // namespace egt
