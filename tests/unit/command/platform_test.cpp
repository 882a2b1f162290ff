#include "command/platform.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/system_files.hpp"
#include "judge/expectations.hpp"
#include "tests/support/fake_root.hpp"
#include "tests/support/nvml_script.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

class PciGpus : public testing::Test {
 protected:
  void add(const std::string& address, const std::string& vendor, const std::string& kind,
           const std::string& driver = "") {
    const std::string folder = "sys/bus/pci/devices/" + address;
    root_.write(folder + "/vendor", vendor + "\n");
    root_.write(folder + "/class", kind + "\n");
    if (!driver.empty())
      fs::create_symlink("../../../bus/pci/drivers/" + driver, root_.path() / folder / "driver");
  }
  void load_driver() { root_.write("proc/driver/nvidia/version", "NVRM version: 570\n"); }

  test::FakeRoot root_;
};

TEST_F(PciGpus, AreDisplayControllersOfNvidia) {
  add("0000:17:00.0", "0x10de", "0x030200", "nvidia");
  add("0000:65:00.0", "0x10de", "0x030000");
  add("0000:66:00.0", "0x10de", "0x040300");  // its audio function
  add("0000:67:00.0", "0x10de", "0x068000");  // an NVSwitch
  add("0000:68:00.0", "0x1002", "0x030000");  // another vendor's
  const auto gpus = nvidia_gpus(root_.path());
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].address, "0000:17:00.0");
  EXPECT_EQ(gpus[0].driver, "nvidia");
  EXPECT_EQ(gpus[1].address, "0000:65:00.0");
  EXPECT_EQ(gpus[1].driver, "");
}

TEST_F(PciGpus, ThatCannotBeUsedAreNamedWithTheCause) {
  EXPECT_EQ(unusable_gpus(root_.path(), "no driver"), "");
  add("0000:17:00.0", "0x10de", "0x030200");
  add("0000:65:00.0", "0x10de", "0x030000", "vfio-pci");
  const std::string text = unusable_gpus(root_.path(), "no nvcc was found when it was built");
  EXPECT_TRUE(text.starts_with("the GPUs at 0000:17:00.0, 0000:65:00.0 (driver vfio-pci) cannot be used: "))
      << text;
#if !EGT_WITH_CUDA
  EXPECT_NE(text.find("built without CUDA (no nvcc was found when it was built); run scripts/setup.sh"),
            std::string::npos)
      << text;
#else
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_NE(unusable_gpus(root_.path(), "").find(": CUDA_VISIBLE_DEVICES=\"\" hides them"),
            std::string::npos);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_NE(unusable_gpus(root_.path(), "").find("the NVIDIA driver is not loaded"), std::string::npos);
#endif
}

TEST_F(PciGpus, ThatASandboxHidesShowByTheirDriver) {
  root_.write("dev/nvidia0", "");
  EXPECT_EQ(unusable_gpus(root_.path(), "no libcuda"),
            "the NVIDIA driver is loaded (/dev/nvidia0), but no GPU can be used: no libcuda; see dmesg");
}

TEST(ChooseBackend, RefusesAnUnknownOneOfTheEnvironment) {
  ::setenv("EGT_BACKEND", "gpu", 1);
  EXPECT_EQ(choose_backend({}).status().code(), StatusCode::invalid_argument);
  ::setenv("EGT_BACKEND", "host", 1);
  EXPECT_EQ(choose_backend({}).value().backend, Backend::host);
  ::unsetenv("EGT_BACKEND");
}

TEST_F(PciGpus, ThatNoRankTestsAreCounted) {
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::unsetenv("NVIDIA_VISIBLE_DEVICES");
  const RankPlace one{.local_size = 1, .hostname = "node7"};
  EXPECT_EQ(untested_gpus(8, one, root_.path()),
            "1 of 8 GPUs tested on node7; start with mpirun --quiet -np 8 or scripts/run.sh");
  EXPECT_EQ(untested_gpus(1, one, root_.path()), "");
  EXPECT_EQ(untested_gpus(8, {.local_size = 8, .hostname = "node7"}, root_.path()), "");
  EXPECT_EQ(untested_gpus(0, one, root_.path()), "");
  add("0000:17:00.0", "0x10de", "0x030200", "nvidia");
  add("0000:65:00.0", "0x10de", "0x030200");
  EXPECT_EQ(untested_gpus(0, one, root_.path()),
            "0 of 2 GPUs tested on node7; the host backend tests the CPU");
}

