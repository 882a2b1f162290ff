#include "command/options/option_parsers.hpp"
#include "command/options/option_table.hpp"
#include "egt/core/units.hpp"

namespace egt {
namespace {

using Text = std::string_view;

bool parse_temperature_limit(std::string_view text, Options& options) {
  const auto limit = parse_number(text, 30, 110);
  if (limit) options.run.guard.temperature_limit_c = *limit;
  return limit.has_value();
}

bool parse_corrected_limit(std::string_view text, Options& options) {
  std::uint64_t errors = 0;
  if (!parse_integer(text, std::uint64_t{0}, std::uint64_t{1'000'000'000'000}, errors)) return false;
  options.run.guard.corrected_limit = errors;
  return true;
}

bool parse_collective_timeout(std::string_view text, Options& options) {
  const auto seconds = parse_duration(text);
  if (!seconds.ok() || seconds.value() < 1 || seconds.value() > 3600) return false;
  options.run.watch.collective_timeout_seconds = seconds.value();
  return true;
}

}  // namespace

std::vector<OptionRule> safety_rules() {
  return {
      {"temperature-limit", of_runs, "C", "degrees Celsius: above them a warning, then less load (85)",
       "degrees Celsius of 30 to 110", parse_temperature_limit},
      {"memory-limit", of_runs, "SHARE",
       "of the device's or the host's memory in use: above it less is filled (95%)", "a share of 10 to 100 %",
       [](Text text, Options& o) { return parse_share(text, 0.1, o.run.guard.memory_limit); }},
      {"throttle-limit", of_burn, "SHARE",
       "of the run that heat, a power brake or the hardware may hold clocks down (5%)",
       "a share of 0 to 100 %",
       [](Text text, Options& o) { return parse_share(text, 0, o.run.guard.throttle_limit); }},
      {"corrected-limit", of_burn, "N", "new corrected ECC errors of a GPU; more are degraded (any number)",
       "a whole number of 0 to 1000000000000", parse_corrected_limit},
      {"collective-timeout", of_runs, "TIME", "how long a rank may make no progress, in s, m or h (30s)",
       "a time of 1s to 1h, such as 30s or 2m", parse_collective_timeout, true, false, explain_duration},
      {"max-restarts", of_runs, "N",
       "times that ranks which lost touch begin anew before they give up (1; links: 16)",
       "a whole number of 0 to 1000",
       [](Text text, Options& o) { return parse_integer(text, 0, 1000, o.run.watch.max_restarts); }},
      {"fail-fast", of_burn, nullptr, "the first fault ends the run", flag_allowed,
       [](Text text, Options& o) {
         o.burn.fail_fast = true;
         return parse_flag(text);
       }},
      {.name = "resume",
       .commands = of_burn,
       .value = "DIR",
       .help = "go on with the run of DIR that was cut, for the rest of its time or steps (none)",
       .allowed = "the path of a run directory",
       .parse = [](Text text, Options& o) { return parse_text(text, o.burn.resume); },
       .in_config = false},
  };
}

}  // namespace egt
