#include "command/platform.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "egt/core/system_files.hpp"
#include "tests/support/fake_root.hpp"

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
            "1 of 8 GPUs tested on node7; start with mpirun -np 8 or scripts/run.sh");
  EXPECT_EQ(untested_gpus(1, one, root_.path()), "");
  EXPECT_EQ(untested_gpus(8, {.local_size = 8, .hostname = "node7"}, root_.path()), "");
  EXPECT_EQ(untested_gpus(0, one, root_.path()), "");
  add("0000:17:00.0", "0x10de", "0x030200", "nvidia");
  add("0000:65:00.0", "0x10de", "0x030200");
  EXPECT_EQ(untested_gpus(1, one, root_.path()),
            "1 of 2 GPUs tested on node7; CUDA does not list the others: see dmesg and nvidia-smi");
  EXPECT_EQ(untested_gpus(0, one, root_.path()),
            "0 of 2 GPUs tested on node7; the host backend tests the CPU");
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);  // as set by the user
  EXPECT_EQ(untested_gpus(1, one, root_.path()), "");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace egt
