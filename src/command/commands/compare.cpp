#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <set>
#include <sstream>

#include "command/commands.hpp"
#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/text.hpp"
#include "judge/result.hpp"
#include "report/compare/comparison.hpp"
#include "report/console/console_style.hpp"
#include "report/fleet/fleet.hpp"
#include "report/history/history_files.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr int max_folder_depth = 4;                 // of --fleet, below the named directory
constexpr std::size_t largest_result = 256u << 20;  // bytes; a result of 1,000 ranks has about 20 MB

Status unreadable(std::string why) {
  return {StatusCode::io_error, std::move(why)};
}

/// The file for `path`: a directory refers to its result.json.
fs::path result_file(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? fs::path(path) / "result.json" : fs::path(path);
}

Result<Json> read_result(const std::string& path, bool needs_tests) {
  const fs::path file = result_file(path);
  std::error_code error;
  if (file != fs::path(path) && !fs::exists(file, error))
    return unreadable("is a directory without a result.json; `report DIR` makes one from a run's journals");
  const Result<std::string> text = read_regular_file(file, largest_result);
  if (!text.ok())
    return unreadable(fmt::format("{}; name a result.json or the directory of a run", text.status().what()));
  return parse_result(text.value(), needs_tests);
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(result_file(a), result_file(b), error) && !error;
}

/// Checked before any file is read, since the output must not overwrite an input.
Status check_output(const std::string& output, const std::vector<std::string>& inputs) {
  std::error_code error;
  const auto wrong = [&](const char* why) {
    return Status(StatusCode::invalid_argument, fmt::format("--output {}: {}", printable(output), why));
  };
  if (output.empty()) return {};
  if (fs::is_directory(output, error)) return wrong("is a directory; name the JSON or HTML file to write");
  for (const std::string& input : inputs)
    if (is_same_file(output, input)) return wrong("is one of the files to compare; name another");
  return {};
}

bool is_page(const std::string& output) {
  return output.ends_with(".html");
}

/// Of standard output; 0: no limit.
std::size_t terminal_columns() {
  const ConsoleStyle style = detect_console_style(ProgressStyle::none);
  return style.results_terminal.empty()
             ? style.results_columns
             : static_cast<std::size_t>(terminal_size(style.results_terminal).columns);
}

/// Shows the text, and writes `content` to `output` if it is named. If one of the two fails, the other is
/// done all the same.
Status show(std::string text, const std::string& output, const std::function<std::string()>& content) {
  text = wrapped_prose(text, terminal_columns());
  Status written;
  if (!output.empty()) {
    written = write_atomically(output, content());
    if (written.ok()) text += fmt::format("Files: {}\n", printable(output));
  }
  std::cout << text << std::flush;
  return !written.ok() || std::cout.good() ? written : unreadable("standard output cannot be written");
}

bool is_run_directory(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name == "result.json" || (name.starts_with("journal.rank") && name.ends_with(".jsonl"))) return true;
  }
  return false;
}

/// Adds the result at `path`, or those of all run directories below it. What has no result has a problem.
void find_results(const fs::path& path, int depth, std::set<fs::path>& seen,
                  std::vector<ComparedFile>& files) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  if (!error &&
      !seen.insert(canonical.filename() == "result.json" ? canonical.parent_path() : canonical).second)
    return;
  const auto add = [&](Result<Json> result) {
    files.push_back({.path = path.string(),
                     .label = "",
                     .result = result.ok() ? std::move(result.value()) : Json(),
                     .problem = result.ok() ? "" : result.status().what()});
  };
  if (!fs::is_directory(path, error) || is_run_directory(path)) return add(read_result(path.string(), false));
  std::vector<fs::path> folders;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (std::error_code none;
        fs::is_directory(entry->path(), none) &&
        !entry->path().filename().string().starts_with('.'))  // snapshots of file servers
      folders.push_back(entry->path());
  if (error) return add(unreadable(fmt::format("cannot be read: {}", error.message())));
  if (folders.empty()) return add(unreadable("holds no run; start one, or remove the directory"));
  if (depth == max_folder_depth) return add(unreadable("nests too deep; name the directories of the runs"));
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) find_results(folder, depth + 1, seen, files);
}

Result<int> compare_fleet(const Options& options) {
  std::set<fs::path> seen;
  std::vector<ComparedFile> files;
  for (const std::string& path : options.compare.files) find_results(path, 0, seen, files);
  std::vector<std::string> inputs;
  for (const ComparedFile& file : files) inputs.push_back(file.path);
  const std::string& output = options.common.output;
  EGT_TRY(check_output(output, inputs));
  const Fleet fleet = fleet_of(files, options.compare.comparison.tolerance);
  EGT_TRY(show(fleet_text(fleet, terminal_columns()), output,
               [&] { return is_page(output) ? fleet_page(fleet) : result_text(fleet_json(fleet)); }));
  return fleet.exit_code;
}

/// Reads all files; those that cannot be compared have a problem.
std::vector<ComparedFile> read_files(const std::vector<std::string>& paths) {
  const std::vector<std::string> labels = labels_of(paths);
  std::vector<ComparedFile> files;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    ComparedFile& file = files.emplace_back();
    file.path = paths[i];
    file.label = labels[i];
    for (std::size_t earlier = 0; earlier < i && file.problem.empty(); ++earlier)
      if (is_same_file(paths[i], paths[earlier]))
        file.problem = fmt::format("is the same file as {}; name each once", paths[earlier]);
    if (!file.problem.empty()) continue;
    Result<Json> result = read_result(paths[i], true);
    if (result.ok())
      file.result = std::move(result.value());
    else
      file.problem = result.status().what();
  }
  return files;
}

/// Shows the past of every GPU in the directory.
Result<int> compare_history(const std::string& directory, const std::string& output) {
  EGT_TRY_ASSIGN(const History history, read_history(directory));
  for (const std::string& problem : history.problems)
    fmt::print(stderr, "extreme_gpu_trainer: {}\n", problem);
  const std::vector<GpuHistory> gpus = review_history(history.lines);
  EGT_TRY(show(history_text(gpus), output, [&] { return result_text(history_json(gpus)); }));
  const auto has_findings = [](const GpuHistory& gpu) { return !gpu.findings.empty(); };
  if (std::any_of(gpus.begin(), gpus.end(), has_findings)) return exit_code::degraded;
  const auto is_judged = [](const GpuHistory& gpu) {
    return std::any_of(gpu.rates.begin(), gpu.rates.end(),
                       [](const RateHistory& rate) { return rate.decline.has_value(); });
  };
  return std::any_of(gpus.begin(), gpus.end(), is_judged) ? exit_code::pass : exit_code::incomplete;
}

}  // namespace

Result<int> run_compare(const Options& options) {
  const std::string& output = options.common.output;
  if (!options.common.history.empty()) return compare_history(options.common.history, output);
  EGT_TRY(check_output(output, options.compare.files));
  if (options.compare.fleet) return compare_fleet(options);
  std::vector<ComparedFile> files = read_files(options.compare.files);
  std::istringstream problems(problems_text(files));
  for (std::string line; std::getline(problems, line);) fmt::print(stderr, "extreme_gpu_trainer: {}\n", line);
  EGT_TRY_ASSIGN(const Comparison comparison, compare_results(std::move(files), options.compare.comparison));
  EGT_TRY(show(comparison_text(comparison), output, [&] {
    return is_page(output) ? comparison_page(comparison) : result_text(comparison_json(comparison));
  }));
  return comparison.exit_code;
}

}  // namespace egt
