// Link information from NVML, sysfs and the operating system.
#include "egt/device/device_links.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "device/system/network_ports.hpp"
#include "device/system/numa_memory.hpp"
#include "tests/support/nvml_script.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

const std::string own = "00000000:18:00.0", other = "00000000:2a:00.0";

DeviceLinks links_of(const std::string& script, const std::vector<std::string>& others = {}) {
  NvmlScript nvml(healthy_gpu + script);
  auto links = read_nvml_links(own, others, EGT_FAKE_NVML);
  EXPECT_TRUE(links.ok()) << links.status().what();
  return links.ok() ? links.value() : DeviceLinks();
}

TEST(NvmlLinks, OfAnH200) {  // as its driver returns: version 6, the remote end is a switch without a PCI id
  const DeviceLinks links = links_of("nvlink.version 6\nnvlink.remote_type 2\np2p_nvlink 0\n", {other});
  ASSERT_EQ(links.nvlinks.size(), 18u);
  for (const NvLink& link : links.nvlinks) {
    EXPECT_EQ(link.generation, 4);
    EXPECT_EQ(link.end, NvLink::End::nvswitch);
    EXPECT_EQ(link.remote_pci, "");
  }
  EXPECT_EQ(links.nvlink_to, (std::map<std::string, bool>{{other, true}}));
  EXPECT_EQ(links.pcie.max_generation, 5u);
  EXPECT_EQ(links.pcie.max_width, 16u);
}

TEST(NvmlLinks, OnlyThoseThatAreUpWithTheGpuAtTheirEnd) {
  const DeviceLinks links = links_of(
      "links 4\nnvlink.version 4\nnvlink.remote_type 0\nnvlink.remote_bus 42\nnvlink.2.up 0\n"
      "nvlink.3.remote_bus 59\np2p_nvlink 4\n",
      {other});
  ASSERT_EQ(links.nvlinks.size(), 3u);
  EXPECT_EQ(links.nvlinks[0].generation, 3);
  EXPECT_EQ(links.nvlinks[0].end, NvLink::End::gpu);
  EXPECT_EQ(links.nvlinks[0].remote_pci, other);
  EXPECT_EQ(links.nvlinks[2].remote_pci, "00000000:3b:00.0");
  EXPECT_EQ(links.nvlink_to, (std::map<std::string, bool>{{other, false}}));
}

TEST(NvmlLinks, EveryVersionHasItsGeneration) {
  const int generations[] = {0, 1, 2, 2, 3, 3, 4, 5, 6, 0};
  for (int version = 0; version < 10; ++version) {
    const DeviceLinks links = links_of("links 1\nnvlink.version " + std::to_string(version) + "\n");
    ASSERT_EQ(links.nvlinks.size(), 1u);
    EXPECT_EQ(links.nvlinks[0].generation, generations[version]) << version;
  }
}

TEST(NvmlLinks, WhatIsNotAnsweredIsLeftOut) {
  NvmlScript nvml("utilization 1\n");
  const auto links = read_nvml_links(own, {other}, EGT_FAKE_NVML);
  ASSERT_TRUE(links.ok());
  EXPECT_THAT(links.value().nvlinks, IsEmpty());
  EXPECT_THAT(links.value().nvlink_to, IsEmpty());
  EXPECT_FALSE(links.value().pcie.max_generation);
}

TEST(NvmlLinks, NoLibraryAndNoSuchGpu) {
  EXPECT_EQ(read_nvml_links(own, {}, "libno_such_nvml.so").status().code(), StatusCode::unavailable);
  NvmlScript nvml(healthy_gpu);
  EXPECT_EQ(read_nvml_links("00000000:99:00.0", {}, EGT_FAKE_NVML).status().code(), StatusCode::unavailable);
}

TEST(PciIdText, OneFormForAll) {
  EXPECT_EQ(pci_id_text("0000:2A:00.0"), "00000000:2a:00.0");
  EXPECT_EQ(pci_id_text("00000000:2a:00.0"), "00000000:2a:00.0");
  EXPECT_EQ(pci_id_text(""), "");
  EXPECT_EQ(pci_id_text("host"), "");
}

/// A synthetic /sys.
class FakeSys {
 public:
  FakeSys() : root_(fs::temp_directory_path() / ("egt_links_" + std::to_string(getpid()))) {}
  ~FakeSys() { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  fs::path root() const { return root_; }

 private:
  const fs::path root_;
};

std::vector<std::string> ports_text(const FakeSys& sys) {
  std::vector<std::string> texts;
  for (const NetworkPort& port : read_network_ports(sys.root()))
    texts.push_back(port.name + " " + std::to_string(port.bits_per_second / 1e9) +
                    (port.infiniband ? " ib" : ""));
  return texts;
}

TEST(NetworkPorts, OfHardwareThatIsUpAndTellsItsSpeed) {
  FakeSys sys;
  EXPECT_THAT(ports_text(sys), IsEmpty());
  for (const char* name : {"eth0", "eth1", "eth2", "veth7", "lo"}) {
    sys.put(std::string("sys/class/net/") + name + "/speed", "25000");
    sys.put(std::string("sys/class/net/") + name + "/operstate", "up");
  }
  for (const char* name : {"eth0", "eth1", "eth2"})
    sys.put(std::string("sys/class/net/") + name + "/device/vendor", "0x15b3");
  sys.put("sys/class/net/eth1/speed", "-1");
  sys.put("sys/class/net/eth2/operstate", "down");
  sys.put("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  sys.put("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  sys.put("sys/class/infiniband/mlx5_1/ports/1/rate", "400 Gb/sec (4X NDR)");
  sys.put("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  EXPECT_THAT(ports_text(sys), ElementsAre("eth0 25.000000", "mlx5_0/1 400.000000 ib"));
}

TEST(NumaMemory, MemoryTakenWhileBoundLiesOnThatNode) {
  const auto numa = NumaMemory::open();
  ASSERT_TRUE(numa.ok()) << numa.status().what();
  ASSERT_FALSE(numa.value()->nodes().empty());
  const int node = numa.value()->nodes().front();
  constexpr std::size_t bytes = 1 << 20;
  if (const Status bound = numa.value()->bind_thread(node); !bound.ok()) GTEST_SKIP() << bound.what();
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, bytes), std::free);
  std::memset(memory.get(), 1, bytes);
  numa.value()->release_thread();
  const auto lies = numa.value()->node_of(memory.get(), bytes);
  EXPECT_EQ(lies.value_or(node), node);
  EXPECT_FALSE(numa.value()->bind_thread(1000).ok());
}

}  // namespace
}  // namespace egt
