#pragma once

#include <memory>
#include <utility>

#include "mpi_test.hpp"
#include "ranks/mpi/mpi_communicator.hpp"

namespace egt::test {

/// A rank with a host device and the communicator of all ranks, which tests may wrap.
class RanksOnHost : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_host_device_of_rank();
    ASSERT_OK(opened.status());
    device = std::move(opened.value());
    auto connected = open_mpi_communicator(mpi_session(), timeout_s);
    ASSERT_OK(connected.status());
    real = std::move(connected.value());
  }

  int size() const { return mpi_session().place().size; }
  int rank() const { return mpi_session().place().rank; }

  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> real;
};

}  // namespace egt::test
