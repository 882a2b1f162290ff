#include "command/options/options.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace egt {
namespace {

Result<Options> parse(std::vector<std::string> arguments) {
  std::vector<const char*> argv = {"extreme_gpu_trainer"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return parse_options(static_cast<int>(argv.size()), argv.data(), "1.2.3");
}

Options good(std::vector<std::string> arguments) {
  auto result = parse(std::move(arguments));
  EXPECT_TRUE(result.ok()) << result.status().what();
  return result.ok() ? result.value() : Options();
}

/// The message of a command line that must be refused: invalid_argument, one line.
std::string refused(std::vector<std::string> arguments) {
  auto result = parse(std::move(arguments));
  EXPECT_FALSE(result.ok());
  if (result.ok()) return {};
  EXPECT_EQ(result.status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(result.status().what().find('\n'), std::string::npos);
  return result.status().what();
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("egt_options_" + std::to_string(getpid()) + "_" + std::to_string(made_++) + ".toml")) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  static inline int made_ = 0;
  std::filesystem::path path_;
};

TEST(Options, DefaultsAreTheContracts) {
  const Options options = good({});
  EXPECT_EQ(options.command, "burn");
  EXPECT_FALSE(options.message);
  EXPECT_EQ(options.common.backend, Backend::automatic);
  EXPECT_EQ(options.common.metrics_sample_rate, 1.0);
  EXPECT_EQ(options.burn.duration_seconds, 300.0);
  EXPECT_FALSE(options.burn.steps);
  EXPECT_EQ(options.burn.train.layers, (std::vector<std::int64_t>{4096, 8192, 6144, 4096, 2048, 1024, 512}));
  EXPECT_EQ(options.burn.train.batch, 1024);
  EXPECT_EQ(options.burn.train.extreme_iterations, 200);
  EXPECT_EQ(options.burn.memory.buffer_iterations, 300);
  EXPECT_DOUBLE_EQ(options.burn.memory.fill.share, 0.9);
  EXPECT_EQ(options.burn.file.size, 10'000'000'000u);
  EXPECT_EQ(options.burn.file.budget, 100'000'000'000u);
  EXPECT_EQ(options.burn.precision, "cycle");
  EXPECT_EQ(options.burn.train.check_every, 0);
  EXPECT_EQ(options.burn.train.check_budget, 0.01);
  EXPECT_TRUE(options.burn.train.golden.empty());
  EXPECT_TRUE(options.run.injections.empty());
  EXPECT_EQ(options.run.guard.temperature_limit_c, 85);
  EXPECT_EQ(options.run.guard.memory_limit, 0.95);
  EXPECT_FALSE(options.run.guard.corrected_limit);
  EXPECT_EQ(options.run.watch.collective_timeout_seconds, 30);
  EXPECT_EQ(options.run.watch.max_restarts, 1);
  EXPECT_FALSE(options.burn.fail_fast);
  EXPECT_TRUE(options.burn.resume.empty());
  EXPECT_TRUE(options.given.empty());
}

TEST(Options, EveryBurnOptionReachesItsPlace) {
  const Options options = good({"burn",
                                "--duration",
                                "90s",
                                "--steps",
                                "7",
                                "--layers",
                                "8,4,2",
                                "--global-batch",
                                "96",
                                "--precision",
                                "bf16",
                                "--optimizer",
                                "adam",
                                "--learning-rate",
                                "0.25",
                                "--gradient-dtype",
                                "bf16",
                                "--extreme-iterations",
                                "0",
                                "--buffer-iterations",
                                "5",
                                "--memory",
                                "72GB",
                                "--io-dir",
                                "/x",
                                "--io-size",
                                "8MiB",
                                "--io-repeats",
                                "3",
                                "--io-every",
                                "4",
                                "--io-budget",
                                "unlimited",
                                "--no-io",
                                "--check-every",
                                "6",
                                "--golden",
                                "/g",
                                "--temperature-limit",
                                "72.5",
                                "--memory-limit",
                                "80%",
                                "--throttle-limit",
                                "0%",
                                "--corrected-limit",
                                "12",
                                "--collective-timeout",
                                "3s",
                                "--max-restarts",
                                "0",
                                "--fail-fast",
                                "--resume",
                                "/r"});
  const BurnOptions& burn = options.burn;
  EXPECT_EQ(burn.duration_seconds, 90.0);
  EXPECT_EQ(burn.steps, 7);
  EXPECT_EQ(burn.train.layers, (std::vector<std::int64_t>{8, 4, 2}));
  EXPECT_EQ(burn.global_batch, 96);
  EXPECT_EQ(burn.precision, "bf16");
  EXPECT_EQ(burn.train.optimizer, Optimizer::adam);
  EXPECT_EQ(burn.train.learning_rate, 0.25);
  EXPECT_EQ(burn.train.gradient_type, ElementType::bf16);
  EXPECT_EQ(burn.train.extreme_iterations, 0);
  EXPECT_EQ(burn.memory.buffer_iterations, 5);
  EXPECT_FALSE(burn.memory.fill.is_share);
  EXPECT_EQ(burn.memory.fill.bytes, 72'000'000'000u);
  EXPECT_EQ(burn.file.directory, "/x");
  EXPECT_EQ(burn.file.size, 8u << 20);
  EXPECT_EQ(burn.file.repeats, 3);
  EXPECT_EQ(burn.file.every, 4);
  EXPECT_FALSE(burn.file.budget);
  EXPECT_FALSE(burn.file.enabled);
  EXPECT_EQ(burn.train.check_every, 6);
  EXPECT_EQ(burn.train.golden, "/g");
  EXPECT_EQ(options.run.guard.temperature_limit_c, 72.5);
  EXPECT_DOUBLE_EQ(options.run.guard.memory_limit, 0.8);
  EXPECT_EQ(options.run.guard.throttle_limit, 0);
  EXPECT_EQ(options.run.guard.corrected_limit, 12u);
  EXPECT_EQ(options.run.watch.collective_timeout_seconds, 3);
  EXPECT_EQ(options.run.watch.max_restarts, 0);
  EXPECT_TRUE(burn.fail_fast);
  EXPECT_EQ(burn.resume, "/r");
  EXPECT_EQ(options.arguments.size(), 53u);
}

TEST(Options, EveryCommonOptionReachesItsPlace) {
  const Options options = good({"--backend=host", "--devices", "2,0", "--output", "out", "--seed",
                                "18446744073709551615", "--metrics-sample-rate", "0.5", "--progress", "lines",
                                "--log-file", "a.log", "--log-level", "debug", "devices"});
  EXPECT_EQ(options.command, "devices");
  EXPECT_EQ(options.common.backend, Backend::host);
  EXPECT_EQ(options.common.devices, (std::vector<int>{2, 0}));
  EXPECT_EQ(options.common.output, "out");
  EXPECT_EQ(options.common.seed, 18446744073709551615ull);
  EXPECT_EQ(options.common.metrics_sample_rate, 0.5);
  EXPECT_EQ(options.common.progress, ProgressStyle::lines);
  EXPECT_EQ(options.common.log_file, "a.log");
  EXPECT_EQ(options.common.log_level, LogLevel::debug);
}

TEST(Options, StepsAloneReplacesTheDuration) {
  EXPECT_FALSE(good({"--steps", "30"}).burn.duration_seconds);
  const Options both = good({"--duration", "10", "--steps", "30"});
  EXPECT_EQ(both.burn.duration_seconds, 10.0);
  EXPECT_EQ(both.burn.steps, 30);
}

TEST(Options, TheMessageNamesOptionValueAndWhatIsAllowed) {
  EXPECT_EQ(refused({"--memory", "300%"}),
            "--memory 300%: use a share of 0 to 100 %, or a size such as 72GB");
  EXPECT_EQ(
      refused({"--memory", "90"}),
      "--memory 90: a unit is missing (90% or 90GB?): use a share of 0 to 100 %, or a size such as 72GB");
  EXPECT_EQ(refused({"--io-size", "10"}),
            "--io-size 10: a unit is missing (10GB or 10GiB?): use a size of 4KiB to 1024TiB, such as 10GB");
  for (const char* option : {"--io-budget", "--io-size", "--memory"})
    EXPECT_NE(refused({option, "8000000000"}).find("a unit is missing"), std::string::npos) << option;
  EXPECT_NE(refused({"links", "--size", "1000000"}).find("a unit is missing"), std::string::npos);
  EXPECT_EQ(refused({"--collective-timeout", "1500ms"}),
            "--collective-timeout 1500ms: ms is no unit: use a time of 1s to 1h, such as 30s or 2m");
  EXPECT_NE(refused({"--memory", "12XB"}).find("XB is no unit: use a share"), std::string::npos);
  EXPECT_EQ(refused({"--layers", "5,x"}),
            "--layers 5,x: use 2 to 64 whole numbers of 1 to 1048576, as 4096,8192,512");
  EXPECT_EQ(refused({"--frobnicate", "5"}), "--frobnicate: unknown option; --help lists what is known");
  EXPECT_EQ(
      refused({"train"}),
      "'train': unknown command; use one of burn, verify, links, bench, selftest, compare, report, devices");
  EXPECT_EQ(refused({"brun"}).find("'brun': unknown command; did you mean burn? use one of burn"), 0u);
  EXPECT_EQ(refused({"--duratoin=5s"}),
            "--duratoin=5s: unknown option; did you mean --duration? --help lists what is known");
  EXPECT_EQ(refused({"burn", "twice"}), "'twice': unexpected argument; --help shows how to call");
  EXPECT_EQ(refused({"--seed", "1", "--seed", "1"}), "--seed: given twice; give it once");
  EXPECT_EQ(refused({"--steps"}), "--steps: a value is missing");
  EXPECT_EQ(refused({"--devices", "0,1,1"}), "--devices 0,1,1: device 1 is named twice; name each once");
  EXPECT_EQ(refused({"--batch", "5", "--global-batch", "10"}),
            "--batch and --global-batch exclude each other: give one of them");
  EXPECT_EQ(refused({"devices", "--steps", "5"}), "--steps: the command devices has no such option");
}

TEST(Options, OptionsOfLaterCommandsAreUnknown) {
  for (const char* option : {"--preset", "--balance", "--pulse", "--serve", "--quick"})
    EXPECT_NE(refused({option, "1"}).find("unknown option"), std::string::npos) << option;
  for (const char* command : {"loadtest"})
    EXPECT_NE(refused({command}).find("unknown command"), std::string::npos) << command;
}

TEST(Options, VerifyTellsAllThatItLoadsTheDevicesWith) {
  const Json options = effective_options(good({"verify", "--duration", "20s", "--memory", "5%"}));
  EXPECT_EQ(options.at("duration"), 20.0);
  for (const char* name : {"check-every", "io-every", "layers", "memory", "inject"})
    EXPECT_TRUE(options.contains(name)) << name;
  for (const char* option : {"--steps", "--io-repeats", "--check-every", "--golden"})
    EXPECT_EQ(refused({"verify", option, "5"}),
              std::string(option) + ": the command verify has no such option");
}

TEST(Options, Fp8IsAKnownName) {
  EXPECT_EQ(good({"--precision", "fp8"}).burn.precision, "fp8");
}

struct Refusal {
  const char* option;
  std::vector<const char*> values;
};

void PrintTo(const Refusal& refusal, std::ostream* stream) {
  *stream << refusal.option;
}

class RefusedValues : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedValues, AreRefusedByName) {
  for (const char* value : GetParam().values) {
    const std::string message = refused({GetParam().option, value});
    EXPECT_TRUE(message.starts_with(GetParam().option)) << message;
    EXPECT_NE(message.find(": use "), std::string::npos) << message;
  }
}

constexpr const char* huge = "99999999999999999999999";

INSTANTIATE_TEST_SUITE_P(
    Options, RefusedValues,
    testing::Values(
        Refusal{"--duration", {"0", "-5s", "5x", "", "nan", "inf", huge, "٣m"}},
        Refusal{"--steps", {"0", "-1", "1.5", "", "0x10", "1e3", huge, "٣", "7 "}},
        Refusal{"--layers", {"5", "5,x", "", ",", "5,", "5,,6", "0,5", "-4,5", "5,99999999999", "５,６"}},
        Refusal{"--batch", {"0", "-1", "1048577", "", huge, "１"}},
        Refusal{"--global-batch", {"0", "-1", "1.0", huge}},
        Refusal{"--precision", {"fp4", "FP32", "", "cycle,fp32"}},
        Refusal{"--optimizer", {"sdg", "", "Adam"}},
        Refusal{"--learning-rate", {"0", "-0.1", "nan", "inf", "-inf", "1e400", "", "0.1x", "1001"}},
        Refusal{"--gradient-dtype", {"fp16", "f32", ""}},
        Refusal{"--extreme-iterations", {"-1", "1000001", "", huge}},
        Refusal{"--buffer-iterations", {"0", "-1", "1000001", ""}},
        Refusal{"--memory", {"90", "0.9", "101%", "-1%", "-1", "nan%", "", "%", "12XB", huge}},
        Refusal{"--io-size", {"0", "1", "5000", "-5MB", "5 parsecs", "", huge}},
        Refusal{"--io-repeats", {"0", "-1", "", huge}}, Refusal{"--io-every", {"0", "-1", "", huge}},
        Refusal{"--io-budget", {"0", "100", "-1GB", "Unlimited", ""}},
        Refusal{"--check-every", {"1", "2", "-1", "1.5", "", huge}},
        Refusal{"--check-budget", {"0%", "0", "-1%", "101%", "nan%", "1", "", "%", huge}},
        Refusal{"--temperature-limit", {"29", "111", "-1", "nan", "inf", "", "85C", huge}},
        Refusal{"--memory-limit", {"9%", "101%", "0.95", "nan%", "", "%", "64GB"}},
        Refusal{"--throttle-limit", {"-1%", "101%", "5", "nan%", ""}},
        Refusal{"--corrected-limit", {"-1", "1.5", "", "1000000000001", huge}},
        Refusal{"--collective-timeout", {"0", "0.9s", "61m", "2h", "-3s", "nan", "", huge}},
        Refusal{"--max-restarts", {"-1", "1001", "1.0", "", huge}}, Refusal{"--resume", {""}},
        Refusal{"--golden", {""}}, Refusal{"--io-dir", {""}}, Refusal{"--backend", {"gpu", "CUDA", ""}},
        Refusal{"--devices", {"", "-1", "0,", "a", "1024", "0;1"}}, Refusal{"--output", {""}},
        Refusal{"--seed", {"-1", "", "1.5", huge}},
        Refusal{"--metrics-sample-rate", {"0", "-1", "nan", "inf", "3601", ""}},
        Refusal{"--progress", {"dots", ""}}, Refusal{"--log-file", {""}},
        Refusal{"--log-level", {"loud", ""}}));

TEST(Options, AControlCharacterDoesNotBreakTheLine) {
  EXPECT_EQ(refused({"--seed", "1\n2"}), "--seed 1?2: use a whole number of 0 to 18446744073709551615");
}

TEST(Options, AFlagTakesNoValue) {
  EXPECT_FALSE(good({"--no-io"}).burn.file.enabled);
  refused({"--no-io=banana"});
  refused({"--no-io=false"});
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
  EXPECT_EQ(options.status().what(), "--batch and --global-batch exclude each other: give one of them");
}

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
  const std::string told = "--config " + twice.path() + ": --batch: given twice; give it once";
  EXPECT_EQ(refused({"--config", twice.path()}), told);
  EXPECT_EQ(refused({"--config", twice.path(), "--batch", "6"}), told) << "also where it has no effect";
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

TEST(Options, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(*good({"version"}).message, *good({"--version"}).message);
  EXPECT_EQ(*good({"-V"}).message, *good({"--version"}).message);
  EXPECT_EQ(*good({"help"}).message, *good({"--help"}).message);
  EXPECT_EQ(*good({"help", "links"}).message, *good({"links", "--help"}).message);
}

TEST(Options, HelpAndVersionWinOverErrors) {
  EXPECT_EQ(*good({"--version"}).message, "extreme_gpu_trainer 1.2.3");
  const std::string help = *good({"--help", "--seed", "x"}).message;
  for (const char* text : {"--memory SHARE|SIZE", "--backend auto|cuda|host", "(5m)", "mpirun -np 2"})
    EXPECT_NE(help.find(text), std::string::npos) << text;
  const std::string devices = *good({"devices", "-h"}).message;
  EXPECT_EQ(devices.find("--memory SHARE"), std::string::npos);
}

TEST(Options, TheSelftestTakesWhatLoadsTheDevicesAndNoMore) {
  const Options options = good({"selftest", "--layers",
                                "8,4",      "--batch",
                                "3",        "--precision",
                                "fp32",     "--seed",
                                "5",        "--optimizer",
                                "adam",     "--gradient-dtype",
                                "bf16",     "--extreme-iterations",
                                "1",        "--memory",
                                "1MB",      "--io-dir",
                                "/x",       "--io-size",
                                "8KiB",     "--no-io"});
  EXPECT_EQ(options.command, "selftest");
  EXPECT_EQ(options.burn.train.batch, 3);
  EXPECT_EQ(options.burn.file.size, 8192u);
  const Options safe = good({"selftest", "--temperature-limit", "80", "--memory-limit", "90%",
                             "--collective-timeout", "1h", "--max-restarts", "1000"});
  EXPECT_EQ(safe.run.guard.temperature_limit_c, 80);
  EXPECT_EQ(safe.run.watch.collective_timeout_seconds, 3600);
  const Json effective = effective_options(options);
  EXPECT_EQ(effective.at("layers"), Json({8, 4}));
  EXPECT_FALSE(effective.contains("duration"));
  for (const char* option :
       {"--duration", "--steps", "--inject", "--check-every", "--check-budget", "--golden", "--global-batch",
        "--io-repeats", "--buffer-iterations", "--corrected-limit", "--resume"})
    EXPECT_EQ(refused({"selftest", option, "5"}),
              std::string(option) + ": the command selftest has no such option");
}

TEST(Options, HelpTellsEachCommandsOptions) {
  const auto help = [](const char* command) { return *good({command, "--help"}).message; };
  for (const char* command : {"burn", "selftest", "report", "devices"}) {
    EXPECT_NE(help(command).find("\n  selftest  "), std::string::npos);
    EXPECT_NE(help(command).find("--seed N"), std::string::npos);
    const bool loads = command == std::string("burn") || command == std::string("selftest");
    EXPECT_EQ(help(command).find("--layers N") != std::string::npos, loads);
    EXPECT_EQ(help(command).find("--temperature-limit C") != std::string::npos, loads);
    EXPECT_EQ(help(command).find("--golden FILE") != std::string::npos, command == std::string("burn"));
    EXPECT_EQ(
        help(command).find("KIND is one of weight gradient activation gemm extreme collective optimizer "
                           "memory file-bit file-stale file-torn file-misplaced file-lost\n"
                           "  or one that leaves data as they are: slow hang kill stop temperature xid ecc "
                           "diskfull memory-pressure idle\n") != std::string::npos,
        command == std::string("burn"));
  }
}

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
  for (const char* kind : {"file-bit", "file-stale", "file-torn", "file-misplaced", "file-lost"})
    names(refused({"--inject", std::string(kind) + ":rank=0,step=1", "--no-io"}), "--no-io");
  names(refused({"--inject", "extreme:rank=0,step=1", "--extreme-iterations", "0"}),
        "--extreme-iterations 0");
  names(refused({"--inject", "extreme:rank=0,step=1", "--layers", "8,4"}), "--layers");
  names(refused({"--inject", "gemm:rank=0,step=1,layer=3", "--layers", "8,4,2"}), "1 to 2");
  names(refused({"--inject", "collective:rank=0,step=1,layer=6"}), "1 to 5");
  good({"--inject", "collective:rank=0,step=1,layer=5", "--layers", "8,4"});
  names(refused({"--inject", "gemm:rank=0,step=30", "--steps", "30"}), "--steps");
  names(refused({"--inject", "slow:rank=0,step=1,peer=9"}), "leave peer out");
  names(refused({"--inject", "stop:rank=0,step=1,ms=900"}), "use ms=30000 or more");
  names(refused({"links", "--inject", "hang:rank=0,step=1,ms=900", "--collective-timeout", "2s"}), "ms=2000");
  good({"--inject", "gemm:rank=0,step=29,layer=2", "--layers", "8,4,2", "--steps", "30", "--no-io",
        "--memory", "0", "--extreme-iterations", "0"});
}

TEST(Options, KindsThatLeaveDataAsTheyAreAreTaken) {
  for (const char* kind :
       {"slow", "hang", "kill", "stop", "temperature", "xid", "ecc", "diskfull", "memory-pressure", "idle"}) {
    const Options options = good({"--inject", std::string(kind) + ":rank=0,step=1"});
    EXPECT_EQ(options.run.injections.size(), 1u) << kind;
    EXPECT_TRUE(check_injections(options.run.injections, 1).ok()) << kind;
  }
  EXPECT_NE(refused({"--inject", "diskfull:rank=0,step=1", "--no-io"}).find("--no-io"), std::string::npos);
  good({"--inject", "memory-pressure:rank=0,step=1", "--no-io"});
}

TEST(Options, AReportNeedsOneDirectory) {
  const Options options = good({"report", "a/run"});
  EXPECT_EQ(options.command, "report");
  EXPECT_EQ(options.directory, "a/run");
  const std::string missing = "report: name the directory of a run, as in: extreme_gpu_trainer report DIR";
  EXPECT_EQ(refused({"report"}), missing);
  EXPECT_EQ(refused({"report", ""}), missing);
  EXPECT_EQ(refused({"report", "a", "b"}), "'b': unexpected argument; --help shows how to call");
  EXPECT_EQ(refused({"report", "a", "--steps", "5"}), "--steps: the command report has no such option");
}

TEST(Options, LinksHasOptionsOfItsOwn) {
  const LinksOptions defaults = good({"links"}).links;
  EXPECT_EQ(defaults.size, 1'000'000'000u);
  EXPECT_EQ(defaults.repeats, 10);
  EXPECT_EQ(defaults.warn_below, 20e9);
  const Options given = good({"links", "--size", "64MiB", "--repeats", "3", "--warn-below", "2.5GB/s"});
  EXPECT_EQ(given.links.size, 64u << 20);
  EXPECT_EQ(given.links.repeats, 3);
  EXPECT_EQ(given.links.warn_below, 20e9);
  for (const auto& [option, value] :
       {std::pair{"--size", "1MB"}, std::pair{"--repeats", "2"}, std::pair{"--warn-below", "0"}}) {
    EXPECT_NE(effective_options(good({"links", option, value})), effective_options(good({"links"})))
        << option;
    EXPECT_NE(refused({"burn", option, value}).find("no such option"), std::string::npos) << option;
  }
  for (const char* size : {"999B", "1.1TB", "x"})
    EXPECT_EQ(refused({"links", "--size", size}),
              std::string("--size ") + size + ": use a size of 1KB to 1TB, such as 1GB");
  for (const char* repeats : {"0", "1001"}) EXPECT_NE(refused({"links", "--repeats", repeats}), "");
  EXPECT_NE(refused({"links", "--warn-below", "20GB"}).find("a rate such as 20Gb/s"), std::string::npos);
}

TEST(Options, HostDefaultsOfLinksAreItsOwn) {
  Options options = good({"links", "--warn-below", "3Gb/s"});
  apply_host_defaults(options);
  EXPECT_EQ(options.links.size, 16'000'000u);
  EXPECT_EQ(options.links.warn_below, 3e9);
  EXPECT_EQ(options.host_defaults, std::vector<std::string>{"--size 16MB"});
}

TEST(Options, CompareTakesFilesATolerancePricesAndAnOutput) {
  const Options options = good({"compare", "a.json", "--price", "H200=2.5", "runs/b", "--price", "x=y=3",
                                "--tolerance", "2.5%", "--output", "c.json", "c"});
  EXPECT_EQ(options.command, "compare");
  EXPECT_EQ(options.compare.files, (std::vector<std::string>{"a.json", "runs/b", "c"}));
  EXPECT_EQ(options.common.output, "c.json");
  EXPECT_DOUBLE_EQ(options.compare.comparison.tolerance, 0.025);
  const std::vector<Price>& prices = options.compare.comparison.prices;
  ASSERT_EQ(prices.size(), 2u);
  EXPECT_EQ(prices[0].name, "H200");
  EXPECT_EQ(prices[0].per_hour, 2.5);
  EXPECT_EQ(prices[1].name, "x=y");
  EXPECT_DOUBLE_EQ(good({"compare", "a"}).compare.comparison.tolerance, 0.05);
}

TEST(Options, CompareRefusesWhatItCannotTake) {
  for (const auto& files : {std::vector<std::string>{"compare"}, {"compare", "a", ""}})
    EXPECT_EQ(refused(files).find("compare: name result files or directories of runs"), 0u);
  for (const char* tolerance : {"5", "101%", "-1%", "nan%", ""})
    EXPECT_EQ(refused({"compare", "a", "--tolerance", tolerance}),
              std::string("--tolerance ") + tolerance + ": use a share of 0 to 100 %");
  for (const char* price :
       {"H200", "=2", "H200=", "H200=0", "H200=-1", "H200=nan", "H200=1e10", "H200=2$", ""})
    EXPECT_EQ(
        refused({"compare", "a", "--price", price}).find(std::string("--price ") + price + ": use NAME=X"),
        0u)
        << price;
  EXPECT_EQ(refused({"compare", "a", "--price", "x=1", "--price", "x=2"}).find("--price x=2: use NAME=X"),
            0u);
  EXPECT_EQ(refused({"compare", "a", "--steps", "5"}), "--steps: the command compare has no such option");
  EXPECT_EQ(refused({"--price", "x=1"}), "--price: the command burn has no such option");
}

TEST(Options, AResumedRunStaysInItsDirectory) {
  EXPECT_EQ(refused({"--resume", "a", "--output", "b"}),
            "--resume and --output exclude each other: the run goes on in its own directory");
  const ConfigFile file("resume = \"a\"\n");
  EXPECT_NE(refused({"--config", file.path()}).find("unknown key resume"), std::string::npos);
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

TEST(Options, ChecksComeByBudgetOrByStepsNotBoth) {
  EXPECT_DOUBLE_EQ(good({"--check-budget", "2.5%"}).burn.train.check_budget, 0.025);
  EXPECT_EQ(good({"--check-budget", "2%", "--check-every", "0"}).burn.train.check_every, 0);
  EXPECT_EQ(refused({"--check-budget", "2%", "--check-every", "5"}),
            "--check-budget and --check-every exclude each other: give one of them");
}

TEST(Options, HostDefaultsLeaveWhatTheUserGave) {
  Options options = good({"--batch", "5", "--memory", "1MB"});
  apply_host_defaults(options);
  EXPECT_EQ(options.burn.train.batch, 5);
  EXPECT_EQ(options.burn.memory.fill.bytes, 1'000'000u);
  EXPECT_EQ(options.burn.train.layers.front(), 256);
  EXPECT_EQ(options.burn.train.extreme_iterations, 2);
  EXPECT_EQ(options.burn.memory.buffer_iterations, 3);
  EXPECT_EQ(options.burn.file.size, 64'000'000u);
  EXPECT_EQ(options.burn.file.repeats, 2);
  EXPECT_EQ(options.host_defaults.front(), "--layers 256,512,384,256,128,64,32");
  EXPECT_EQ(options.host_defaults.size(), 5u);
}

TEST(Options, EffectiveOptionsTellOptionsApart) {
  EXPECT_EQ(effective_options(good({"--seed", "1"})), effective_options(good({})));
  EXPECT_NE(effective_options(good({"--seed", "2"})), effective_options(good({})));
  EXPECT_EQ(effective_options(good({"--output", "a"})), effective_options(good({"--output", "b"})));
  for (const auto& [option, value] :
       {std::pair{"--memory", "5%"}, std::pair{"--golden", "a"}, std::pair{"--check-budget", "2%"},
        std::pair{"--check-every", "7"}, std::pair{"--inject", "memory:rank=0,step=2"},
        std::pair{"--temperature-limit", "80"}, std::pair{"--memory-limit", "80%"},
        std::pair{"--throttle-limit", "1%"}, std::pair{"--corrected-limit", "0"},
        std::pair{"--collective-timeout", "3s"}, std::pair{"--max-restarts", "2"}})
    EXPECT_NE(effective_options(good({option, value})), effective_options(good({}))) << option;
}

}  // namespace
}  // namespace egt
