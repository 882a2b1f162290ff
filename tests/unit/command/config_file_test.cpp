#include "command/options/options.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/options_fixture.hpp"

namespace egt::test {
namespace {

TEST(Options, ConfigFileGivesWhatTheCommandLineDoesNot) {
  const ConfigFile file(
      "# a comment\nsteps = 12\nlayers = [8, 4]\nmemory = \"64MB\"\nno-io = true\nseed = 3\n");
  const Options options = good({"--config", file.path(), "--seed", "9"});
  EXPECT_EQ(options.burn.steps, 12);
  EXPECT_EQ(options.burn.train.layers, (std::vector<std::int64_t>{8, 4}));
  EXPECT_EQ(options.burn.memory.fill.bytes, 64'000'000u);
  EXPECT_FALSE(options.burn.file.enabled);
  EXPECT_EQ(options.common.seed, 9u);
}

TEST(Options, AConfigFilesErrorsAreNamed) {
  EXPECT_NE(refused({"--config", "/nowhere/x.toml"}).find("/nowhere/x.toml: cannot be read"),
            std::string::npos);
  EXPECT_NE(refused({"--config", "/tmp"}).find("is a directory"), std::string::npos);
  const ConfigFile unknown("steps = 5\nfrob = 1\n");
  EXPECT_NE(refused({"--config", unknown.path()}).find("unknown key frob"), std::string::npos);
  const ConfigFile value("steps = -5\n");
  EXPECT_NE(refused({"--config", value.path()}).find("--steps -5: use"), std::string::npos);
  const ConfigFile twice("steps = 5\nseed = 6\nsteps = 5\n");
  EXPECT_NE(refused({"--config", twice.path()}).find("--steps: given twice"), std::string::npos);
  const ConfigFile nested("config = \"other\"\n");
  EXPECT_NE(refused({"--config", nested.path()}).find("unknown key config"), std::string::npos);
}

TEST(Options, AConfigFilesErrorsNameTheFile) {
  const ConfigFile value("memory = 90\n");
  EXPECT_EQ(refused({"--config", value.path()}), "--config " + value.path() +
                                                     ": --memory 90: a unit is missing (90% or 90GB?): use a "
                                                     "share of 0 to 100 %, or a size such as 72GB");
  const ConfigFile twice("batch = 4\nbatch = 5\n");
  const std::string reported = "--config " + twice.path() + ": --batch: given twice; give it once";
  EXPECT_EQ(refused({"--config", twice.path()}), reported);
  EXPECT_EQ(refused({"--config", twice.path(), "--batch", "6"}), reported) << "also where it has no effect";
  const ConfigFile section("[burn]\nsteps = 5\n");
  EXPECT_NE(refused({"--config", section.path()}).find("section [burn]: write"), std::string::npos);
  const ConfigFile large("# " + std::string(1u << 20, 'x') + "\n");
  EXPECT_NE(refused({"--config", large.path()}).find("is no TOML file"), std::string::npos)
      << "that of some log";
  EXPECT_NE(refused({"--config", "/dev/zero"}).find("/dev/zero: is no TOML file"), std::string::npos);
  EXPECT_EQ(resumed_options(good({"--resume", "o"}), {"burn", "--memory", "90"})
                .status()
                .what()
                .find("--memory 90:"),
            0u);
}

TEST(Options, AConfigFileMayBeginWithAByteOrderMark) {
  const ConfigFile file("\xEF\xBB\xBFsteps = 5\n");
  EXPECT_EQ(good({"--config", file.path()}).burn.steps, 5);
}

TEST(Options, AFlagInAConfigFileMayBeFalse) {
  const ConfigFile file("no-io = false\nfail-fast = false\n");
  const Options options = good({"--config", file.path()});
  EXPECT_TRUE(options.burn.file.enabled);
  EXPECT_FALSE(options.burn.fail_fast);
  EXPECT_FALSE(good({"--config", file.path(), "--no-io"}).burn.file.enabled);
}

TEST(Options, AResumedRunStaysInItsDirectory) {
  EXPECT_EQ(refused({"--resume", "a", "--output", "b"}),
            "--resume and --output are mutually exclusive: the run continues in its own directory");
  const ConfigFile file("resume = \"a\"\n");
  EXPECT_NE(refused({"--config", file.path()}).find("unknown key resume"), std::string::npos);
}

TEST(ResumedOptions, AreThoseOfTheFirstRunAndWhatIsGivenAnew) {
  const ConfigFile first("steps = 12\nseed = 3\n");
  const std::vector<std::string> arguments = {
      "burn", "--config", first.path(),           "--output", "o", "--batch",
      "5",    "--inject", "memory:rank=0,step=1", "--no-io"};
  auto options = resumed_options(good({"--resume", "o", "--progress", "none"}), arguments);
  ASSERT_TRUE(options.ok()) << options.status().what();
  EXPECT_EQ(options.value().burn.resume, "o");
  EXPECT_EQ(options.value().common.progress, ProgressStyle::none);
  EXPECT_EQ(options.value().arguments, (std::vector<std::string>{"--resume", "o", "--progress", "none"}));
  EXPECT_EQ(effective_options(options.value()), effective_options(good(arguments)));
  options = resumed_options(good({"--resume", "o", "--batch", "6"}), arguments);
  EXPECT_EQ(options.value().burn.train.batch, 6);
  options = resumed_options(good({"--resume", "o", "--global-batch", "6"}), arguments);
  EXPECT_EQ(options.status().what(), "--batch and --global-batch are mutually exclusive: give one of them");
}

}  // namespace
}  // namespace egt::test
