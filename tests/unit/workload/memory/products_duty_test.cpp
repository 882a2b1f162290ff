#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "egt/core/clock.hpp"
#include "tests/support/memory_fixture.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/memory/memory_workload.hpp"

namespace egt {
namespace {

using test::eventually;
using test::figure;
using test::fill_of;
using test::World;

constexpr std::uint64_t many_blocks = 24 << 20;  ///< one MiB each: one operand while extreme compute leads

/// GEMM time on the device, in seconds.
double seconds_of_products(const MemoryWorkload& memory) {
  const PartReport report = memory.report();
  const Json& rate = report.figures["gemm_tflops"];
  return rate.is_null() ? 0 : report.work.gemm_flops * 1e-12 / rate.get<double>();
}

TEST(ProductsDuty, NoneWhereExtremeTermsLeadAndAllWhereProductsDo) {
  World world;
  world.load.set_products_duty(0);
  MemoryWorkload memory(world.environment, fill_of(many_blocks));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(memory, "sweeps") >= 3; })) << "the patrol goes on";
  EXPECT_EQ(memory.report().work.gemm_flops, 0);
  world.load.set_lead(LoadLead::products);
  EXPECT_TRUE(eventually([&] { return memory.report().work.gemm_flops > 0; }));
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_TRUE(memory.report().success);
  EXPECT_TRUE(world.faults().empty());
}

TEST(ProductsDuty, TheirShareOfTheTimeIsKept) {
  World world;
  world.load.set_products_duty(0.1);
  MemoryWorkload memory(world.environment, fill_of(many_blocks));
  ASSERT_TRUE(memory.prepare().ok());
  const Clock::time_point start = Clock::now();
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return memory.report().work.gemm_flops > 0; }));
  while (seconds_since(start) < 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double share = seconds_of_products(memory) / seconds_since(start);
  EXPECT_GT(share, 0.01);
  EXPECT_LT(share, 0.4) << "a burst at the start, and products that last longer on a busy machine";
  ASSERT_TRUE(memory.finish(true).ok());
}

/// All blocks are operands, so no other block needs a memory test.
TEST(ProductsDuty, WhatASmallFillHasTakenAsOperandIsUsedUp) {
  World world;
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(1 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_EQ(memory.blocks().size(), 1u);
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return memory.report().work.gemm_flops > 0; }));
  world.load.set_products_duty(0);
  world.load.set_lead(LoadLead::extreme);
  const std::uint64_t visits = figure(memory, "visits");
  EXPECT_TRUE(eventually([&] { return figure(memory, "visits") >= visits + 3; }));
  ASSERT_TRUE(memory.finish(true).ok());
}

}  // namespace
}  // namespace egt
