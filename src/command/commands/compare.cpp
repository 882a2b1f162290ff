#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "command/commands.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/text.hpp"
#include "judge/result.hpp"
#include "report/compare/comparison.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t largest_result = 256u << 20;  // bytes; a result of 1,000 ranks has about 20 MB

Status unreadable(std::string why) {
  return {StatusCode::io_error, std::move(why)};
}

/// A result file's text. On error, one line with the reason and what to do. Only regular files are read,
/// since opening a pipe could block forever.
Result<std::string> read_text(const fs::path& path) {
  constexpr const char* what = "name a result.json or the directory of a run";
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return unreadable(fmt::format("is not there; {}", what));
  if (error) return unreadable(fmt::format("cannot be read: {}; {}", error.message(), what));
  if (!fs::is_regular_file(status)) return unreadable(fmt::format("is no regular file; {}", what));
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (!error && bytes > largest_result)
    return unreadable(fmt::format("has {} bytes, too many for a result; {}", bytes, what));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file && bytes > 0)
    return unreadable(fmt::format("cannot be read: {}; {}", std::strerror(errno), what));
  return text.str();
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
  EGT_TRY_ASSIGN(const std::string text, read_text(file));
  return parse_result(text);
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
