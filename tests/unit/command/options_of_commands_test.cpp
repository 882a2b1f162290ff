#include "command/options/options.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "command/options/option_table.hpp"
#include "tests/support/options_fixture.hpp"

namespace egt::test {
namespace {

TEST(Options, ServeIsOfCommandsThatRunButNotInTheResult) {
  for (const char* command : {"burn", "verify", "links", "bench", "loadtest"}) {
    const Options options = good({command, "--serve", "[::1]:8080"});
    ASSERT_TRUE(options.run.serve) << command;
    EXPECT_EQ(options.run.serve->text(), "[::1]:8080");
    EXPECT_FALSE(effective_options(options).contains("serve"));
    EXPECT_THAT(config_text(options).value(), testing::HasSubstr("serve = \"[::1]:8080\""));
  }
  EXPECT_FALSE(good({"burn"}).run.serve);
  for (const char* command : {"selftest", "devices"})
    EXPECT_NE(refused({command, "--serve", "1"}).find("has no such option"), std::string::npos) << command;
  EXPECT_NE(refused({"--serve", "1.2.3.4"}).find("use a port of 0 to 65535"), std::string::npos);
}

TEST(Options, VerifyTellsAllThatItLoadsTheDevicesWith) {
  const Json options = effective_options(good({"verify", "--duration", "20s", "--memory", "5%"}));
  EXPECT_EQ(options.at("duration"), 20.0);
  for (const char* name : {"check-every", "io-every", "layers", "memory", "inject"})
    EXPECT_TRUE(options.contains(name)) << name;
  for (const char* option : {"--steps", "--io-repeats", "--check-every", "--golden"})
    EXPECT_EQ(refused({"verify", option, "5"}),
              std::string(option) + ": the command verify has no such option (" +
                  (option == std::string("--steps") ? "burn and bench have)" : "burn has)"));
}

/// The options of commands without device work, and options that do not apply to a run.
TEST(Options, EveryCommandUsesAnOptionOrRefusesIt) {
  using Names = std::set<std::string>;
  const std::map<std::string, Names> used = {
      {"compare",
       {"config", "fleet", "help", "history", "output", "price", "print-config", "tolerance", "version"}},
      {"report", {"config", "help", "nodes-file", "ocp", "print-config", "version"}},
      {"watch", {"config", "help", "print-config", "version"}},
      {"reproduce", {"backend", "config", "devices", "help", "print-config", "version"}},
      {"devices", {"backend", "config", "help", "print-config", "version", "write-expect"}}};
  const std::map<std::string, Names> unused = {{"links", {"seed"}}, {"selftest", {"serve", "inject"}}};
  Options none;
  const auto rules = option_rules(none);
  for (const CommandRow& command : command_rows()) {
    const std::string name(command.name);
    std::vector<std::string> arguments = {name};
    if (name == "report" || name == "watch" || name == "compare" || name == "reproduce")
      arguments.emplace_back("x");
    for (const OptionRule& rule : rules) {
      if (rule.name == "help" || rule.name == "version") continue;  // these end the parsing
      std::vector<std::string> asked = arguments;
      asked.push_back("--" + rule.name);
      if (!rule.value.placeholder.empty()) asked.emplace_back("?");
      const auto parsed = parse(asked);
      const bool is_refused = parsed.status().what().starts_with(
          fmt::format("--{}: the command {} has no such option (", rule.name, name));
      const bool is_known = knows(name, find_rule(rules, rule.name, name)->commands);
      EXPECT_EQ(is_refused, !is_known) << name << " --" << rule.name << ": " << parsed.status().what();
      if (const auto of = used.find(name); of != used.end()) {
        EXPECT_EQ(is_known, of->second.contains(rule.name)) << name << " --" << rule.name;
      }
      if (const auto of = unused.find(name); of != unused.end() && of->second.contains(rule.name)) {
        EXPECT_FALSE(is_known) << name << " --" << rule.name;
      }
    }
  }
}

TEST(Options, CeilingsAreBenchsOtherHalf) {
  const Options ceilings = good({"bench", "--ceilings", "--io-dir", "/x", "--io-size", "1MB", "--no-io",
                                 "--precision", "bf16", "--trial-time", "1s", "--layers", "8,4"});
  EXPECT_TRUE(ceilings.bench.ceilings);
  EXPECT_EQ(ceilings.burn.file.directory, "/x");
  EXPECT_FALSE(good({"bench"}).bench.ceilings);
  for (const auto& [option, value] :
       {std::pair{"--workload", "mlp"}, std::pair{"--mode", "p2p"}, std::pair{"--points", "5"},
        std::pair{"--grid", "5"}, std::pair{"--batches", "5"}, std::pair{"--streams", "first"}})
    EXPECT_EQ(refused({"bench", "--ceilings", option, value}),
              std::string(option) + ": is of scaling, and --ceilings measures none; leave one of them out");
  for (const std::vector<std::string>& files :
       {std::vector<std::string>{"--io-dir", "/x"}, {"--io-size", "1MB"}, {"--no-io"}}) {
    std::vector<std::string> arguments = {"bench"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    EXPECT_EQ(refused(arguments),
              files[0] + ": bench writes files with --ceilings only; add it, or leave this out");
  }
  EXPECT_EQ(refused({"links", "--ceilings"}), "--ceilings: the command links has no such option (bench has)");
}

TEST(Options, CeilingsHaveDefaultsOfTheirOwn) {
  Options given = good({"bench", "--ceilings", "--io-size", "1MB"});
  apply_defaults(given, Backend::cuda);
  EXPECT_EQ(given.command_defaults, " --batch 8192 --trial-time 2s --metrics-sample-rate 0.1");
  EXPECT_EQ(given.burn.file.size, 1'000'000u);
  EXPECT_EQ(given.burn.precision, "cycle") << "each that the device has";
  EXPECT_EQ(given.burn.train.extreme_iterations, 200);
  Options host = good({"bench", "--ceilings"});
  apply_defaults(host, Backend::host);
  for (const std::string& one : host.host_defaults)
    EXPECT_EQ(one.find("--points"), std::string::npos) << "they have no meaning here";
}

TEST(Options, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(*good({"version"}).message, *good({"--version"}).message);
  EXPECT_EQ(*good({"-V"}).message, *good({"--version"}).message);
  EXPECT_EQ(*good({"help"}).message, *good({"--help"}).message);
  EXPECT_EQ(*good({"help", "links"}).message, *good({"links", "--help"}).message);
  for (const auto& wrong : {std::vector<std::string>{"help", "burnn"}, {"burnn", "--help"}})
    EXPECT_NE(refused(wrong).find("'burnn': unknown command"), std::string::npos);
}

TEST(Options, HelpAndVersionWinOverErrors) {
  EXPECT_EQ(*good({"--version"}).message, "extreme_gpu_trainer 1.2.3");
  const std::string help = *good({"--help", "--seed", "x"}).message;
  for (const char* text : {"--memory SHARE|SIZE", "--backend auto|cuda|host", "(5m)", "\n  selftest  "})
    EXPECT_NE(help.find(text), std::string::npos) << text;
  const std::string devices = *good({"devices", "-h"}).message;
  EXPECT_EQ(devices.find("--memory SHARE"), std::string::npos);
}

TEST(Options, TheSelftestTakesWhatLoadsTheDevicesAndNoMore) {
  const Options options =
      good(words("selftest --layers 8,4 --batch 3 --precision fp32 --seed 5 --optimizer adam "
                 "--gradient-dtype bf16 --extreme-iterations 1 --memory 1MB --io-dir /x "
                 "--io-size 8KiB --no-io"));
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
    EXPECT_EQ(refused({"selftest", option, "5"})
                  .find(std::string(option) + ": the command selftest has no such option ("),
              0u);
}

TEST(Options, HelpTellsEachCommandsOptions) {
  const auto help = [](const char* command) { return *good({command, "--help"}).message; };
  for (const char* command : {"burn", "selftest", "report", "devices"}) {
    const bool loads = command == std::string("burn") || command == std::string("selftest");
    EXPECT_EQ(help(command).find("--seed N") != std::string::npos, loads);
    EXPECT_EQ(help(command).find("--layers N") != std::string::npos, loads);
    EXPECT_EQ(help(command).find("--temperature-limit C") != std::string::npos, loads);
    EXPECT_EQ(help(command).find("--golden FILE") != std::string::npos, command == std::string("burn"));
    const bool injects = command == std::string("burn");
    EXPECT_EQ(help(command).find("KIND that corrupts data: weight gradient") != std::string::npos, injects);
    EXPECT_EQ(help(command).find("KIND that does not: slow hang") != std::string::npos, injects);
  }
}

TEST(Options, AReproducerNeedsOneFile) {
  const Options options = good({"reproduce", "a.json", "--devices", "2", "--backend", "host"});
  EXPECT_EQ(options.path, "a.json");
  EXPECT_EQ(options.common.devices, std::vector<int>{2});
  const std::string missing =
      "reproduce: name a file of a run's folder reproduce, as in: extreme_gpu_trainer reproduce FILE";
  EXPECT_EQ(refused({"reproduce"}), missing);
  EXPECT_EQ(refused({"reproduce", ""}), missing);
  EXPECT_EQ(refused({"reproduce", "a", "b"}), "'b': unexpected argument; --help shows how to call");
  EXPECT_EQ(refused({"reproduce", "a", "--seed", "3"}),
            "--seed: the command reproduce has no such option (burn, verify and 3 others have)");
}

TEST(Options, AReportNeedsOneDirectory) {
  const Options options = good({"report", "a/run"});
  EXPECT_EQ(options.command, "report");
  EXPECT_EQ(options.path, "a/run");
  const std::string missing = "report: name the directory of a run, as in: extreme_gpu_trainer report DIR";
  EXPECT_EQ(refused({"report"}), missing);
  EXPECT_EQ(refused({"report", ""}), missing);
  EXPECT_EQ(good({"watch", "a/run"}).path, "a/run");
  EXPECT_EQ(refused({"watch"}), "watch: name the directory of a run, as in: extreme_gpu_trainer watch DIR");
  EXPECT_EQ(refused({"report", "a", "b"}), "'b': unexpected argument; --help shows how to call");
  EXPECT_EQ(refused({"report", "a", "--steps", "5"}),
            "--steps: the command report has no such option (burn and bench have)");
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
  apply_defaults(options, Backend::host);
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
  EXPECT_TRUE(good({"compare", "a", "--fleet"}).compare.fleet);
  EXPECT_EQ(refused({"compare", "a", "--fleet", "--price", "H200=1"}),
            "--price: --fleet compares no cost; leave one of them out");
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
  EXPECT_EQ(refused({"compare", "a", "--steps", "5"}),
            "--steps: the command compare has no such option (burn and bench have)");
  EXPECT_EQ(refused({"--price", "x=1"}), "--price: the command burn has no such option (compare has)");
}

}  // namespace
}  // namespace egt::test
