#pragma once

#include <gtest/gtest.h>

#include "ranks/mpi/mpi_session.hpp"

/// Every rank runs the same tests in the same order; rank 0 prints their names, each rank its failures.
namespace egt::test {

constexpr double timeout_s = 30;

/// The session of this test program.
MpiSession& mpi_session();

#define ASSERT_OK(expression)                                                 \
  do {                                                                        \
    const ::egt::Status asserted = (expression);                              \
    ASSERT_TRUE(asserted.ok()) << asserted.what() << " " << asserted.where(); \
  } while (false)

}  // namespace egt::test