TEST(SharedCores, AreToldIfNotEveryRankHasOne) {
  EXPECT_EQ(shared_cores(2, {.local_size = 4, .hostname = "node7"}), "4 ranks share 2 cores on node7");
  EXPECT_EQ(shared_cores(1, {.local_size = 2, .hostname = "node7"}), "2 ranks share 1 core on node7");
  EXPECT_EQ(shared_cores(2, {.local_size = 2, .hostname = "node7"}), "");
  EXPECT_GE(node_cores().value(), 1);
}

/// Seven of eight GPUs respond, and none of them as it should.
TEST_F(PciGpus, OfABadNodeAreInItsInventory) {
  ::unsetenv("NVIDIA_VISIBLE_DEVICES");
  for (int i = 0; i < 8; ++i) add(fmt::format("0000:1{}:00.0", i), "0x10de", "0x030200", "nvidia");
  root_.write("sys/block/nvme0n1/size", "1");
  root_.write("sys/block/sda/size", "1");
  const NvmlScript script(
      "gpus 7\nlinks 18\nnvlink.up 1\nnvlink.4.up 0\npcie_max_generation 5\npcie_width 8\n"
      "pcie_max_width 16\nfabric 1\necc 0\nmig 0\npersistence 1\nprocesses 1\ntemperature 40\n"
      "memory_total 1500000000\nmemory_used 0\n");
  const Json node = read_inventory("node7", root_.path(), EGT_FAKE_NVML);
  EXPECT_EQ(node["gpus"], 7);
  EXPECT_EQ(node["gpus_on_bus"], 8);
  EXPECT_EQ(node["not_shown"], Json::array({"0000:17:00.0"}));
  EXPECT_EQ(node["drives"], 1);
  EXPECT_EQ(node["driver"], "580.1");
  const Json& gpu = node["gpu"][3];
  EXPECT_EQ(gpu["nvlinks"], 17);
  EXPECT_EQ(gpu["nvlinks_of"], 18);
  EXPECT_EQ(gpu["serial"], "1653");
  EXPECT_EQ(gpu["memory_gb"], 1.5);
  EXPECT_EQ(gpu["power_limit_w"], Json());
  std::set<std::string> keys;
  for (const Deviation& one : check_inventory(Json::object(), node)) {
    EXPECT_TRUE(one.is_usual);
    keys.insert(one.key);
  }
  EXPECT_EQ(keys, (std::set<std::string>{"ecc", "fabric", "gpus", "nvlinks", "pcie_width", "processes"}));
}

TEST_F(PciGpus, ThatAContainerHidesAreNotMissing) {
  for (const char* address : {"0000:10:00.0", "0000:11:00.0"}) add(address, "0x10de", "0x030200", "nvidia");
  const NvmlScript script("gpus 1\n");
  ::setenv("NVIDIA_VISIBLE_DEVICES", "0", 1);
  EXPECT_TRUE(check_inventory(Json::object(), read_inventory("a", root_.path(), EGT_FAKE_NVML)).empty());
  ::unsetenv("NVIDIA_VISIBLE_DEVICES");
  EXPECT_EQ(check_inventory(Json::object(), read_inventory("a", root_.path(), EGT_FAKE_NVML)).size(), 1u);
}

TEST(Inventory, WithoutADriverHasNoGpu) {
  const Json node = read_inventory("a", "/nowhere", "/nowhere.so");
  EXPECT_EQ(node["gpus"], 0);
  EXPECT_NE(text_at(node, "driver_error").find("no NVML"), std::string::npos);
}

}  // namespace
}  // namespace egt
