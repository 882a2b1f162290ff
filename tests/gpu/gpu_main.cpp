// Main function of tests that need a GPU: all are skipped if there is none, and all fail if one fails.
#include <gtest/gtest.h>

#include <cstdio>

#include "device/cuda/cuda_device.hpp"

int main(int argc, char** argv) {
  constexpr int skipped_exit_code = 77;  // ctest's SKIP_RETURN_CODE
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const egt::Result<int> gpus = egt::cuda_device_count();
  if (!gpus.ok()) {
    std::fprintf(stderr, "failed: %s\n", gpus.status().what().c_str());
    return 1;
  }
  if (gpus.value() > 0) return RUN_ALL_TESTS();
  std::fprintf(stderr, "skipped: %s\n", egt::cuda_unavailable_reason().c_str());
  return skipped_exit_code;
}
