#include "command/options/presets.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "command/options/option_table.hpp"
#include "tests/support/options_fixture.hpp"

namespace egt::test {
namespace {

using Words = std::vector<std::string>;

TEST(Presets, AreThoseOfTheFolderAndTheHelpTellsThem) {
  Words names;
  const std::string help = help_text("burn", 132);
  for (const Preset& preset : presets()) {
    names.push_back(preset.name);
    EXPECT_EQ(preset.text.rfind("# ", 0), 0u) << preset.name;
    EXPECT_NE(help.find(fmt::format("\n  {:<12} {}\n", preset.name, preset.help())), std::string::npos);
    EXPECT_GT(preset.help().size(), 20u) << preset.name;
    EXPECT_LT(preset.help().size(), 110u) << preset.name;
  }
  EXPECT_EQ(names, (Words{"acceptance", "io", "memory", "multi-gpu", "power", "quick", "single-gpu", "soak",
                          "workstation"}));
  EXPECT_EQ(good({"links", "--help"}).message->find("workstation"), std::string::npos);
}

TEST(Presets, AreTakenBesideWhatExcludesOthers) {
  for (const Preset& preset : presets()) {
    const Options options =
        good({"--preset", preset.name, "--global-batch", "8", "--check-every", "5", "--steps", "3"});
    EXPECT_EQ(options.burn.steps, 3) << preset.name;
    EXPECT_FALSE(options.burn.duration_seconds) << preset.name << ": steps are instead of it";
    EXPECT_EQ(effective_options(options).at("preset"), preset.name);
  }
  EXPECT_EQ(effective_options(good({})).at("preset"), nullptr);
}

TEST(Presets, HoldWhatTheirNamesPromise) {
  for (const char* name : {"single-gpu", "multi-gpu"}) {
    const BurnOptions burn = good({"--preset", name}).burn;
    EXPECT_EQ(burn.memory.fill.bytes, 72'000'000'000u);
    EXPECT_EQ(burn.duration_seconds, 300.0);
    EXPECT_EQ(burn.file.size, 10'000'000'000u);
    EXPECT_EQ(burn.file.repeats, 50);
    EXPECT_EQ(burn.file.every, 10);
    EXPECT_EQ(burn.file.budget, 500'000'000'000u) << "or its own cycle would be cut";
  }
  const BurnOptions workstation = good({"--preset", "workstation"}).burn;
  EXPECT_EQ(workstation.train.balance, Balance::automatic);
  EXPECT_EQ(workstation.precision, "fp32");
  EXPECT_EQ(workstation.train.extreme_iterations, 200);
  EXPECT_EQ(workstation.memory.buffer_iterations, 300);
  EXPECT_LE(good({"--preset", "quick"}).burn.duration_seconds, 45.0) << "and it starts and ends, too";
  EXPECT_EQ(good({"--preset", "acceptance"}).burn.duration_seconds, 3600.0);
  EXPECT_EQ(good({"--preset", "soak"}).burn.duration_seconds, 72 * 3600.0);
  EXPECT_FALSE(good({"--preset", "power"}).burn.memory.fill.is_zero()) << "products over it have the power";
  EXPECT_GT(good({"--preset", "memory"}).burn.memory.fill.share, 0.9);
  EXPECT_TRUE(good({"--preset", "io"}).burn.file.enabled);
}

TEST(Presets, AreWeakerThanAConfigFileAndThatThanTheCommandLine) {
  const ConfigFile file("io-repeats = 7\nio-size = \"8MB\"\nno-io = false\n");
  const FileOptions of_file = good({"--preset", "single-gpu", "--config", file.path()}).burn.file;
  EXPECT_EQ(of_file.repeats, 7);
  EXPECT_EQ(of_file.every, 10);
  EXPECT_EQ(good({"--preset", "io", "--config", file.path(), "--io-repeats", "9"}).burn.file.repeats, 9);
  EXPECT_EQ(good({"--preset", "io", "--io-repeats", "9"}).burn.file.repeats, 9);
  EXPECT_FALSE(good({"--preset", "power"}).burn.file.enabled);
  EXPECT_TRUE(good({"--preset", "power", "--config", file.path()}).burn.file.enabled) << "also a false";
  const ConfigFile named("preset = \"soak\"\n");
  EXPECT_EQ(good({"--config", named.path()}).burn.file.every, 10000);
  EXPECT_EQ(good({"--config", named.path(), "--quick"}).common.preset, "quick");
}

TEST(Presets, CountAsGivenWhereTheHostHasDefaults) {
  Options options = good({"--preset", "quick"});
  apply_defaults(options, Backend::host);
  EXPECT_EQ(options.burn.file.size, 64'000'000u);
  for (const std::string& one : options.host_defaults) EXPECT_EQ(one.find("--io-"), std::string::npos) << one;
  EXPECT_EQ(options.burn.memory.fill.bytes, 256'000'000u) << "which the preset leaves to the device";
}

TEST(Presets, QuickIsOneOfThem) {
  EXPECT_EQ(effective_options(good({"--quick"})), effective_options(good({"--preset", "quick"})));
  EXPECT_TRUE(good({"loadtest", "--quick"}).loadtest.quick);
  EXPECT_EQ(good({"loadtest", "--quick"}).common.preset, "");
  EXPECT_EQ(refused({"--quick", "--preset", "soak"}),
            "--quick and --preset are mutually exclusive: --quick is --preset quick");
  EXPECT_EQ(refused({"--quick=false"}), "--quick false: use it without a value");
  EXPECT_EQ(refused({"verify", "--quick"}),
            "--quick: the command verify has no such option (burn and loadtest have)");
}

TEST(Presets, AnUnknownOneIsRefusedWithTheNearest) {
  const std::string all =
      "use one of acceptance, io, memory, multi-gpu, power, quick, single-gpu, soak, workstation";
  EXPECT_EQ(refused({"--preset", "sok"}), "--preset sok: did you mean soak? " + all);
  EXPECT_EQ(refused({"--preset", "elsewhere.toml"}), "--preset elsewhere.toml: " + all);
  const ConfigFile file("preset = \"quik\"\n");
  EXPECT_EQ(refused({"--config", file.path()}),
            "--config " + file.path() + ": --preset quik: did you mean quick? " + all);
}

TEST(Presets, AnotherCommandRefusesWhatItHasNot) {
  EXPECT_EQ(refused({"verify", "--preset", "quick"}),
            "--preset quick: --io-repeats: the command verify has no such option (burn has)");
  EXPECT_EQ(refused({"devices", "--preset", "power"}),
            "--preset: the command devices has no such option (burn, verify and 4 others have)");
}

TEST(Presets, AResumedRunKeepsItsOwn) {
  const auto options = resumed_options(good({"--resume", "o"}), {"--preset", "soak", "--io-every", "20"});
  ASSERT_TRUE(options.ok()) << options.status().what();
  EXPECT_EQ(effective_options(options.value()),
            effective_options(good({"--preset", "soak", "--io-every", "20"})));
}

/// Output of --print-config for a command line, including all resulting options.
std::string printed(Words arguments) {
  arguments.emplace_back("--print-config");
  return good(arguments).message.value_or("nothing");
}

Json on(Options options, Backend backend) {
  apply_defaults(options, backend);
  return effective_options(options);
}

class PrintedConfig : public testing::TestWithParam<Words> {};

TEST_P(PrintedConfig, IsReadBackToTheSameOptions) {
  const std::string text = printed(GetParam());
  const ConfigFile file(text);
  Words back;
  for (const std::string& word : GetParam()) {
    if (word.starts_with("-")) break;
    back.push_back(word);
  }
  back.insert(back.end(), {"--config", file.path()});
  EXPECT_EQ(printed(back), text);
  const Options asked = good(GetParam()), read = good(back);
  for (const Backend backend : {Backend::host, Backend::cuda}) {
    if (asked.common.backend != Backend::automatic && asked.common.backend != backend) continue;
    EXPECT_EQ(on(read, backend), on(asked, backend)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, PrintedConfig,
    testing::Values(
        Words{}, Words{"--backend", "host"}, Words{"--backend", "cuda"}, Words{"--preset", "power"},
        Words{"--preset", "soak", "--steps", "9", "--backend", "host"}, Words{"--quick", "--batch", "3"},
        Words{"--load", "train", "--pulse", "2.5:0.25", "--duration", "0.0000001"},
        Words{"--global-batch", "96", "--check-every", "7", "--learning-rate", "1e-9", "--fail-fast"},
        Words{"--check-budget", "0.07%", "--memory", "33.3%", "--throttle-limit", "1.1%", "--duration",
              "2.5h"},
        Words{"--io-budget", "18446744073709551615B", "--io-size", "67MiB", "--memory", "7GiB"},
        Words{"--io-budget", "unlimited", "--io-dir", "/a, b\\c d", "--golden", "'", "--no-io"},
        Words{"--inject", "memory:rank=0,step=2,bit=3+4", "--inject", "slow:rank=1,step=3,ms=5"},
        Words{"--seed", "18446744073709551615", "--devices", "2,0", "--output", "o", "--log-file", "l",
              "--log-level", "off", "--progress", "lines", "--metrics-sample-rate", "0.1"},
        Words{"verify", "--memory", "5%"}, Words{"selftest", "--backend", "host"}, Words{"links"},
        Words{"links", "--warn-below", "123.4b/s", "--size", "1234567B", "--backend", "cuda"},
        Words{"links", "--warn-below", "0", "--max-restarts", "3"}, Words{"bench"},
        Words{"bench", "--backend", "host"}, Words{"bench", "--mode", "p2p,single", "--trial-time", "0.01s"},
        Words{"bench", "--ceilings"}, Words{"bench", "--ceilings", "--backend", "host", "--io-size", "1MB"},
        Words{"loadtest", "--quick"}, Words{"loadtest", "--device", "cpu", "--mode", "independent"},
        Words{"devices"}, Words{"report", "d"},
        Words{"compare", "a", "--price", "x=y=3", "--price", "z=0.1"}));

TEST(PrintConfig, TellsWhatDependsOnTheDevice) {
  const std::string open = printed({"--memory", "5%"});
  EXPECT_NE(open.find("\nmemory = \"5%\"\n"), std::string::npos) << open;
  EXPECT_NE(open.find("\nduration = \"5m\"\n"), std::string::npos) << open;
  EXPECT_NE(printed({"--throttle-limit", "7%"}).find("\"7%\""), std::string::npos) << "not 7.000000000000001";
  EXPECT_NE(open.find("\n# batch = 1024  # host: 128\n"), std::string::npos) << open;
  EXPECT_NE(printed({"--backend", "host"}).find("\nbatch = 128\n"), std::string::npos);
  EXPECT_NE(printed({"--backend", "cuda"}).find("\nbatch = 1024\n"), std::string::npos);
  EXPECT_EQ(printed({"--backend", "host"}).find("\n#"), std::string::npos);
  EXPECT_NE(printed({"bench"}).find("\"strong\"]  # one rank: single"), std::string::npos);
  EXPECT_NE(printed({"links"}).find("\nmax-restarts = 16\n"), std::string::npos) << "its own default";
}

TEST(PrintConfig, WinsOverNothingAndRefusesWhatAFileCannotHold) {
  EXPECT_NE(refused({"--print-config", "--batch", "0"}).find("--batch 0"), std::string::npos);
  EXPECT_EQ(refused({"--print-config", "--golden", "a\nb"}),
            "--print-config: --golden \"a?b\" cannot stand in a config file; leave it out");
  EXPECT_EQ(refused({"--print-config", "--resume", "r"}),
            "--resume and --print-config are mutually exclusive: the run continues with its own options");
  const ConfigFile file("print-config = true\n");
  EXPECT_NE(refused({"--config", file.path()}).find("unknown key print-config"), std::string::npos);
}

}  // namespace
}  // namespace egt::test
