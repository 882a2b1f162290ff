#pragma once

#include <gtest/gtest.h>

#include "device/host/host_device.hpp"
#include "ranks/mpi/mpi_session.hpp"

/// Every rank runs the same tests in the same order. Rank 0 prints their names, each rank its failures.
namespace egt::test {

constexpr double timeout_s = 30;

/// The session of this test program.
MpiSession& mpi_session();

/// Uses this rank's share of the machine's cores, as the program does, so that ranks do not compete for
/// cores.
inline Result<std::unique_ptr<Device>> open_host_device_of_rank() {
  HostDeviceConfig config;
  config.local_rank = mpi_session().place().local_rank;
  config.local_size = mpi_session().place().local_size;
  return open_host_device(config);
}

#define ASSERT_OK(expression)                                                 \
  do {                                                                        \
    const ::egt::Status asserted = (expression);                              \
    ASSERT_TRUE(asserted.ok()) << asserted.what() << " " << asserted.where(); \
  } while (false)

}  // namespace egt::test
