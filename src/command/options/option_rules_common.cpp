#include "command/options/option_parsers.hpp"
#include "command/options/option_table.hpp"

namespace egt {
namespace {

using Text = std::string_view;

bool parse_backend(std::string_view text, Options& options) {
  static constexpr std::array<std::pair<std::string_view, Backend>, 3> names = {
      {{"auto", Backend::automatic}, {"cuda", Backend::cuda}, {"host", Backend::host}}};
  return parse_name(text, names, options.common.backend);
}

bool parse_progress(std::string_view text, Options& options) {
  static constexpr std::array<std::pair<std::string_view, ProgressStyle>, 4> names = {
      {{"auto", ProgressStyle::automatic},
       {"bar", ProgressStyle::bar},
       {"lines", ProgressStyle::lines},
       {"none", ProgressStyle::none}}};
  return parse_name(text, names, options.common.progress);
}

bool parse_message_level(std::string_view text, Options& options) {
  const auto level = parse_log_level(text);
  if (level) options.common.log_level = *level;
  return level.has_value();
}

bool parse_rate(std::string_view text, Options& options) {
  const auto seconds = parse_number(text, 0.1, 3600);
  if (seconds) options.common.metrics_sample_rate = *seconds;
  return seconds.has_value();
}

}  // namespace

std::vector<OptionRule> common_rules() {
  return {
      {"backend", of_all, "auto|cuda|host", "what computes (auto: cuda where a GPU answers, else host)",
       "auto, cuda or host", parse_backend},
      {"devices", of_all, "0,2", "the device of each local rank (default: device = local rank)",
       "device numbers of 0 to 1023, as 0,2",
       [](Text text, Options& o) { return parse_list(text, 0, 1023, o.common.devices); }},
      {"output", of_all, "PATH",
       "the run directory (extreme_gpu_trainer_runs/<UTC time>); of compare: a JSON file (none)",
       "the path of a directory, or of compare's file",
       [](Text text, Options& o) { return parse_text(text, o.common.output); }},
      {"config", of_all, "FILE", "options by long name from a TOML file; the command line is stronger (none)",
       "the path of a TOML file", [](Text text, Options&) { return !text.empty(); }, false},
      {"seed", of_all, "N", "all random numbers and patterns follow from it (1)",
       "a whole number of 0 to 18446744073709551615",
       [](Text text, Options& o) {
         return parse_integer(text, std::uint64_t{0}, ~std::uint64_t{0}, o.common.seed);
       }},
      {"metrics-sample-rate", of_all, "S", "seconds between samples of the sensors (1.0)",
       "seconds of 0.1 to 3600", parse_rate},
      {"progress", of_all, "auto|bar|lines|none", "how the console shows progress (auto: bar on a terminal)",
       "auto, bar, lines or none", parse_progress},
      {"log-file", of_all, "PATH", "append all ranks' records as lines to this file (none)",
       "the path of a file", [](Text text, Options& o) { return parse_text(text, o.common.log_file); }},
      {"log-level", of_all, "LEVEL", "what is told: trace, debug, info, warning, error or off (info)",
       "trace, debug, info, warning, error or off", parse_message_level},
      {"version", of_all, nullptr, "print the version", "it without a value",
       [](Text text, Options&) { return parse_flag(text); }, false},
      {"help", of_all, nullptr, "print this text", "it without a value",
       [](Text text, Options&) { return parse_flag(text); }, false},
  };
}

}  // namespace egt
