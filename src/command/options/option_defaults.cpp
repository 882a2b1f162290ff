#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "command/options/option_table.hpp"

namespace egt {
namespace {

/// Applies `defaults` to options that the user did not set; returns those applied.
Defaults put(Options& options, Defaults defaults) {
  std::erase_if(defaults, [&](const auto& one) { return options.given.contains(one.first); });
  const auto rules = option_rules(options);
  for (const auto& [name, text] : defaults) {
    [[maybe_unused]] const std::string wrong = find_rule(rules, name, options.command)->value.set(text);
    assert(wrong.empty());  // the unit tests parse every default
  }
  return defaults;
}

}  // namespace

Defaults built_in_defaults(std::string_view command, Backend backend) {
  const bool is_host = backend == Backend::host;
  if (command.empty() && is_host)
    // About 40 ms per step on one core: GEMMs of 0.36 GFLOP, and 0.34 million iterations of extreme compute.
    return {{"layers", "256,512,384,256,128,64,32"},
            {"batch", "128"},
            {"extreme-iterations", "2"},
            {"memory", "256MB"},
            {"buffer-iterations", "3"},
            {"io-size", "64MB"},
            {"io-repeats", "2"},
            {"size", "16MB"},
            {"warn-below", "500Mb/s"},
            {"points", "10000,100000"},
            {"grid", "64"},
            {"batches", "1,8"}};
  // verify on a GPU: about 30 s with start and end.
  if (command == "verify" && is_host)
    return {{"duration", "10s"},
            {"layers", "128,256,192,128,64,32,16"},
            {"batch", "64"},
            {"memory", "64MB"},
            {"io-size", "4MB"}};
  if (command == "verify")
    return {{"duration", "20s"},
            {"layers", "4096,4096,2048,1024,512"},  // fits into 10 % together with the rest
            {"extreme-iterations", "20"},
            {"memory", "10%"},
            {"io-size", "64MB"}};
  // A failed pair costs a restart, and the remaining pairs still have to be measured.
  if (command == "links") return {{"max-restarts", "16"}};
  // selftest: short memory passes, training passes and steps, so that many injections fit.
  if (command == "selftest" && is_host)
    return {{"layers", "128,256,192,128,64,32,16"},
            {"batch", "16"},
            {"memory", "48MB"},
            {"buffer-iterations", "1"},
            {"io-size", "4MB"}};
  if (command == "selftest")
    return {{"extreme-iterations", "8"}, {"memory", "12GB"}, {"buffer-iterations", "10"}, {"io-size", "4MB"}};
  // The size is for three files. Each round writes one of them, which takes 0.1 s.
  if (command == "bench --ceilings" && is_host)
    return {
        {"precision", "fp32"}, {"io-size", "192MB"}, {"trial-time", "0.4s"}, {"metrics-sample-rate", "0.1"}};
  if (command == "bench --ceilings")
    return {{"batch", "8192"}, {"io-size", "3GB"}, {"trial-time", "2s"}, {"metrics-sample-rate", "0.1"}};
  if (command == "loadtest" && is_host)
    return {{"precision", "fp32"}, {"num-batches", "20"}, {"image-size", "64"}, {"metrics-sample-rate", "5"}};
  if (command == "loadtest --quick" && is_host)
    return {{"precision", "fp32"},
            {"num-epochs", "1"},
            {"num-batches", "10"},
            {"image-size", "32"},
            {"metrics-sample-rate", "1"}};
  if (command == "loadtest") return {{"precision", "tf32"}, {"metrics-sample-rate", "5"}};
  if (command == "loadtest --quick")
    return {{"precision", "tf32"},
            {"num-epochs", "1"},
            {"num-batches", "50"},
            {"image-size", "128"},
            {"metrics-sample-rate", "1"}};
  if (command == "bench" && is_host)
    return {{"precision", "fp32"}, {"extreme-iterations", "0"}, {"metrics-sample-rate", "0.1"}};
  if (command == "bench")
    return {{"precision", "tf32"},
            {"extreme-iterations", "0"},
            {"batch", "8192"},
            {"metrics-sample-rate", "0.1"}};
  return {};
}

std::string apply_command_defaults(Options& options, Backend backend) {
  std::string reported;
  const std::string command = options.command + (options.bench.ceilings ? " --ceilings" : "") +
                              (options.loadtest.quick ? " --quick" : "");
  for (const auto& [name, text] : put(options, built_in_defaults(command, backend))) {
    std::erase_if(options.host_defaults,
                  [&](const std::string& one) { return one.starts_with(fmt::format("--{} ", name)); });
    reported += fmt::format(" --{} {}", name, text);
  }
  return reported;
}

void apply_load(Options& options) {
  if (options.burn.train.load != LoadKind::train) return;
  for (const auto& [name, text] :
       put(options,
           {{"extreme-iterations", "0"}, {"memory", "0"}, {"no-io", "true"}, {"coverage", "sampled"}}))
    options.given.emplace(name, text);
}

void apply_host_defaults(Options& options) {
  BurnOptions& burn = options.burn;
  Defaults defaults = built_in_defaults("", Backend::host);
  if (burn.global_batch)
    std::erase_if(defaults, [](const auto& one) { return one.first == std::string_view("batch"); });
  // In bench, --memory is only a limit, so it has no host default.
  if (options.command == "bench")
    std::erase_if(defaults, [](const auto& one) { return one.first == std::string_view("memory"); });
  if (options.bench.ceilings)
    for (const std::string_view name : scaling_options)
      std::erase_if(defaults, [&](const auto& one) { return one.first == name; });
  const auto rules = option_rules(options);
  for (const auto& [name, text] : put(options, std::move(defaults)))
    if (knows(options.command, find_rule(rules, name, options.command)->commands))
      options.host_defaults.push_back(fmt::format("--{} {}", name, text));
  burn.train.epoch_steps = 10;
  burn.collective.every = 10;
  burn.collective.elements = 1u << 18;
}

}  // namespace egt
