#include "workload/file/file_system.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace egt {
namespace {

namespace fs = std::filesystem;

/// A sysfs with block devices.
class FileSystems : public ::testing::Test {
 protected:
  FileSystems() {
    char name[] = "/tmp/egt_file_system_test.XXXXXX";
    sysfs_ = ::mkdtemp(name);
  }
  ~FileSystems() override { fs::remove_all(sysfs_); }

  fs::path add_device(const std::string& name, const std::string& number) const {
    const fs::path folder = sysfs_ + "/devices/" + name;
    fs::create_directories(folder);
    link(sysfs_ + "/dev/block/" + number, folder);
    link(sysfs_ + "/class/block/" + name, folder);
    return folder;
  }
  static void link(const fs::path& from, const fs::path& to) {
    fs::create_directories(from.parent_path());
    fs::create_symlink(to, from);
  }
  static void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  std::string memory(const std::string& number, const std::string& type, const std::string& source,
                     const std::string& options = "rw") const {
    return file_system_from(
               fmt::format("36 35 {} / /mnt rw,noatime shared:1 - {} {} {}", number, type, source, options),
               sysfs_)
        .memory;
  }

  std::string sysfs_;
};

TEST_F(FileSystems, SharedMemoryIsMemoryAndProcIsNoDisk) {
  const FileSystem shared = file_system_of("/dev/shm");
  EXPECT_EQ(shared.type, "tmpfs");
  EXPECT_EQ(shared.memory, "tmpfs");
  EXPECT_EQ(file_system_of("/proc").type, "proc");
  EXPECT_EQ(file_system_of("/not/there").type, "");
}

TEST_F(FileSystems, DisksAndNetworksAreNoMemory) {
  add_device("nvme0n1p1", "259:1");
  EXPECT_EQ(memory("259:1", "ext4", "/dev/nvme0n1p1"), "");
  EXPECT_EQ(memory("0:40", "nfs4", "server:/export"), "");
  EXPECT_EQ(memory("0:41", "overlay", "overlay", "rw,lowerdir=/l,upperdir=/not/there,workdir=/w"), "");
  EXPECT_EQ(memory("7:9", "ext4", "/dev/loop9"), "") << "of a device that sysfs does not show";
}

TEST_F(FileSystems, MemoryIsFoundBelowOthers) {
  add_device("zram0", "253:0");
  EXPECT_EQ(memory("253:0", "ext4", "/dev/zram0"), "ext4 on zram0");
  add_device("ram1", "1:1");
  EXPECT_EQ(memory("1:1", "xfs", "/dev/ram1"), "xfs on ram1");
  write(add_device("loop3", "7:3") / "loop/backing_file", "/dev/shm/image");
  EXPECT_EQ(memory("7:3", "ext4", "/dev/loop3"), "ext4 on loop3 on tmpfs");
  EXPECT_EQ(memory("0:50", "btrfs", "/dev/loop3"), "btrfs on loop3 on tmpfs")
      << "which has a number of its own";
  const fs::path partition = sysfs_ + "/devices/loop3/loop3p1";
  write(partition / "partition", "1");
  link(sysfs_ + "/dev/block/259:7", partition);
  EXPECT_EQ(memory("259:7", "ext4", "/dev/loop3p1"), "ext4 on loop3 on tmpfs");
  const fs::path mapped = add_device("dm-0", "254:0");
  link(mapped / "slaves/loop3", sysfs_ + "/devices/loop3");
  EXPECT_EQ(memory("254:0", "ext4", "/dev/mapper/scratch"), "ext4 on dm-0 on loop3 on tmpfs");
  link(mapped / "slaves/nvme0n1", add_device("nvme0n1", "259:0"));
  EXPECT_EQ(memory("254:0", "ext4", "/dev/mapper/scratch"), "") << "half of it is on a disk";
  EXPECT_EQ(memory("0:42", "overlay", "overlay", "rw,lowerdir=/l,upperdir=/dev/shm,workdir=/w"),
            "overlay on tmpfs");
}

}  // namespace
}  // namespace egt
