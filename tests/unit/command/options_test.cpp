#include "command/options/options.hpp"

#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command/options/option_table.hpp"
#include "tests/support/options_fixture.hpp"

namespace egt::test {
namespace {

using testing::HasSubstr;
using testing::Not;

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
  const Options options =
      good(words("burn --duration 90s --steps 7 --layers 8,4,2 --global-batch 96 "
                 "--precision bf16 --load train --pulse 2.5:0.25 --optimizer adam "
                 "--learning-rate 0.25 --gradient-dtype bf16 --extreme-iterations 0 "
                 "--buffer-iterations 5 --memory 72GB --io-dir /x --io-size 8MiB "
                 "--io-repeats 3 --io-every 4 --io-budget unlimited --no-io --check-every 6 "
                 "--golden /g --temperature-limit 72.5 --memory-limit 80% "
                 "--throttle-limit 0% --corrected-limit 12/h --collective-timeout 3s "
                 "--max-restarts 0 --fail-fast --resume /r"));
  const BurnOptions& burn = options.burn;
  EXPECT_EQ(burn.duration_seconds, 90.0);
  EXPECT_EQ(burn.steps, 7);
  EXPECT_EQ(burn.train.layers, (std::vector<std::int64_t>{8, 4, 2}));
  EXPECT_EQ(burn.global_batch, 96);
  EXPECT_EQ(burn.precision, "bf16");
  EXPECT_EQ(burn.train.load, LoadKind::train);
  ASSERT_TRUE(burn.pulse);
  EXPECT_EQ(burn.pulse->hertz, 2.5);
  EXPECT_EQ(burn.pulse->duty, 0.25);
  EXPECT_EQ(effective_options(options)["pulse"], "2.5:0.25");
  EXPECT_EQ(good({"--pulse", "20"}).burn.pulse->duty, 0.5);
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
  EXPECT_EQ(options.run.guard.corrected_limit, (CorrectedLimit{12, true}));
  EXPECT_EQ(options.run.watch.collective_timeout_seconds, 3);
  EXPECT_EQ(options.run.watch.max_restarts, 0);
  EXPECT_TRUE(burn.fail_fast);
  EXPECT_EQ(burn.resume, "/r");
  EXPECT_EQ(options.arguments.size(), 57u);
}

TEST(Options, TheNetworkAloneIsALoadWithoutTheOtherParts) {
  Options train = good({"--load", "train"});
  apply_defaults(train, Backend::host);
  EXPECT_EQ(train.burn.train.extreme_iterations, 0) << "also where the host has a default of its own";
  EXPECT_TRUE(train.burn.memory.fill.is_zero());
  EXPECT_FALSE(train.burn.file.enabled);
  Options some = good({"--load", "train", "--memory", "64MB", "--extreme-iterations", "7"});
  apply_defaults(some, Backend::host);
  EXPECT_EQ(some.burn.memory.fill.bytes, 64'000'000u) << "what is asked for stays";
  EXPECT_EQ(some.burn.train.extreme_iterations, 7);
  Options mix = good({"--load", "mix"});
  apply_defaults(mix, Backend::host);
  EXPECT_GT(mix.burn.train.extreme_iterations, 0);
  EXPECT_FALSE(mix.burn.memory.fill.is_zero());
  EXPECT_TRUE(mix.burn.file.enabled);
}

TEST(Options, EveryCommonOptionReachesItsPlace) {
  const Options options = good({"--backend=host", "--devices", "2,0", "--output", "out", "--seed",
                                "18446744073709551615", "--metrics-sample-rate", "0.5", "--progress", "lines",
                                "--log-file", "a.log", "--log-level", "debug", "loadtest"});
  EXPECT_EQ(options.command, "loadtest");
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
  for (const char* wrong : {"0.1", "21", "1:0.05", "1:1", "1:", ":0.5", "x", "1Hz"})
    EXPECT_EQ(
        refused({"--pulse", wrong}),
        fmt::format("--pulse {}: use 0.2 to 20 times per second and, after a colon, full for 0.1 to 0.9 "
                    "of the time, such as 1:0.5",
                    wrong));
  EXPECT_EQ(refused({"--io-size", "10"}),
            "--io-size 10: a unit is missing (10GB or 10GiB?): use a size of 4KiB to 1024TiB, such as 10GB");
  for (const char* option : {"--io-budget", "--io-size", "--memory"})
    EXPECT_NE(refused({option, "8000000000"}).find("a unit is missing"), std::string::npos) << option;
  EXPECT_NE(refused({"links", "--size", "1000000"}).find("a unit is missing"), std::string::npos);
  EXPECT_EQ(refused({"--collective-timeout", "1500ms"}),
            "--collective-timeout 1500ms: ms is no unit: use a time of 1s to 1h, such as 30s or 2m");
  EXPECT_NE(refused({"--memory", "12XB"}).find("XB is no unit: use a share"), std::string::npos);
  EXPECT_EQ(refused({"--layers", "5,x"}),
            "--layers 5,x: use 2 to 64 whole numbers of 1 to 1048576, such as 4096,8192,512");
  EXPECT_EQ(refused({"--frobnicate", "5"}), "--frobnicate: unknown option; --help lists what is known");
  EXPECT_EQ(refused({"train"}),
            "'train': unknown command; use one of burn, verify, links, bench, loadtest, selftest, compare, "
            "report, watch, reproduce, devices");
  EXPECT_EQ(refused({"brun"}).find("'brun': unknown command; did you mean burn? use one of burn"), 0u);
  EXPECT_EQ(refused({"--duratoin=5s"}),
            "--duratoin=5s: unknown option; did you mean --duration? --help lists what is known");
  EXPECT_EQ(refused({"burn", "twice"}), "'twice': unexpected argument; --help shows how to call");
  EXPECT_EQ(refused({"--seed", "1", "--seed", "1"}), "--seed: given twice; give it once");
  EXPECT_EQ(refused({"--steps"}), "--steps: a value is missing");
  EXPECT_EQ(refused({"--devices", "0,1,1"}), "--devices 0,1,1: device 1 is given twice; give each once");
  EXPECT_EQ(refused({"--batch", "5", "--global-batch", "10"}),
            "--batch and --global-batch are mutually exclusive: give one of them");
  EXPECT_EQ(refused({"devices", "--steps", "5"}),
            "--steps: the command devices has no such option (burn and bench have)");
}

TEST(Options, CommonSpellingsAreAccepted) {
  EXPECT_EQ(good({"--memory", "8G"}).burn.memory.fill.bytes, 8'000'000'000u);
  EXPECT_EQ(good({"--io-size", "80mb"}).burn.file.size, 80'000'000u);
  EXPECT_EQ(good({"--duration", "1h30m"}).burn.duration_seconds, 5400.0);
  EXPECT_EQ(good({"--duration", "5 m"}).burn.duration_seconds, 300.0);
  EXPECT_EQ(good({"--precision", "FP16"}).burn.precision, "fp16") << "the result has one spelling";
  for (const char* limit : {"72.5C", "72.5 C", "72.5c"})
    EXPECT_EQ(good({"--temperature-limit", limit}).run.guard.temperature_limit_c, 72.5) << limit;
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
        Refusal{"--precision", {"fp4", "FP 32", "", "cycle,fp32"}},
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
        Refusal{"--temperature-limit",
                {"29", "111", "-1", "nan", "inf", "", "85F", "C", "850C", "-85C", huge}},
        Refusal{"--memory-limit", {"9%", "101%", "0.95", "nan%", "", "%", "64GB"}},
        Refusal{"--throttle-limit", {"-1%", "101%", "5", "nan%", ""}},
        Refusal{"--corrected-limit", {"-1", "1.5", "", "/h", "3/d", "3 /h", "1000000000001", huge}},
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

TEST(Options, ChecksComeByBudgetOrByStepsNotBoth) {
  EXPECT_DOUBLE_EQ(good({"--check-budget", "2.5%"}).burn.train.check_budget, 0.025);
  EXPECT_EQ(good({"--check-budget", "2%", "--check-every", "0"}).burn.train.check_every, 0);
  EXPECT_EQ(refused({"--check-budget", "2%", "--check-every", "5"}),
            "--check-budget and --check-every are mutually exclusive: give one of them");
}

TEST(Options, HostDefaultsLeaveWhatTheUserGave) {
  Options options = good({"--batch", "5", "--memory", "1MB"});
  apply_defaults(options, Backend::host);
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

TEST(Options, EveryDefaultIsTakenByItsOption) {
  std::set<std::string> words = {"host", "cuda", "scaling", "--ceilings", "--quick", "--load=train"};
  for (const CommandRow& row : command_rows()) words.emplace(row.name);
  Options options;
  int found = 0;
  for (const OptionRule& rule : option_rules(options))
    for (const Default& one : rule.value.defaults) {
      EXPECT_EQ(rule.value.set(one.text), "") << "--" << rule.name << " " << one.text;
      std::istringstream when(one.when);
      for (std::string word; when >> word;) EXPECT_TRUE(words.contains(word)) << rule.name << ": " << word;
      ++found;
    }
  EXPECT_GT(found, 50);
}

TEST(Options, HelpHasTheDefaultsOfItsCommandOnly) {
  const auto help = [](const char* command) { return help_text(command, 200); };
  EXPECT_THAT(help("bench"), HasSubstr("samples per rank and step (8192; host: 128)\n"));
  EXPECT_THAT(help("bench"), HasSubstr("sensors (0.1)\n"));
  EXPECT_THAT(help("burn"), HasSubstr("samples per rank and step (1024; host: 128)\n"));
  EXPECT_THAT(help("burn"), HasSubstr("device memory to fill and verify; 0: none (90%; host: 256MB)\n"));
  EXPECT_THAT(help("verify"), HasSubstr("device memory to fill and verify; 0: none (10%; host: 64MB)\n"));
  EXPECT_THAT(manual_text("man", "1").value_or(""), HasSubstr("(200; host: 20; \\-\\-quick: 50; host with"));
}

TEST(Options, HelpFollowsTheWidth) {
  for (const CommandRow& row : command_rows())
    for (const std::size_t columns : {60, 80, 132}) {
      std::istringstream text(help_text(row.name, columns));
      for (std::string line; std::getline(text, line);) {
        EXPECT_LE(line.size(), columns) << row.name << ": " << line;
        EXPECT_FALSE(line.ends_with(' ')) << row.name << ": '" << line << "'";
      }
    }
  EXPECT_THAT(help_text("burn", 80), Not(HasSubstr("] [,"))) << "it is copied";
  EXPECT_TRUE(help_text("", 80).starts_with("Usage: mpirun --quiet -np N extreme_gpu_trainer [COMMAND]"));
  EXPECT_TRUE(help_text("report", 80).starts_with("Usage: extreme_gpu_trainer report DIR [options]\n"));
  EXPECT_THAT(help_text("burn", 80), HasSubstr("\n  -o, --output PATH "));
  EXPECT_THAT(help_text("burn", 80), HasSubstr("\nTo stop a run cleanly: "));
  EXPECT_THAT(help_text("devices", 80), Not(HasSubstr("loadtest")));
  EXPECT_THAT(help_text("report", 80), Not(HasSubstr("--seed")));
}

TEST(Options, CommandDefaultsOnADeviceLeaveWhatTheUserGave) {
  Options verify = good({"verify", "--io-size", "8KiB"});
  apply_defaults(verify, Backend::cuda);
  EXPECT_EQ(verify.command_defaults,
            " --duration 20s --layers 4096,4096,2048,1024,512 --extreme-iterations 20 --memory 10%");
  EXPECT_EQ(verify.burn.duration_seconds, 20.0);
  EXPECT_EQ(verify.burn.train.layers, (std::vector<std::int64_t>{4096, 4096, 2048, 1024, 512}));
  EXPECT_TRUE(verify.burn.memory.fill.is_share);
  EXPECT_EQ(verify.burn.memory.fill.share, 0.1);
  EXPECT_EQ(verify.burn.file.size, 8192u);
  Options selftest = good({"selftest"});
  apply_defaults(selftest, Backend::cuda);
  EXPECT_EQ(selftest.command_defaults,
            " --extreme-iterations 8 --memory 12GB --buffer-iterations 10 --io-size 4MB");
  EXPECT_EQ(selftest.burn.memory.fill.bytes, 12'000'000'000u);
  EXPECT_EQ(selftest.burn.file.size, 4'000'000u);
  Options bench = good({"bench"});
  apply_defaults(bench, Backend::cuda);
  EXPECT_EQ(bench.command_defaults,
            " --batch 8192 --precision tf32 --extreme-iterations 0 --metrics-sample-rate 0.1");
  EXPECT_EQ(bench.burn.train.batch, 8192);
  EXPECT_EQ(bench.common.metrics_sample_rate, 0.1);
}

TEST(Options, CommandDefaultsReplaceThoseOfTheHost) {
  Options options = good({"selftest"});
  apply_defaults(options, Backend::host);
  EXPECT_EQ(
      options.command_defaults,
      " --layers 128,256,192,128,64,32,16 --batch 16 --memory 48MB --buffer-iterations 1 --io-size 4MB");
  EXPECT_EQ(options.host_defaults, std::vector<std::string>{"--extreme-iterations 2"});
  EXPECT_EQ(options.burn.memory.fill.bytes, 48'000'000u);
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
}  // namespace egt::test
