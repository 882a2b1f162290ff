// CUDA errors that only the hardware can cause. Needs the library but no GPU.
#include "device/cuda/cuda_native.hpp"

#include <gtest/gtest.h>

namespace egt {
namespace {

StatusCode code_of(int error) {
  return cuda_status(static_cast<cudaError_t>(error), "copy memory").code();
}

TEST(CudaStatus, ErrorsOfTheHardwareAreDeviceErrors) {
  for (const int error : {214, 220, 226, 700, 714, 715, 716, 717, 718, 719, 721})
    EXPECT_EQ(code_of(error), StatusCode::device_error) << error;
  const Status status = cuda_status(cudaErrorECCUncorrectable, "copy memory");
  EXPECT_EQ(status.native(), 214);
  EXPECT_EQ(status.what(),
            "CUDA could not copy memory: uncorrectable ECC error encountered (cudaErrorECCUncorrectable)");
}

TEST(CudaStatus, WhatTheEnvironmentCanCauseIsNot) {
  EXPECT_EQ(code_of(cudaErrorMemoryAllocation), StatusCode::out_of_memory);
  for (const int error : {cudaErrorNoDevice, cudaErrorDevicesUnavailable, cudaErrorInsufficientDriver,
                          cudaErrorSystemNotReady, cudaErrorNoKernelImageForDevice})
    EXPECT_EQ(code_of(error), StatusCode::unavailable) << error;
  for (const int error :
       {cudaErrorLaunchTimeout, cudaErrorAssert, cudaErrorContextIsDestroyed, cudaErrorUnknown})
    EXPECT_EQ(code_of(error), StatusCode::aborted) << error;
  EXPECT_EQ(code_of(cudaErrorInvalidValue), StatusCode::internal);
}

}  // namespace
}  // namespace egt
