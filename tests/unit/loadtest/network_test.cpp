#include "device/host/onednn/host_dnn.hpp"
#include "loadtest/load_test.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

/// On a slow host, preparation before the first iteration takes longer than the max silence of a rank.
TEST(NetworkTest, TellsThatItGoesOnWhileItIsMadeReady) {
  World world;
  world.place.rank = 0;
  world.place.size = 1;
  auto dnn = open_host_dnn(*world.device);
  if (!dnn.ok()) GTEST_SKIP() << dnn.status().what();
  LoadTestParts parts;
  parts.dnn = dnn.value().get();
  parts.options.pixels = 32;
  LoadTest test = load_tests().front();
  test.batch = 2;
  world.board.line("main").begin("loadtest: a test", 7);
  const auto made = make_network_test(world.environment, parts, test);
  ASSERT_TRUE(made.ok()) << made.status().what();
  const Activity now = world.board.line("main").read();
  EXPECT_EQ(now.phase, "loadtest: opens its images");
  EXPECT_EQ(now.step, 7);
  EXPECT_FALSE(now.waits_for_peers);
}

}  // namespace
}  // namespace egt::test
