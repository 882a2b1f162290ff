#include "command/options/options.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/options_fixture.hpp"

namespace egt::test {
namespace {

TEST(Options, InjectionsComeSeveralTimesFromTheCommandLineAndAsAList) {
  const std::vector<std::string> texts = {"weight:rank=1,step=20,bit=3+7", "file-torn:rank=0,step=1"};
  const ConfigFile list("inject = [\"" + texts[0] + "\", \"" + texts[1] + "\"]\n");
  const ConfigFile one("inject = \"" + texts[0] + "\"\n");
  for (const Options& options :
       {good({"--inject", texts[0], "--inject", texts[1]}), good({"--config", list.path()})}) {
    ASSERT_EQ(options.run.injections.size(), 2u);
    EXPECT_EQ(options.run.injections[0].mask, 0x88u);
    EXPECT_EQ(options.run.injections[1].kind, InjectionKind::file_torn);
    EXPECT_EQ(effective_options(options).at("inject"), Json(texts));
    EXPECT_EQ(options.given.at("inject"), texts[0] + " " + texts[1]);
  }
  EXPECT_EQ(effective_options(good({"--config", one.path()})).at("inject"), Json({texts[0]}));
  EXPECT_EQ(good({"--config", list.path(), "--inject", "memory:rank=0,step=2"}).run.injections.size(), 1u)
      << "the command line is stronger";
}

TEST(Options, AnInjectionsErrorSaysWhatIsWrongWithIt) {
  EXPECT_EQ(refused({"--inject", "weight:rank=0,step=1,bit=40"}),
            "--inject weight:rank=0,step=1,bit=40: 'bit=40': use bits of 0 to 31, as 3 or 3+7");
  EXPECT_EQ(refused({"--inject", "weight:rank=0,step=1", "--inject", "weight:rank=0"})
                .find("--inject weight:rank=0: "),
            0u);
  EXPECT_NE(refused({"--inject", "frob:rank=0,step=1"}).find("no such kind"), std::string::npos);
  EXPECT_NE(refused({"--inject", ""}).find("no such kind"), std::string::npos);
}

TEST(Options, AnInjectionThatWouldHitNothingIsRefused) {
  const auto names = [](const std::string& message, const char* option) {
    EXPECT_TRUE(message.starts_with("--inject ")) << message;
    EXPECT_NE(message.find(option), std::string::npos) << message;
  };
  names(refused({"--inject", "memory:rank=0,step=1", "--memory", "0"}), "--memory 0");
  names(refused({"--inject", "memory:rank=0,step=1", "--memory", "0%"}), "--memory 0");
  names(refused({"--inject", "host-copy:rank=0,step=1", "--load", "train"}), "--load train");
  for (const char* kind : {"file-bit", "file-stale", "file-torn", "file-misplaced", "file-lost"})
    names(refused({"--inject", std::string(kind) + ":rank=0,step=1", "--no-io"}), "--no-io");
  names(refused({"--inject", "extreme:rank=0,step=1", "--extreme-iterations", "0"}),
        "--extreme-iterations 0");
  names(refused({"--inject", "extreme:rank=0,step=1", "--layers", "8,4"}), "--layers");
  names(refused({"--inject", "gemm:rank=0,step=1,layer=3", "--layers", "8,4,2"}), "1 to 2");
  names(refused({"--inject", "collective:rank=0,step=1,layer=6"}), "1 to 5");
  good({"--inject", "collective:rank=0,step=1,layer=5", "--layers", "8,4"});
  names(refused({"--inject", "multiprocessor:rank=0,step=1,layer=17"}), "1 to 15");
  names(refused({"--inject", "multiprocessor:rank=0,step=1,layer=16", "--memory", "0"}), "--memory 0");
  good({"--inject", "multiprocessor:rank=0,step=1,layer=15", "--layers", "8,4"});
  names(refused({"--inject", "gemm:rank=0,step=30", "--steps", "30"}), "--steps");
  names(refused({"--inject", "slow:rank=0,step=1,peer=9"}), "leave peer out");
  names(refused({"--inject", "collective:rank=1,step=1,peer=0", "--load", "train"}), "leave peer out");
  names(refused({"--inject", "collective:rank=1,step=1,peer=0,layer=1"}), "leave one of them out");
  good({"--inject", "collective:rank=1,step=1,peer=0"});
  names(refused({"--inject", "stop:rank=0,step=1,ms=900"}), "use ms=30000 or more");
  names(refused({"links", "--inject", "hang:rank=0,step=1,ms=900", "--collective-timeout", "2s"}), "ms=2000");
  good({"--inject", "gemm:rank=0,step=29,layer=2", "--layers", "8,4,2", "--steps", "30", "--no-io",
        "--memory", "0", "--extreme-iterations", "0"});
}

TEST(Options, KindsThatLeaveDataAsTheyAreAreTaken) {
  for (const char* kind : {"slow", "hang", "kill", "stop", "temperature", "xid", "ecc", "diskfull",
                           "memory-pressure", "idle", "device-error"}) {
    const Options options = good({"--inject", std::string(kind) + ":rank=0,step=1"});
    EXPECT_EQ(options.run.injections.size(), 1u) << kind;
    EXPECT_TRUE(check_injections(options.run.injections, 1).ok()) << kind;
  }
  EXPECT_NE(refused({"--inject", "diskfull:rank=0,step=1", "--no-io"}).find("--no-io"), std::string::npos);
  good({"--inject", "memory-pressure:rank=0,step=1", "--no-io"});
}

TEST(CheckInjections, OneRankFindsAWrongStateOnlyIfItHasTwo) {
  for (const char* kind : {"weight", "optimizer"}) {
    const auto injections = good({"--inject", std::string(kind) + ":rank=0,step=1"}).run.injections;
    EXPECT_TRUE(check_injections(injections, 1, true).ok());
    EXPECT_EQ(check_injections(injections, 1).code(), StatusCode::invalid_argument);
    EXPECT_TRUE(check_injections(injections, 2).ok());
  }
  const auto sum = good({"--inject", "all-reduce:rank=0,step=1"}).run.injections;
  EXPECT_EQ(check_injections(sum, 1, true).code(), StatusCode::invalid_argument);
  EXPECT_NE(refused({"--inject", "all-reduce:rank=0,step=1", "--coverage", "sampled"}).find("use full"),
            std::string::npos);
}

TEST(CheckInjections, NamesTheRankThatIsNotThere) {
  const auto injections = good({"--inject", "weight:rank=2,step=1"}).run.injections;
  EXPECT_TRUE(check_injections(injections, 3).ok());
  const Status two = check_injections(injections, 2);
  EXPECT_EQ(two.code(), StatusCode::invalid_argument);
  EXPECT_EQ(two.what(),
            "--inject weight:rank=2,step=1: rank 2 is not in this run; use 0 to 1, or more ranks");
  EXPECT_TRUE(check_injections({}, 1).ok());
}

TEST(CheckInjections, AloneARankHasNothingToCompareSomeKindsWith) {
  for (const char* kind : {"weight", "gradient", "activation", "gemm", "extreme", "collective", "optimizer",
                           "memory", "file-bit", "file-lost"}) {
    const auto injections = good({"--inject", std::string(kind) + ":rank=0,step=1"}).run.injections;
    const std::string name = kind;
    const bool needs_peers = name == "weight" || name == "optimizer" || name == "collective";
    EXPECT_EQ(check_injections(injections, 1).ok(), !needs_peers) << kind;
    EXPECT_TRUE(check_injections(injections, 2).ok()) << kind;
  }
}

}  // namespace
}  // namespace egt::test
