#include "command/options/options.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "command/options/option_table.hpp"
#include "tests/support/options_fixture.hpp"

namespace egt::test {
namespace {

TEST(LoadTestOptions, DefaultsAreTheSeeds) {
  const Options options = good({"loadtest"});
  EXPECT_EQ(options.command, "loadtest");
  EXPECT_EQ(options.loadtest.epochs, 3);
  EXPECT_EQ(options.loadtest.batches, 200);
  EXPECT_EQ(options.loadtest.workers, 0);
  EXPECT_EQ(options.loadtest.data, "");
  EXPECT_FALSE(options.loadtest.quick);
  EXPECT_EQ(options.loadtest.mode, LoadTestMode::ddp);
  EXPECT_EQ(options.loadtest.pixels, 224);
}

TEST(LoadTestOptions, EveryOneReachesItsPlace) {
  const Options options =
      good(words("loadtest --num-epochs 5 --num-batches 500 --num-workers 4 --data a/folder "
                 "--image-size 96 --mode independent --quick --device cpu --precision bf16 "
                 "-o out.json --log-file test.log --metrics-sample-rate 2.5"));
  EXPECT_EQ(options.loadtest.epochs, 5);
  EXPECT_EQ(options.loadtest.batches, 500);
  EXPECT_EQ(options.loadtest.workers, 4);
  EXPECT_EQ(options.loadtest.data, "a/folder");
  EXPECT_EQ(options.loadtest.pixels, 96);
  EXPECT_EQ(options.loadtest.mode, LoadTestMode::independent);
  EXPECT_TRUE(options.loadtest.quick);
  EXPECT_EQ(options.common.backend, Backend::host);
  EXPECT_EQ(options.burn.precision, "bf16");
  EXPECT_EQ(options.common.output, "out.json");
  EXPECT_EQ(options.common.metrics_sample_rate, 2.5);
}

TEST(LoadTestOptions, AnyOutputMayBeOneLetterLong) {
  EXPECT_EQ(good({"loadtest", "--output", "a.json"}).common.output, "a.json");
  EXPECT_EQ(good({"-o", "a"}).common.output, "a");
  EXPECT_EQ(good({"compare", "b", "-o", "a.json"}).common.output, "a.json");
}

TEST(LoadTestOptions, DeviceIsAnotherWordForTheBackend) {
  EXPECT_EQ(good({"loadtest", "--device", "cuda"}).common.backend, Backend::cuda);
  EXPECT_EQ(good({"loadtest"}).common.backend, Backend::automatic);
  EXPECT_EQ(good({"loadtest", "--backend", "host"}).common.backend, Backend::host);
  EXPECT_EQ(refused({"loadtest", "--device", "host"}), "--device host: use cuda or cpu");
  EXPECT_EQ(refused({"bench", "--device", "cpu"}),
            "--device: the command bench has no such option (loadtest has)");
}

TEST(LoadTestOptions, ANameOfTwoCommandsHasEachOnesMeaning) {
  EXPECT_EQ(good({"loadtest", "--mode", "ddp"}).loadtest.mode, LoadTestMode::ddp);
  EXPECT_EQ(refused({"loadtest", "--mode", "p2p"}), "--mode p2p: use independent or ddp");
  const Options bench = good({"bench", "--mode", "single,p2p"});
  EXPECT_EQ(bench.bench.modes, (std::vector<BenchMode>{BenchMode::single, BenchMode::p2p}));
  EXPECT_NE(refused({"bench", "--mode", "independent"}).find("single, p2p, collective, hetero and strong"),
            std::string::npos);
  EXPECT_EQ(refused({"burn", "--mode", "ddp"}),
            "--mode: the command burn has no such option (bench and loadtest have)");
  EXPECT_EQ(refused({"--mode", "ddp"}),
            "--mode: the command burn has no such option (bench and loadtest have)");
}

TEST(LoadTestOptions, AConfigFilesNameOfTwoCommandsHasTheCommandsMeaning) {
  const ConfigFile file("mode = \"independent\"\nnum-batches = 7\ndevice = \"cpu\"\n");
  const Options options = good({"loadtest", "--config", file.path()});
  EXPECT_EQ(options.loadtest.mode, LoadTestMode::independent);
  EXPECT_EQ(options.loadtest.batches, 7);
  EXPECT_EQ(options.common.backend, Backend::host);
  EXPECT_NE(refused({"bench", "--config", file.path()}), "");
}

TEST(LoadTestOptions, HelpTellsANameOfTwoCommandsOnce) {
  for (const auto& [command, own, other] :
       {std::tuple("bench", "hetero", "ddp:"), std::tuple("loadtest", "ddp:", "hetero")}) {
    const std::string help = *good({command, "--help"}).message;
    const std::size_t at = help.find("--mode ");
    ASSERT_NE(at, std::string::npos) << command;
    EXPECT_EQ(help.find("--mode ", at + 1), std::string::npos) << command;
    EXPECT_NE(help.find(own), std::string::npos) << help;
    EXPECT_EQ(help.find(other), std::string::npos) << help;
  }
  const std::string loadtest = *good({"loadtest", "--help"}).message;
  for (const char* option : {"--num-epochs N", "--num-batches N", "--num-workers N", "--data DIR",
                             "--image-size N", "--device cuda|cpu", "--quick", "--log-file PATH"})
    EXPECT_NE(loadtest.find(option), std::string::npos) << option << loadtest;
  EXPECT_EQ((*good({"burn", "--help"}).message).find("--device cuda|cpu"), std::string::npos);
}

TEST(LoadTestOptions, DefaultsOfADeviceAndOfTheHost) {
  Options options = good({"loadtest"});
  apply_defaults(options, Backend::cuda);
  EXPECT_EQ(options.command_defaults, " --precision tf32 --metrics-sample-rate 5");
  EXPECT_EQ(options.loadtest.batches, 200);
  Options host = good({"loadtest", "--image-size", "48"});
  apply_defaults(host, Backend::host);
  EXPECT_EQ(host.command_defaults, " --precision fp32 --num-batches 20 --metrics-sample-rate 5");
  EXPECT_EQ(host.loadtest.batches, 20);
  EXPECT_EQ(host.loadtest.pixels, 48) << "what the user gave stays";
  EXPECT_TRUE(host.host_defaults.empty()) << "there is none left for it";
}

TEST(LoadTestOptions, AQuickOneHasSmallerDefaults) {
  Options options = good({"loadtest", "--quick"});
  apply_defaults(options, Backend::cuda);
  EXPECT_EQ(options.command_defaults,
            " --precision tf32 --num-epochs 1 --num-batches 50 --image-size 128 --metrics-sample-rate 1");
  EXPECT_EQ(options.loadtest.epochs, 1);
  EXPECT_EQ(options.loadtest.batches, 50);
  EXPECT_EQ(options.loadtest.pixels, 128);
  Options host = good({"loadtest", "--quick", "--num-epochs", "2"});
  apply_defaults(host, Backend::host);
  EXPECT_EQ(host.command_defaults,
            " --precision fp32 --num-batches 10 --image-size 32 --metrics-sample-rate 1");
  EXPECT_EQ(host.loadtest.epochs, 2);
}

TEST(LoadTestOptions, ResultsTellThemApart) {
  const Json plain = effective_options(good({"loadtest"}));
  for (const auto& [option, value] :
       {std::pair{"--num-epochs", "1"}, std::pair{"--num-batches", "1"}, std::pair{"--num-workers", "1"},
        std::pair{"--data", "x"}, std::pair{"--image-size", "32"}, std::pair{"--mode", "independent"},
        std::pair{"--precision", "bf16"}})
    EXPECT_NE(effective_options(good({"loadtest", option, value})), plain) << option;
  EXPECT_EQ(plain.at("mode"), "ddp");
  EXPECT_TRUE(effective_options(good({"bench"})).at("mode").is_array()) << "bench's own";
  EXPECT_FALSE(plain.contains("device")) << "backend tells it";
}

class RefusedLoadTestValues : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(RefusedLoadTestValues, AreRefusedByName) {
  const auto& [option, value] = GetParam();
  const std::string start = std::string(option) + " " + value + ": use ";
  EXPECT_EQ(refused({"loadtest", option, value}).find(start), 0u) << option << " " << value;
}

INSTANTIATE_TEST_SUITE_P(LoadTest, RefusedLoadTestValues,
                         testing::Values(std::pair("--num-epochs", "0"), std::pair("--num-epochs", "1.5"),
                                         std::pair("--num-batches", "0"), std::pair("--num-workers", "257"),
                                         std::pair("--num-workers", "-1"), std::pair("--data", ""),
                                         std::pair("--image-size", "31"), std::pair("--image-size", "1025"),
                                         std::pair("--mode", "both"), std::pair("--precision", "fp7")));

}  // namespace
}  // namespace egt::test
