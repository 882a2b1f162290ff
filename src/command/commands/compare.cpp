#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "command/commands.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/text.hpp"
#include "judge/result.hpp"
#include "report/compare/comparison.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_result = 256u << 20;  // bytes; a result of 1,000 ranks has about 20 MB

Status unreadable(std::string why) {
  return {StatusCode::io_error, std::move(why)};
}

/// The file for `path`: a directory refers to its result.json.
fs::path result_file(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? fs::path(path) / "result.json" : fs::path(path);
}

Result<Json> read_result(const std::string& path) {
  const fs::path file = result_file(path);
  std::error_code error;
  if (file != fs::path(path) && !fs::exists(file, error))
    return unreadable("is a directory without a result.json; `report DIR` makes one from a run's journals");
  const Result<std::string> text = read_regular_file(file, largest_result);
  if (!text.ok())
    return unreadable(fmt::format("{}; name a result.json or the directory of a run", text.status().what()));
  return parse_result(text.value());
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(result_file(a), result_file(b), error) && !error;
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
    Result<Json> result = read_result(paths[i]);
    if (result.ok())
      file.result = std::move(result.value());
    else
      file.problem = result.status().what();
  }
  return files;
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

}  // namespace

Result<int> run_compare(const Options& options) {
  const std::string& output = options.common.output;
  EGT_TRY(check_output(output, options.compare.files));
  std::vector<ComparedFile> files = read_files(options.compare.files);
  for (const ComparedFile& file : files)
    if (!file.problem.empty())
      fmt::print(stderr, "extreme_gpu_trainer: {}\n",
                 printable(fmt::format("{}: {}", file.path, file.problem)));
  EGT_TRY_ASSIGN(const Comparison comparison, compare_results(std::move(files), options.compare.comparison));
  std::cout << comparison_text(comparison) << std::flush;
  const bool reported = std::cout.good();
  if (!output.empty())
    EGT_TRY(write_atomically(output, output.ends_with(".html") ? comparison_page(comparison)
                                                               : result_text(comparison_json(comparison))));
  if (!reported) return unreadable("standard output cannot be written");
  return comparison.exit_code;
}

}  // namespace egt
